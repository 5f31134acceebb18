import itertools

import numpy as np
import pytest

from regimescope.stats.batched_cost import huber
from regimescope.stats.proposals import (
    LEVELS,
    MOST_PROPOSALS,
    all_intervals,
    viterbi_intervals,
)


def test_every_short_interval_is_listed_once():
    found = all_intervals(5, 3)
    pairs = list(zip(found.start.tolist(), found.end.tolist(), strict=True))
    assert len(pairs) == len(set(pairs)) == 5 + 4 + 3
    assert (0, 5) not in pairs
    assert all_intervals(5, 0).start.size == 0


def cheapest_path(residual, scale, level, switch_cost):
    """Slow stretches of the best of all 2^n paths."""
    normal = huber(residual / scale)
    slow = huber((residual - np.log(level)) / (1.5 * scale)) + np.log(1.5)
    best, states = np.inf, ()
    for path in itertools.product([0, 1], repeat=residual.size):
        padded = np.array([0, *path, 0])
        cost = np.where(path, slow, normal).sum() + switch_cost * np.abs(np.diff(padded)).sum()
        if cost < best:
            best, states = cost, padded
    turns = np.flatnonzero(np.diff(states))
    return set(zip(turns[::2].tolist(), turns[1::2].tolist(), strict=True))


@pytest.mark.parametrize("seed", range(6))
def test_proposals_are_the_stretches_of_the_cheapest_paths(seed):
    rng = np.random.default_rng(seed)
    residual = 0.05 * rng.standard_normal(10)
    residual[rng.integers(0, 8) :][: rng.integers(1, 6)] += np.log(rng.choice([1.3, 3.0]))
    expected = set().union(*(cheapest_path(residual, 0.03, r, 1.5) for r in LEVELS))
    found = viterbi_intervals(residual, 0.03, 1.5)
    assert set(zip(found.start.tolist(), found.end.tolist(), strict=True)) == expected


def test_stretches_may_touch_both_ends():
    found = viterbi_intervals(np.log([3.0, 3.0, 1.0, 1.0, 1.0, 3.0]), 0.03, 1.5)
    pairs = set(zip(found.start.tolist(), found.end.tolist(), strict=True))
    assert {(0, 2), (5, 6)} <= pairs


def test_most_saving_comes_first_and_the_list_is_bounded():
    residual = np.zeros(2000)
    residual[5::10] = np.log(2)
    residual[100:140] = np.log(4)
    found = viterbi_intervals(residual, 0.03, 1.5)
    assert (found.start[0], found.end[0]) == (100, 140)
    assert found.start.size == MOST_PROPOSALS


def test_a_flat_series_proposes_nothing():
    assert viterbi_intervals(np.zeros(50), 0.03, 1.5).start.size == 0
