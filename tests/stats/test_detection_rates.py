"""The detection benchmark in small: screen, confirmation, edges and slowdown over many machines.

Seeds are fixed. Limits leave three binomial standard deviations below what the method states, so
that they hold for other seeds too but fail when a rate really moves.
"""

import pytest
from benchmarks.detection.cells import draw_case
from benchmarks.detection.ours import evaluate_ours
from benchmarks.detection.scoring import CONFIRMED, OURS, RAW, Score

from regimescope.testing.synthetic_noise import NOISE_CELLS

FAR = 500_000  # numbers of sweeps that the benchmark itself never reaches


def scored(noise, column, sweeps):
    """Sum of the scores of the screen and of the whole way, over some sweeps of a cell."""
    totals = {RAW: Score(), CONFIRMED: Score()}
    for number in range(FAR, FAR + sweeps):
        case = draw_case(noise, NOISE_CELLS[noise], column, number)
        for row in evaluate_ours(case).rows:
            if row.method == OURS and row.input in totals:
                totals[row.input].add(row.score)
    return totals


@pytest.mark.parametrize(
    ("noise", "column", "sweeps"),
    [
        ("gauss", "clean", 30),
        ("ar1", "clean", 20),
        ("lottery_40", "clean", 8),
        ("drift_linear", "clean", 20),
        ("skew", "step2", 6),
        ("skew", "ramp", 6),
        ("skew", "lone_burst", 8),
    ],
)
def test_nothing_is_confirmed_where_there_is_no_regime(noise, column, sweeps):
    found = scored(noise, column, sweeps)[CONFIRMED]
    assert found.sweeps == sweeps
    assert found.false == 0


def test_heavy_noise_fools_the_screen_and_only_confirmation_withdraws_it():
    found = scored("heavy", "clean", 20)
    assert found[RAW].alarms >= 4
    assert found[CONFIRMED].alarms == 0


@pytest.mark.parametrize(
    ("noise", "column", "sweeps", "least"),
    [("skew", "2x narrow", 6, 5), ("skew", "10x wide", 6, 5), ("gauss", "two", 3, 5)],
)
def test_regimes_are_confirmed_with_edges_to_one_token(noise, column, sweeps, least):
    found = scored(noise, column, sweeps)[CONFIRMED]
    assert found.hits >= least
    assert found.exact >= least - 1
    assert found.covered >= 0.9 * found.edges
    assert found.slowdowns_covered >= 0.8 * found.slowdowns
    assert found.false == 0
