"""The shift of two samples and its exact interval."""

from __future__ import annotations

import numpy as np
import pytest

from regimescope.stats.shift import hodges_lehmann


def test_the_estimate_is_the_median_of_all_differences():
    found = hodges_lehmann([1.0, 4.0, 9.0], [0.0, 1.0])
    assert found.value == pytest.approx(np.median([1, 0, 4, 3, 9, 8]))


def test_too_few_values_give_all_differences():
    found = hodges_lehmann([1.0, 2.0], [0.0, 0.5])
    assert (found.low, found.high) == (0.5, 2.0)


def test_four_against_four_leave_out_nothing_at_95_percent():
    # The least two-sided p value of four against four is 2 / 70 = 0.029: one difference may go.
    x, y = np.arange(4.0), np.arange(4.0) * 10
    differences = np.sort((x[:, None] - y).ravel())
    found = hodges_lehmann(x, y)
    assert (found.low, found.high) == (differences[1], differences[-2])


def test_the_interval_covers_the_true_shift_as_often_as_stated():
    random = np.random.default_rng(8)
    covered = 0
    for _ in range(1000):
        found = hodges_lehmann(random.normal(0.3, 1, 9), random.normal(0, 1, 9), level=0.9)
        covered += found.low <= 0.3 <= found.high
    assert 870 <= covered <= 960


@pytest.mark.parametrize(
    ("x", "y", "level"), [([], [1.0], 0.9), ([1.0], [np.nan], 0.9), ([1.0], [1.0], 1.0)]
)
def test_bad_input_is_refused(x, y, level):
    with pytest.raises(ValueError, match=r".+"):
        hodges_lehmann(x, y, level=level)
