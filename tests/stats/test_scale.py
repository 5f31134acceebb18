"""Work of the detector on long axes, counted in fits of interval sets, never in seconds."""

from types import SimpleNamespace

import numpy as np
import pytest

from regimescope.stats import batched_cost as cost_module
from regimescope.stats import interval_search
from regimescope.stats.epidemic import detect
from regimescope.stats.interval_search import (
    HELD_SLACK,
    joint_fit,
    set_problem,
)
from regimescope.stats.proposals import EXHAUSTIVE_UP_TO, MOST_PROPOSALS

REPEATS = 3
SETS_OF_A_LONG_AXIS = 3 * 3 * MOST_PROPOSALS + 400  # passes x intervals x proposals, and the rest


@pytest.fixture
def fits(monkeypatch):
    """Count fitted interval sets and the points in them."""
    count = SimpleNamespace(sets=0, points=0)
    original = interval_search.batched_cost

    def counted(ratio_design, labels, scale, rule):
        count.sets += labels.shape[0]
        count.points += labels.size
        return original(ratio_design, labels, scale, rule)

    monkeypatch.setattr(interval_search, "batched_cost", counted)
    return count


def measured(n, *, slow=1.0, spiked=0.0, seed=0):
    """Medians of three repeats with t4 noise; a sixth of the axis may be slow."""
    rng = np.random.default_rng(seed)
    steps = np.linspace(64, 1024, n)
    x = steps / steps[-1]
    y = np.log(0.05 + 0.6 * x + 0.35 * x**2)
    y[n // 3 : n // 2] += np.log(slow)
    noise = 0.03 * rng.standard_t(4, (REPEATS, n))
    noise += (rng.random(noise.shape) < spiked) * np.log(rng.uniform(1.2, 2.5, noise.shape))
    return steps, y + np.median(noise, axis=0)


def found(n, **kind):
    steps, y = measured(n, **kind)
    return detect(steps, y, repeats=np.full(n, REPEATS), sigma=0.03, degree=2)


@pytest.mark.parametrize("n", [1000, 10_000])
def test_a_wide_slow_stretch_of_a_long_axis_is_found_with_few_fits(fits, n):
    fit = found(n, slow=3.0)
    assert fit.intervals == ((n // 3, n // 2),)
    assert fits.sets <= 200


def test_noise_with_slow_accidents_costs_a_bounded_number_of_fits(fits):
    fit = found(10_000, spiked=0.08)
    assert len(fit.intervals) == 3  # accidents that met by chance: for confirmation to judge
    assert fits.sets <= SETS_OF_A_LONG_AXIS


@pytest.mark.parametrize("spiked", [0.0, 0.08])
def test_ten_times_the_points_cost_at_most_a_bounded_multiple_of_the_work(fits, spiked):
    found(1000, spiked=spiked)
    short = fits.points
    fits.points = 0
    found(10_000, spiked=spiked)
    assert fits.points <= 40 * short  # the proposals may grow to 64, no further


def test_every_interval_of_a_short_axis_is_tried(fits):
    n = 40
    found(n)
    assert fits.sets >= n * (n + 1) // 2 - 10  # all but those that leave too few points outside
    assert n < EXHAUSTIVE_UP_TO


def test_rows_are_fitted_in_pieces_of_bounded_size(monkeypatch):
    pieces = []
    original = cost_module._fit_chunk

    def recorded(design, labels, scale, rule):
        pieces.append(labels.size)
        return original(design, labels, scale, rule)

    monkeypatch.setattr(cost_module, "_fit_chunk", recorded)
    found(1000, slow=3.0)
    found(60, slow=3.0)
    assert max(pieces) <= cost_module.CHUNK_ELEMENTS


def a_long_fit(seed):
    """A long axis with one slow stretch whose edges noise may blur, fitted where it lies."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(EXHAUSTIVE_UP_TO + 2, 400))
    steps, y = measured(n, slow=rng.choice([1.3, 1.6, 4.0]), spiked=0.04, seed=seed)
    problem = set_problem(
        powers(steps), y - np.median(y), cost_module.CostRule(np.log(1.25), 4), 5, 3
    )
    shift = int(rng.integers(-3, 4))  # also fits whose edge is off its best place
    return problem, joint_fit(problem, [(n // 3 + shift, n // 2)], 0.03)


def powers(steps):
    x = steps / steps[-1]
    return x[:, None] ** np.arange(3)


@pytest.mark.parametrize("seed", range(12))
def test_a_held_curve_leaves_out_no_edge_that_a_full_fit_would_keep(monkeypatch, seed):
    problem, fit = a_long_fit(seed)
    thrifty = interval_search.ambiguous_pairs(problem, fit, 0)
    monkeypatch.setattr(
        interval_search, "_near_with_held_curve", lambda problem, fit, r, pairs: pairs
    )
    assert thrifty == interval_search.ambiguous_pairs(problem, fit, 0)


def test_a_curve_that_moves_with_an_edge_is_not_held():
    """Few points are left outside, so each one that changes sides moves the curve."""
    n = 160
    steps, y = measured(n, seed=3)
    y[8:140] += np.log(2.0)
    problem = set_problem(
        powers(steps), y - np.median(y), cost_module.CostRule(np.log(1.25), 4), 5, 3
    )
    fit = joint_fit(problem, [(12, 140)], 0.03)
    pairs = [p for p in interval_search._edge_variants(problem, fit, 0) if p[0] >= 0 and p[1] <= n]
    held = interval_search._held_costs(problem, fit, 0, pairs)
    moved = interval_search._variant_costs(problem, fit, 0, pairs) - fit.cost
    assert (moved < held - HELD_SLACK).any()
    assert interval_search._near_with_held_curve(problem, fit, 0, pairs) == pairs
