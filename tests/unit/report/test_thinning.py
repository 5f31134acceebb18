import numpy as np
import pytest

from regimescope.report.thinning import bin_gaps, keep_extremes


def test_few_points_are_all_kept():
    assert keep_extremes([3, 1, 2], [1, 1, 1], 3).tolist() == [0, 1, 2]
    assert keep_extremes([], [], 10).tolist() == []


@pytest.mark.parametrize("values", [1, 3, 12, 5000, 100_000])
def test_the_bound_holds_for_any_number_of_distinct_values(values):
    random = np.random.default_rng(0)
    x, y = random.integers(0, values, 100_000), random.lognormal(size=100_000)
    kept = keep_extremes(x, y, 2000)
    assert 0.4 * 2000 < len(kept) <= 2000
    assert (np.diff(kept) > 0).all()


def test_fastest_and_slowest_trial_of_every_value_are_kept():
    random = np.random.default_rng(1)
    x, y = random.integers(0, 64, 50_000), random.lognormal(size=50_000)
    kept = keep_extremes(x, y, 500)
    for value in range(64):
        inside = y[x == value]
        shown = y[kept][x[kept] == value]
        assert shown.min() == inside.min()
        assert shown.max() == inside.max()


def test_the_one_slow_point_among_very_many_values_is_kept():
    x, y = np.arange(30_000), np.ones(30_000)
    y[12_345] = 9.0
    kept = keep_extremes(x, y, 300)
    assert 12_345 in kept
    assert len(kept) <= 300


def test_equal_points_do_not_disturb():
    assert len(keep_extremes(np.zeros(1000), np.zeros(1000), 10)) == 10


def test_a_million_gaps_shrink_to_the_grid_and_keep_the_one_slow_step():
    random = np.random.default_rng(2)
    gaps = [[random.normal(0.01, 1e-4, 10_000)] for _ in range(100)]
    gaps[37][0][4321] = 0.7
    grid = bin_gaps(range(100), gaps, rows=40, columns=64)
    assert grid.median_s.shape == (40, 64)
    assert grid.gaps.sum() == 1_000_000
    row = next(i for i, (low, high) in enumerate(grid.rows) if low <= 37 <= high)
    column = int(np.flatnonzero((grid.starts <= 4322) & (grid.stops >= 4322))[0])
    assert np.argwhere(grid.longest_s > 0.1).tolist() == [[row, column]]
    assert grid.longest_s[row, column] == 0.7
    assert grid.median_s.max() < 0.0101


def test_small_traces_are_shown_step_by_step_with_their_own_lengths():
    grid = bin_gaps(
        [4, 6],
        [[np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 5.0])], [np.array([1.0, 1, 1, 1, 8])]],
        rows=40,
        columns=64,
    )
    assert grid.rows == [(4, 4), (6, 6)]
    assert grid.starts.tolist() == grid.stops.tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(grid.median_s[0], [2.0, 2.0, 4.0, np.nan, np.nan])
    np.testing.assert_array_equal(grid.longest_s[0], [3.0, 2.0, 5.0, np.nan, np.nan])
    assert grid.gaps.tolist() == [[2, 2, 2, 0, 0], [1, 1, 1, 1, 1]]


def test_columns_cover_every_step_once():
    grid = bin_gaps([1000], [[np.arange(999.0)]], rows=40, columns=64)
    assert grid.starts[0] == 1
    assert grid.stops[-1] == 999
    assert (grid.starts[1:] == grid.stops[:-1] + 1).all()


def test_neighboring_values_share_a_row_when_there_are_too_many():
    grid = bin_gaps(range(10), [[np.full(4, float(k))] for k in range(10)], rows=3, columns=2)
    assert grid.rows == [(0, 3), (4, 6), (7, 9)]
    assert grid.longest_s[:, 0].tolist() == [3.0, 6.0, 9.0]
    assert grid.median_s[:, 0].tolist() == [1.5, 5.0, 8.0]


def test_traces_without_a_gap_give_an_empty_grid():
    grid = bin_gaps([1], [[np.array([])]], rows=4, columns=4)
    assert grid.median_s.shape == (1, 0)
