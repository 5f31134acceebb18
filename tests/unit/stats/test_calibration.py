import numpy as np
import pytest

from regimescope.stats.calibration import (
    calibration_rows,
    effective_repeats,
    screening_penalty,
)


def test_table_has_every_degree_and_says_how_it_came_about():
    rows = calibration_rows()
    assert {degree for _, degree in rows} == {0, 1, 2, 3}
    assert {1, 2, 3, 5} <= {repeats for repeats, _ in rows}
    for row in rows.values():
        assert (np.diff(row.sizes) > 0).all()
        assert row.sizes[0] == 6
        assert (row.lam > 0).all()
        assert (row.nulls > 0).all()
        assert (row.standard_error > 0).all()


def test_entries_are_returned_as_they_are_and_interpolated_between():
    row = calibration_rows()[3, 2]
    assert screening_penalty(12, 3, 2) == pytest.approx(row.lam[row.sizes == 12][0])
    low, high = screening_penalty(12, 3, 2), screening_penalty(16, 3, 2)
    middle = screening_penalty(14, 3, 2)
    assert min(low, high) <= middle <= max(low, high)
    assert screening_penalty(3, 3, 2) == screening_penalty(6, 3, 2)


def test_penalty_goes_on_growing_beyond_the_table():
    penalties = [screening_penalty(n, 3, 2) for n in (128, 1000, 10_000)]
    assert penalties == sorted(penalties)
    assert penalties[-1] < 30


def test_four_repeats_lie_between_three_and_five():
    ends = sorted([screening_penalty(16, 3, 2), screening_penalty(16, 5, 2)])
    assert ends[0] <= screening_penalty(16, 4, 2) <= ends[1]
    assert screening_penalty(16, 99, 2) == screening_penalty(16, 7, 2)
    assert screening_penalty(16, 3, 9) == screening_penalty(16, 3, 3)


def test_a_plan_that_repeats_only_suspicious_points_counts_as_three():
    assert effective_repeats([1, 1, 1, 3, 3]) == 3
    assert effective_repeats([1, 1, 1, 2]) == 2
    assert effective_repeats([5, 5, 5, 1]) == 5
    assert effective_repeats(1) == 1


@pytest.mark.parametrize(("n", "repeats", "degree"), [(0, 1, 2), (6, 0, 2), (6, [], 2), (6, 1, -1)])
def test_impossible_cells_are_refused(n, repeats, degree):
    with pytest.raises(ValueError, match=r"need n|repeats"):
        screening_penalty(n, repeats, degree)
