"""Step time by context length."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from regimescope.stats.position import (
    block_medians,
    coarse_block,
    periodic_spikes,
    position_profile,
    run_labels,
    slow_positions,
)


@pytest.mark.parametrize("block", [1, 7, 8])
def test_blocks_are_log_medians_after_the_dropped_steps(block: int) -> None:
    gaps = np.random.default_rng(1).uniform(0.01, 0.1, 100)
    kept = np.log(gaps[8 : 8 + (92 // block) * block]).reshape(-1, block)
    assert block_medians(gaps, block=block) == pytest.approx(np.median(kept, axis=1))


def test_short_and_empty_traces_have_no_block() -> None:
    assert block_medians(np.full(15, 0.1)).size == 0
    assert block_medians([]).size == 0
    assert block_medians(np.full(16, 0.1)).size == 1


def test_long_traces_are_cut_without_seams() -> None:
    gaps = np.random.default_rng(2).uniform(0.01, 0.1, (1 << 20) + 8 * 5)
    medians = block_medians(gaps, dropped=0)
    assert medians.size == (1 << 17) + 5
    assert medians[-1] == pytest.approx(np.median(np.log(gaps[-8:])))
    assert medians[1 << 17] == pytest.approx(np.median(np.log(gaps[1 << 20 : (1 << 20) + 8])))


def test_the_profile_counts_the_runs_that_reach_each_block() -> None:
    traces = [np.full(40, 0.1), np.full(24, 0.2), np.full(24, 0.4)]
    profile = position_profile(traces, [5, 5, 5])
    assert profile.context.tolist() == [13, 21, 29, 37]
    assert profile.runs.tolist() == [3, 3, 1, 1]
    assert np.exp(profile.log_itl) == pytest.approx([0.2, 0.2, 0.1, 0.1])


def test_a_slow_stretch_is_found_at_its_context_length() -> None:
    rng = np.random.default_rng(3)
    context = np.arange(3, 803)
    level = (0.01 + 1e-6 * context) * np.where((context >= 411) & (context < 507), 3, 1)
    traces = [level * np.exp(rng.normal(0, 0.05, 800)) for _ in range(4)]
    profile = position_profile(traces, [3] * 4)
    fit = slow_positions(profile)
    ((start, end),) = fit.intervals
    assert (profile.context[start], profile.context[end]) == (411, 507)
    assert np.exp(fit.offsets[0]) == pytest.approx(3, rel=0.05)
    assert not slow_positions(position_profile([t[:390] for t in traces], [3] * 4)).intervals


def test_runs_are_slow_by_the_majority_of_their_blocks() -> None:
    table = [[1.0, 1.0, 0.0], [0.4, 0.4, 1.0], [np.nan, np.nan, 1.0], [np.nan] * 3]
    assert run_labels(table, np.zeros(3), 1.0).tolist() == [True, False, True, False]


def test_coarse_blocks_are_multiples_of_eight() -> None:
    assert [coarse_block(n) for n in (0, 65536, 65537, 10**7)] == [8, 8, 16, 1224]


def spiked(n: int, period: int, phase: int, effect: float, first: int = 17) -> np.ndarray:
    """Rising step time with spikes where the context length has the phase."""
    context = np.arange(first, first + n)
    y = np.log(0.01 + 1e-5 * context) + np.random.default_rng(4).normal(0, 0.03, n)
    return y + effect * (context % period == phase)


@pytest.mark.parametrize(("n", "period"), [(200, 16), (400, 32), (4000, 256), (9000, 16)])
def test_spikes_are_found_with_their_period_and_phase(n: int, period: int) -> None:
    y = spiked(n, period, 5, 0.7)
    found = periodic_spikes(np.arange(17, 17 + n), y, periods=[16, 32, 64, 128, 256])
    assert found is not None
    assert (found.period, found.phase) == (period, 5)
    assert found.log_effect == pytest.approx(0.7, abs=0.1)
    assert found.p_value <= 0.001


def test_a_known_phase_needs_three_cycles_only() -> None:
    y = spiked(48, 16, 0, 0.7)
    context = np.arange(17, 65)
    found = periodic_spikes(context, y, periods=[16], phase=0)
    assert found is not None
    assert found.p_value == pytest.approx(16.0**-3)
    assert periodic_spikes(context, y, periods=[16]) is None
    assert periodic_spikes(context, y, periods=[16], phase=3) is None
    assert periodic_spikes(context[:47], y[:47], periods=[16], phase=0) is None


def test_without_spikes_periods_appear_as_rarely_as_the_level_says() -> None:
    rng = np.random.default_rng(7)
    context = np.arange(17, 17 + 128)
    hits = 0
    for _ in range(1500):
        y = np.log(0.01 + 1e-5 * context) + 0.2 * rng.standard_t(4, context.size)
        hits += periodic_spikes(context, y, periods=[16], alpha=0.05) is not None
    assert hits <= 0.05 * 1500 + 4 * np.sqrt(0.05 * 0.95 * 1500)


def test_small_periodic_effects_are_not_mentioned() -> None:
    y = spiked(3200, 16, 0, 0.08)
    assert periodic_spikes(np.arange(17, 3217), y, periods=[16]) is None


def test_growth_and_noise_have_no_period() -> None:
    rng = np.random.default_rng(6)
    context = np.arange(17, 1041)
    for _ in range(50):
        y = np.log(0.01 + 1e-4 * context) + 0.05 * rng.standard_t(3, context.size)
        assert periodic_spikes(context, y, periods=[16, 32, 64, 128, 256]) is None


def test_the_law_of_rank_sums_agrees_with_counting() -> None:
    # Three cycles of four steps, phase known: every arrangement of ranks is equally likely.
    sums = np.array([sum(ranks) for ranks in product(range(1, 5), repeat=3)])
    y = np.tile([0.0, 0.1, 0.2, 0.5], 3)
    y[8:] = [0.0, 0.1, 0.5, 0.4]
    found = periodic_spikes(np.arange(4, 16), y, periods=[4], phase=3, alpha=1.0)
    assert found is not None
    assert found.p_value == pytest.approx(np.mean(sums >= 4 + 4 + 3))


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        block_medians([0.1, 0.0])
    with pytest.raises(ValueError, match="block >= 1"):
        block_medians([0.1], block=0)
    with pytest.raises(ValueError, match="no trace"):
        position_profile([[0.1] * 15], [3])
    with pytest.raises(ValueError, match="longest"):
        coarse_block(-1)
    with pytest.raises(ValueError, match="consecutive"):
        periodic_spikes([1, 3], [0.0, 0.0], periods=[16])
    with pytest.raises(ValueError, match="at least 2"):
        periodic_spikes([1, 2], [0.0, 0.0], periods=[1])
    with pytest.raises(ValueError, match="positive log"):
        run_labels([[0.0]], [0.0], 0.0)
    with pytest.raises(ValueError, match="infinity"):
        run_labels([[np.inf]], [0.0], 1.0)
