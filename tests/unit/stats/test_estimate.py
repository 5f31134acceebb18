import numpy as np
import pytest

from regimescope.stats.estimate import (
    pooled_repeat_scale,
    repeat_scale_factor,
    slowdown_interval,
    summarize_repeats,
    wilson_interval,
)


@pytest.mark.parametrize("repeats", [2, 3, 4, 5, 6, 7, 8, 12, 16])
def test_pooled_scale_is_unbiased_for_gaussian_repeats(repeats):
    rng = np.random.default_rng(repeats)
    y = 0.04 * rng.standard_normal((5_000, repeats))
    group = np.repeat(np.arange(5_000), repeats)
    assert pooled_repeat_scale(y.ravel(), group) == pytest.approx(0.04, rel=0.04)


def test_pooled_scale_survives_a_third_of_spiked_groups():
    rng = np.random.default_rng(1)
    y = 0.03 * rng.standard_normal((30, 3))
    y[:10, 0] += 1.0
    scale = pooled_repeat_scale(y.ravel(), np.repeat(np.arange(30), 3))
    assert 0.02 < scale < 0.06


def test_groups_of_different_size_are_pooled():
    rng = np.random.default_rng(2)
    group = np.concatenate([np.repeat(np.arange(3000), 2), np.repeat(np.arange(3000, 6000), 3)])
    assert pooled_repeat_scale(0.05 * rng.standard_normal(group.size), group) == pytest.approx(
        0.05, rel=0.05
    )


def test_scale_is_unknown_without_repeats_and_zero_for_equal_ones():
    assert np.isnan(pooled_repeat_scale([1.0, 2.0, 3.0], [0, 1, 2]))
    assert np.isnan(pooled_repeat_scale([1.0, 2.0, 3.0, 4.0], [0, 0, 1, 1]))  # 2 degrees only
    assert pooled_repeat_scale([1.0] * 6, [0, 0, 1, 1, 2, 2]) == 0.0
    assert np.isnan(pooled_repeat_scale([], []))


def test_a_factor_needs_repeats():
    assert repeat_scale_factor(40) == 1.0
    with pytest.raises(ValueError, match="at least 2"):
        repeat_scale_factor(1)


def test_repeats_are_summarized_by_step_in_any_order():
    found = summarize_repeats([20, 10, 20, 10, 20], [2.0, 1.0, 4.0, 1.2, 3.0])
    assert found.steps.tolist() == [10, 20]
    assert found.median == pytest.approx([1.1, 3.0])
    assert found.repeats.tolist() == [2, 3]
    assert found.sigma > 0


def test_nothing_to_summarize_is_refused():
    with pytest.raises(ValueError, match="no responses"):
        summarize_repeats([], [])
    with pytest.raises(ValueError, match="finite"):
        summarize_repeats([1], [np.nan])


def test_slowdown_is_the_geometric_mean_with_a_moderated_interval():
    z = np.log([2.0, 2.2, 1.8])
    found = slowdown_interval(z, np.full(3, 0.03), sigma=0.04, controls=12)
    assert found.slowdown.value == pytest.approx(np.exp(z.mean()))
    assert found.slowdown.low < found.slowdown.value < found.slowdown.high
    assert found.peak.value == pytest.approx(2.2)
    assert found.peak_index == 1
    assert found.peak.high / found.peak.value > found.slowdown.high / found.slowdown.value


@pytest.mark.parametrize(
    ("deviations", "width"),
    [([0.0], 1.40), ([-0.085, 0.085], 1.27), ([-0.12, 0.0, 0.12], 1.20)],
)
def test_interval_has_the_published_half_width(deviations, width):
    """Budgets that scatter by 12 %, a curve known to 3 %."""
    z = 1.0 + np.array(deviations)
    found = slowdown_interval(z, np.full(z.size, 0.03), sigma=0.0, controls=12)
    assert found.slowdown.high / found.slowdown.value == pytest.approx(width, abs=0.02)


@pytest.mark.parametrize("spread", [0.03, 0.10, 0.15])
@pytest.mark.parametrize("budgets", [1, 2, 3])
def test_interval_covers_the_true_slowdown(spread, budgets):
    rng = np.random.default_rng(9)
    hits = 0
    for _ in range(400):
        z = np.log(3.0) + spread * rng.standard_normal(budgets)
        found = slowdown_interval(z, np.full(budgets, 0.01), sigma=0.03, controls=12)
        hits += found.slowdown.low <= 3.0 <= found.slowdown.high
    assert hits / 400 > 0.92


def test_unknown_scale_counts_as_zero():
    known = slowdown_interval([1.0], [0.02], sigma=0.0, controls=6)
    assert slowdown_interval([1.0], [0.02], sigma=float("nan"), controls=6) == known


@pytest.mark.parametrize(
    ("z", "error", "sigma", "controls"),
    [([], [], 0.0, 6), ([1.0], [-0.1], 0.0, 6), ([1.0], [0.1], -1.0, 6), ([1.0], [0.1], 0.0, 0)],
)
def test_impossible_slowdown_input_is_refused(z, error, sigma, controls):
    with pytest.raises(ValueError, match="a slowdown needs"):
        slowdown_interval(z, error, sigma=sigma, controls=controls)


def test_share_stays_inside_its_range():
    none = wilson_interval(0, 6)
    assert none.value == 0.0
    assert none.low == 0.0
    assert none.high == pytest.approx(0.390, abs=0.001)
    assert wilson_interval(6, 6).high == pytest.approx(1.0)
    for successes, trials in ((1, 0), (-1, 3), (4, 3)):
        with pytest.raises(ValueError, match="successes"):
            wilson_interval(successes, trials)
