"""The ratio of two groups of processes: coverage over many draws, and degenerate groups."""

import numpy as np
import pytest

from regimescope.stats.estimate import ratio_of_groups


# Two processes with a spread of their own do not show it: Welch's degrees of freedom are then a
# little too many, as simulated with 4000 draws (.92 to .98).
@pytest.mark.parametrize(
    ("before", "after", "least"),
    [((3, 0.02), (3, 0.02), 0.94), ((8, 0.05), (8, 0.02), 0.93), ((2, 0.1), (8, 0.01), 0.90)],
)
def test_intervals_cover_the_truth(before, after, least):
    random = np.random.default_rng(17)
    truth, draws, covered = 1.3, 2000, 0
    for _ in range(draws):
        groups = [
            random.normal(level, spread, size)
            for level, (size, spread) in zip((0.0, np.log(truth)), (before, after), strict=True)
        ]
        found = ratio_of_groups(*groups)
        covered += found.low <= truth <= found.high
    assert covered / draws > least


def test_groups_without_spread_have_an_interval_without_width():
    found = ratio_of_groups([0.0, 0.0], np.log([2.0, 2.0]))
    assert (found.low, found.value, found.high) == pytest.approx((2.0, 2.0, 2.0))


@pytest.mark.parametrize("bad", [[], [0.0], [0.0, np.nan]])
def test_groups_that_are_none_are_refused(bad):
    with pytest.raises(ValueError, match=r"two levels|finite"):
        ratio_of_groups(bad, [0.0, 1.0])
    with pytest.raises(ValueError, match=r"two levels|finite"):
        ratio_of_groups([0.0, 1.0], bad)
