"""The screen misses no width it promises, and points at what is slow."""

from __future__ import annotations

import numpy as np
import pytest

from regimescope.search.evidence import Evidence
from regimescope.search.screening import (
    Place,
    calibration_values,
    candidates,
    grid,
    read_screen,
    suspicious,
)

PLACE = Place("budget", 2)


def evidence_of(values: np.ndarray, seconds: np.ndarray) -> Evidence:
    n = values.size
    return Evidence(
        np.asarray(values, dtype=np.int64),
        np.log(seconds),
        np.zeros(n, dtype=np.int64),
        np.ones(n, dtype=bool),
        np.zeros(n, dtype=bool),
        ("screen",) * n,
    )


def seconds_of(values: np.ndarray, slow: range, factor: float, seed: int = 0) -> np.ndarray:
    noise = np.exp(0.02 * np.random.default_rng(seed).standard_normal(values.size))
    return (
        (0.0125 * values + 1e-6 * values**2) * np.where(np.isin(values, slow), factor, 1.0) * noise
    )


@pytest.mark.parametrize("width", [1, 5, 20, 40, 100])
@pytest.mark.parametrize("span", [(64, 1024), (2, 97), (10, 12), (64, 65)])
def test_no_two_neighbors_are_further_apart_than_the_width(
    width: int, span: tuple[int, int]
) -> None:
    low, high = span
    for seed in range(20):
        values = grid(low, high, width, np.random.default_rng(seed))
        assert values[0] == low
        assert values[-1] == high
        assert list(values) == sorted(set(values))
        assert max(np.diff(values)) <= max(width, 1)


def test_the_grid_differs_from_seed_to_seed_and_is_not_finer_than_needed() -> None:
    grids = {grid(64, 1024, 40, np.random.default_rng(seed)) for seed in range(5)}
    assert len(grids) == 5
    assert all(len(values) == 31 for values in grids)


def test_calibration_stands_at_both_ends_and_in_the_middle() -> None:
    assert calibration_values(64, 1024) == (64, 544, 1024)
    assert calibration_values(3, 4) == (3, 4)


def test_slow_values_are_suspicious_and_others_mostly_are_not() -> None:
    values = np.array(grid(64, 1024, 40, np.random.default_rng(1)))
    slow = range(512, 640)
    found = suspicious(evidence_of(values, seconds_of(values, slow, 10.0)), PLACE)
    assert set(found) == {v for v in values.tolist() if v in slow}


@pytest.mark.parametrize("seed", range(5))
def test_a_clean_curve_has_no_suspicious_values(seed: int) -> None:
    values = np.array(grid(64, 1024, 40, np.random.default_rng(seed)))
    assert suspicious(evidence_of(values, seconds_of(values, range(0), 1.0, seed)), PLACE) == ()


def test_a_candidate_is_named_by_three_values_and_its_normal_neighbors() -> None:
    values = np.arange(64, 1025, 32)
    rows = evidence_of(values, seconds_of(values, range(512, 640), 10.0))
    (found,) = candidates(read_screen(rows, PLACE))
    assert found.values == (512, 544, 608)
    assert (found.left, found.right) == (480, 640)


def test_a_candidate_at_an_end_lacks_a_neighbor() -> None:
    values = np.arange(64, 1025, 32)
    (found,) = candidates(
        read_screen(evidence_of(values, seconds_of(values, range(800, 2000), 5)), PLACE)
    )
    assert found.right is None
    assert found.left == 768
