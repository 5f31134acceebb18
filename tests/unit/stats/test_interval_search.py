import numpy as np
import pytest

from regimescope.stats.batched_cost import CostRule
from regimescope.stats.curve import basis
from regimescope.stats.interval_search import (
    ambiguous_pairs,
    forward_selection,
    interval_labels,
    joint_fit,
    leave_one_out_gains,
    refine,
    set_problem,
)
from regimescope.stats.proposals import all_intervals


def a_problem(slow, n=30, noise=0.02, lam=3.0, most=3, seed=0):
    """A sweep with slowdowns ``{(start, end): ratio}``."""
    rng = np.random.default_rng(seed)
    steps = np.linspace(64, 1024, n)
    y = np.log(0.2 + 0.01 * steps) + noise * rng.standard_normal(n)
    for (start, end), ratio in slow.items():
        y[start:end] += np.log(ratio)
    rule = CostRule(np.log(1.25), 4)
    return set_problem(basis(steps, steps[-1], 2), y - np.median(y), rule, lam, most)


def everything(problem):
    return all_intervals(problem.size, problem.size - 4)


def test_selection_takes_the_intervals_that_pay():
    problem = a_problem({(5, 9): 2.0, (20, 22): 3.0})
    found = forward_selection(problem, everything(problem), 0.03)
    assert found.intervals == ((5, 9), (20, 22))
    assert found.best_gain > 3.0


def test_selection_of_nothing_reports_what_the_best_would_have_saved():
    problem = a_problem({(5, 9): 2.0}, lam=1e6)
    found = forward_selection(problem, everything(problem), 0.03)
    assert found.intervals == ()
    assert found.best_gain > 100
    clean = forward_selection(a_problem({}), everything(problem), 0.03)
    assert clean.best_gain == 0.0


def test_selection_stops_at_the_most_intervals():
    problem = a_problem({(5, 7): 3.0, (12, 14): 3.0, (20, 22): 3.0}, most=2)
    assert len(forward_selection(problem, everything(problem), 0.03).intervals) == 2


def test_refinement_moves_ends_deletes_and_splits():
    problem = a_problem({(8, 13): 3.0, (14, 20): 3.0})
    assert refine(problem, [(8, 20)], 0.03) == ((8, 13), (14, 20))
    assert refine(problem, [(7, 13), (15, 21)], 0.03) == ((8, 13), (14, 20))
    assert refine(problem, [(8, 13), (14, 20), (25, 26)], 0.03) == ((8, 13), (14, 20))
    assert refine(problem, [], 0.03) == ()


def test_refinement_respects_its_limits():
    problem = a_problem({(20, 30): 3.0})
    assert refine(problem, [(20, 29)], 0.03) == ((20, 30),)
    assert refine(problem, [(20, 29)], 0.03, limits=(1, 29)) == ((20, 29),)


def test_long_intervals_are_split_where_they_look_normal():
    problem = a_problem({(20, 60): 3.0, (62, 110): 3.0}, n=128)
    assert refine(problem, [(20, 110)], 0.03) == ((20, 60), (62, 110))


def test_gain_of_an_interval_is_what_its_removal_costs():
    problem = a_problem({(5, 9): 2.0, (20, 22): 3.0})
    both = joint_fit(problem, [(20, 22), (5, 9)], 0.03)
    alone = joint_fit(problem, [(5, 9)], 0.03)
    gains = leave_one_out_gains(problem, both)
    assert gains.shape == (2,)
    assert gains[1] == pytest.approx(alone.cost - both.cost)
    assert leave_one_out_gains(problem, joint_fit(problem, [], 0.03)).size == 0


def test_a_sharp_edge_has_one_reading_and_a_half_slow_point_has_two():
    sharp = a_problem({(10, 15): 3.0})
    fit = joint_fit(sharp, [(10, 15)], 0.03)
    assert ambiguous_pairs(sharp, fit, 0) == ((10, 15),)
    blurred = a_problem({(10, 15): 3.0, (15, 16): np.sqrt(3.0)}, noise=0.001)
    pairs = ambiguous_pairs(blurred, joint_fit(blurred, [(10, 15)], 0.25), 0)
    assert {(10, 15), (10, 16)} <= set(pairs)


def test_other_intervals_bound_the_ambiguity():
    problem = a_problem({(5, 9): 3.0, (10, 14): 3.0})
    fit = joint_fit(problem, [(5, 9), (10, 14)], 0.5)
    assert all(end <= 10 for _, end in ambiguous_pairs(problem, fit, 0))
    assert all(start >= 9 for start, _ in ambiguous_pairs(problem, fit, 1))


def test_edges_of_a_long_axis_are_varied_near_the_interval():
    problem = a_problem({(100, 150): 3.0}, n=300)
    fit = joint_fit(problem, [(100, 150)], 0.03)
    assert ambiguous_pairs(problem, fit, 0) == ((100, 150),)


def test_labels_number_the_intervals_of_each_row():
    labels = interval_labels([[], [(0, 1), (2, 4)]], 5)
    assert labels.tolist() == [[0, 0, 0, 0, 0], [1, 0, 2, 2, 0]]
