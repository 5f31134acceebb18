"""Fewer numbers for a screen, none of the spikes lost. Layer: report.

A chart shows at most a few thousand marks. Curves keep the extremes of every bin; gaps become the
median and the maximum of every bin, side by side. Arrays in, arrays out; the stored numbers stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


class GapGrid(NamedTuple):
    """Gaps by row (values of the swept axis) and column (bins of step positions).

    Attributes:
        rows: First and last value of each row, both inclusive.
        starts: First step of each column, counted from 1.
        stops: Last step of each column, inclusive.
        median_s: Median gap, shape (rows, columns), NaN where no trial reaches.
        longest_s: Longest gap, same shape.
        gaps: Gaps behind each cell, same shape.
    """

    rows: list[tuple[int, int]]
    starts: Indices
    stops: Indices
    median_s: Floats
    longest_s: Floats
    gaps: Indices


def keep_extremes(x: npt.ArrayLike, y: npt.ArrayLike, most: int) -> Indices:
    """Choose at most ``most`` points that show the same cloud.

    The points are grouped by ``x`` (neighboring values share a group when there are too many);
    each group keeps its least and its greatest ``y`` and evenly spaced ranks between them.

    Args:
        x: Positions, shape (n,).
        y: Values, shape (n,).
        most: Greatest number of points to keep, at least 3.

    Returns:
        Ascending indices into ``x``.
    """
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(xs) <= most:
        return np.arange(len(xs), dtype=np.int64)
    distinct, group = np.unique(xs, return_inverse=True)
    groups = min(len(distinct), max(most // 3, 1))
    group = group * groups // len(distinct)
    # Sorted by group, then by value: the ranks inside a group are then consecutive.
    order = np.lexsort((ys, group))
    starts = np.searchsorted(group[order], np.arange(groups))
    stops = np.append(starts[1:], len(xs))
    each = most // groups
    kept = [
        order[np.unique(np.linspace(start, stop - 1, min(each, stop - start)).round().astype(int))]
        for start, stop in zip(starts, stops, strict=True)
    ]
    return np.sort(np.concatenate(kept)).astype(np.int64)


def bin_gaps(
    values: Sequence[int], gaps_s: Sequence[Sequence[Floats]], *, rows: int, columns: int
) -> GapGrid:
    """Summarize gaps in a grid of at most ``rows`` by ``columns`` cells.

    Args:
        values: Values of the swept axis, ascending, at least one.
        gaps_s: For each value the gaps of its trials, arrays of any length in seconds.
        rows: Greatest number of rows; neighboring values are merged when there are more.
        columns: Greatest number of columns; steps are merged when there are more.

    Returns:
        Medians and maxima over all gaps of a cell. Steps are numbered from 1: step k ends with
        output token k + 1.
    """
    longest = max((len(gaps) for trials in gaps_s for gaps in trials), default=0)
    edges = np.unique(np.linspace(0, longest, min(columns, longest) + 1).round().astype(np.int64))
    merged = np.array_split(np.arange(len(values)), min(rows, len(values)))
    shape = (len(merged), max(len(edges) - 1, 0))
    grid = GapGrid(
        [(values[part[0]], values[part[-1]]) for part in merged],
        edges[:-1] + 1,
        edges[1:],
        np.full(shape, np.nan),
        np.full(shape, np.nan),
        np.zeros(shape, dtype=np.int64),
    )
    for row, part in enumerate(merged):
        trials = [gaps for index in part for gaps in gaps_s[index]]
        _fill_row(grid, row, trials, edges)
    return grid


def _fill_row(grid: GapGrid, row: int, trials: list[Floats], edges: Indices) -> None:
    """Write the cells of one row."""
    for column in range(len(edges) - 1):
        start, stop = edges[column], edges[column + 1]
        inside = np.concatenate([gaps[start:stop] for gaps in trials])
        if len(inside):
            grid.median_s[row, column] = np.median(inside)
            grid.longest_s[row, column] = inside.max()
            grid.gaps[row, column] = len(inside)
