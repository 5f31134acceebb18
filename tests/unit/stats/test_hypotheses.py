import numpy as np
import pytest

from regimescope.stats.batched_cost import CostRule
from regimescope.stats.curve import basis
from regimescope.stats.hypotheses import (
    clean,
    is_resolved,
    ramp,
    sawtooth,
    spikes,
    step,
    step_left,
)
from regimescope.stats.interval_search import set_problem
from regimescope.stats.proposals import all_intervals


def a_problem(response, steps, degree=1, lam=3.0):
    rule = CostRule(np.log(1.1), degree + 2)
    X = basis(steps, steps[-1], degree)
    return set_problem(X, response - np.median(response), rule, lam, 3)


STEPS = np.linspace(50, 1000, 20)
LINE = np.log(0.1 + 0.01 * STEPS)


def spikes_of(problem):
    return spikes(problem, 0.02, all_intervals(problem.size, 0))


def test_the_true_shape_is_cheapest_and_knows_its_place():
    lasting, fading = LINE.copy(), LINE.copy()
    lasting[12:] += np.log(2)
    fading[:7] += np.log(2)
    assert step(a_problem(lasting, STEPS), 0.02).position == 12
    assert step(a_problem(lasting, STEPS), 0.02).intervals == ((12, 20),)
    assert step_left(a_problem(fading, STEPS), 0.02).position == 7
    assert np.exp(step_left(a_problem(fading, STEPS), 0.02).effect) == pytest.approx(2, rel=1e-3)


def test_each_element_pays_the_penalty_and_the_curve_does_not():
    problem = a_problem(LINE, STEPS)
    assert clean(problem, 0.02).cost == pytest.approx(0, abs=1e-6)
    assert ramp(problem, STEPS, 0.02).cost == pytest.approx(3.0, abs=1e-6)
    assert step(problem, 0.02).cost == np.inf  # no lasting slowdown of 1.1 to be found


def test_spikes_stay_inside_and_may_be_several():
    y = LINE.copy()
    y[4:6] += np.log(3)
    y[10:13] += np.log(2)
    found = spikes_of(a_problem(y, STEPS))
    assert found.intervals == ((4, 6), (10, 13))
    assert found.cost == pytest.approx(2 * 3.0 + 5 * np.log(1.5), abs=0.1)
    assert np.exp(found.effect) == pytest.approx(3, rel=1e-3)
    y[17:] += np.log(3)
    assert all(end < 20 for _, end in spikes_of(a_problem(y, STEPS)).intervals)


def test_a_kink_is_found_at_its_step():
    T = 0.1 + 0.01 * STEPS + 0.02 * np.maximum(0, STEPS - STEPS[8])
    found = ramp(a_problem(np.log(T), STEPS), STEPS, 0.02)
    assert found.position == 8
    without = 0.1 + 0.01 * STEPS[-1]
    assert np.exp(found.effect) == pytest.approx(T[-1] / without, rel=0.01)


def test_kinks_need_points_on_both_sides():
    steps = STEPS[:4]
    assert ramp(a_problem(LINE[:4], steps), steps, 0.02).cost == np.inf
    assert ramp(a_problem(LINE[:5], STEPS[:5], degree=3), STEPS[:5], 0.02).cost == np.inf


def test_long_axes_find_the_same_places():
    steps = np.linspace(50, 1000, 700)
    y = np.log(0.1 + 0.01 * steps)
    y[333:] += np.log(1.5)
    assert step(a_problem(y, steps), 0.02).position == 333
    T = 0.1 + 0.01 * steps + 0.02 * np.maximum(0, steps - steps[421])
    assert ramp(a_problem(np.log(T), steps), steps, 0.02).position == 421


def test_periods_need_three_turns():
    problem = a_problem(LINE, STEPS)
    assert sawtooth(problem, STEPS, 0.02, 400.0).cost == np.inf
    assert np.isfinite(sawtooth(problem, STEPS, 0.02, 300.0).cost)
    assert is_resolved(STEPS, 300.0)
    assert not is_resolved(STEPS, 400.0)
    assert not is_resolved(STEPS, 100.0)  # about two points in each


def test_a_periodic_part_is_measured_by_its_range():
    steps = np.linspace(10, 1000, 100)
    T = 5 + 0.001 * steps + (steps % 200) / 200
    found = sawtooth(a_problem(np.log(T), steps), steps, 0.02, 200.0)
    assert found.period == 200.0
    assert found.cost == pytest.approx(3.0, abs=0.1)
    assert 0.1 < found.effect < 0.25
