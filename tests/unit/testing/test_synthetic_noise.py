"""Noise has the sizes, the correlation and the course that its settings name."""

import numpy as np
import pytest

from regimescope.testing.synthetic_noise import (
    CHUNK,
    NOISE_CELLS,
    THERMAL_TRIALS,
    Noise,
    NoiseStream,
    replayed,
)


def drawn(noise, count=20_000, seed=0):
    return NoiseStream(noise, np.random.default_rng(seed)).take(count, 0)


def test_a_gaussian_body_has_its_scale():
    values = drawn(Noise(scale=0.02))
    assert values.std() == pytest.approx(0.02, rel=0.05)
    assert abs(values.mean()) < 0.001


def test_a_skewed_body_has_its_scale_its_median_and_a_long_slow_side():
    values = drawn(Noise("skew", 0.03))
    assert values.std() == pytest.approx(0.03, rel=0.1)
    assert abs(np.median(values)) < 0.001
    assert values.max() > -3 * values.min()


def test_students_t_has_heavier_tails_than_its_scale_says():
    values = drawn(Noise("t3", 0.03))
    assert np.mean(np.abs(values) > 0.12) > 0.015  # Gaussian: 6e-5


def test_spikes_come_with_their_share_and_only_slow_down():
    values = drawn(Noise(scale=0.001, spikes=0.15, spike_limit=4.0))
    assert np.mean(values > 0.1) == pytest.approx(0.15, abs=0.012)
    assert values.max() < np.log(4.0) + 0.01
    assert values.min() > -0.01


def test_correlated_noise_keeps_its_scale_across_chunks():
    stream = NoiseStream(Noise(scale=0.03, correlation=0.6), np.random.default_rng(1))
    values = np.concatenate([stream.take(7, 0) for _ in range(4 * CHUNK // 7)])
    assert np.corrcoef(values[:-1], values[1:])[0, 1] == pytest.approx(0.6, abs=0.06)
    assert values.std() == pytest.approx(0.03, rel=0.1)


def test_a_burst_covers_consecutive_trials():
    values = drawn(Noise(scale=0.001, bursts=0.01))
    slow = values > 0.1
    begins = np.count_nonzero(slow[1:] & ~slow[:-1])
    assert 2.0 <= slow.sum() / begins <= 4.0


def test_the_lone_burst_comes_once_and_in_time():
    for seed in range(20):
        slow = np.flatnonzero(drawn(Noise(scale=0.001, lone_burst_within=90), 400, seed) > 0.1)
        assert 5 <= slow.size <= 20
        assert slow[0] < 90
        assert slow[-1] - slow[0] == slow.size - 1


def test_a_linear_drift_rises_and_then_stays():
    noise = Noise(scale=0.0, drift="linear", drift_limit=0.3, drift_trials=100)
    values = drawn(noise, 200)
    assert (np.diff(values[:100]) > 0).all()
    assert values[150] == values[199]
    assert 0 < values[199] <= np.log(1.3)


def test_an_exponential_drift_levels_off():
    values = drawn(Noise(scale=0.0, drift="exponential", drift_limit=0.3), 200)
    assert values[50] - values[0] > values[199] - values[149]


def test_a_thermal_drift_falls_back_after_each_cycle():
    values = drawn(Noise(scale=0.0, drift="thermal", drift_limit=0.3), 3 * THERMAL_TRIALS)
    falls = np.flatnonzero(np.diff(values) < 0) + 1
    assert falls.tolist() == [THERMAL_TRIALS, 2 * THERMAL_TRIALS]


def test_the_warm_up_is_that_of_each_process():
    stream = NoiseStream(Noise(scale=0.0, warm_up_limit=1.0), np.random.default_rng(0))
    first, second = stream.take(10, 0), stream.take(10, 1)
    assert (np.diff(first) < 0).all()
    np.testing.assert_allclose(first, second)


def test_a_process_keeps_its_level():
    stream = NoiseStream(Noise(scale=0.0, process_scale=0.1), np.random.default_rng(0))
    levels = [set(stream.take(5, k).tolist()) for k in (0, 1, 0)]
    assert len(levels[0]) == 1
    assert levels[0] == levels[2] != levels[1]


def test_a_replay_goes_round_a_whole_process_in_its_order():
    recorded = [np.arange(5) / 10, np.arange(5) / 10 + 5]
    stream = NoiseStream(replayed(recorded), np.random.default_rng(3))
    seen = set()
    for process in range(20):
        values = np.rint(10 * np.concatenate([stream.take(3, process), stream.take(4, process)]))
        source = int(values[0]) // 50
        seen.add(source)
        place = (values - 50 * source).astype(int)
        assert ((np.diff(place) % 5) == 1).all()
    assert seen == {0, 1}


def test_every_cell_of_the_benchmark_can_be_drawn():
    for noise in NOISE_CELLS.values():
        assert np.isfinite(drawn(noise, 2 * CHUNK + 1)).all()


@pytest.mark.parametrize(
    "settings",
    [
        {"body": "cauchy"},
        {"drift": "random"},
        {"spikes": 1.0},
        {"scale": -1.0},
        {"body": "replay"},
        {"recorded": (np.zeros(3),)},
    ],
)
def test_settings_that_cannot_be_are_refused(settings):
    with pytest.raises(ValueError, match=r"unknown|must lie|replay"):
        Noise(**settings)


@pytest.mark.parametrize("recorded", [[], [[]], [[0.1], [np.nan]]])
def test_a_replay_of_nothing_is_refused(recorded):
    with pytest.raises(ValueError, match=r"at least one|finite"):
        replayed(recorded)
