import numpy as np
import pytest

from regimescope.stats.arrays import finite_vector, finite_vector_like, sorted_series


def test_series_is_sorted_and_remembers_where_its_points_came_from():
    series = sorted_series([30, 10, 20], [3.0, 1.0, 2.0])
    assert series.steps.tolist() == [10, 20, 30]
    assert series.response.tolist() == [1.0, 2.0, 3.0]
    assert series.order.tolist() == [1, 2, 0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_measurement_are_refused_with_their_position(bad):
    with pytest.raises(ValueError, match=r"response must be finite; not so at positions \[1\]"):
        sorted_series([1, 2, 3], [1.0, bad, 2.0])


@pytest.mark.parametrize(
    ("steps", "response", "message"),
    [
        ([], [], "at least one step"),
        ([1, 2], [1.0], "2 steps but 1 responses"),
        ([1, 1], [1.0, 2.0], "given once"),
        ([-1, 1], [1.0, 2.0], "not be negative"),
        ([0], [1.0], "one of them must be positive"),
        ([[1], [2]], [1.0, 2.0], "one-dimensional"),
    ],
)
def test_malformed_series_are_refused(steps, response, message):
    with pytest.raises(ValueError, match=message):
        sorted_series(steps, response)


def test_vectors_may_be_empty_but_not_of_another_size():
    assert finite_vector([], "x").size == 0
    with pytest.raises(ValueError, match="x must have 2 elements, got 3"):
        finite_vector_like([1, 2, 3], 2, "x")
