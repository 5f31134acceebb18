"""From levels to slow stretches: one rule for every method that only cuts a series into pieces."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Interval = tuple[int, int]

LEAST = float(np.log(1.25))  # least log slowdown of a regime (method section 1.4)


def raised_runs(y: Array, cuts: Sequence[int]) -> list[Interval]:
    """Runs of pieces which lie above the pieces on both sides by 1.25 times, longest first.

    Args:
        y: log latency or residual, shape (n,).
        cuts: first index of every piece but the first.

    Returns:
        Disjoint half-open index intervals, ascending, none of them at an end of the series.
    """
    edges = [0, *sorted({int(c) for c in cuts if 0 < c < y.size}), y.size]
    levels = [float(np.median(y[a:b])) for a, b in pairwise(edges)]
    found: list[Interval] = []
    taken = np.zeros(len(levels), dtype=bool)
    for length in range(len(levels) - 2, 0, -1):
        for first in range(1, len(levels) - length):
            last = first + length
            beside = max(levels[first - 1], levels[last])
            inside = min(levels[first:last])
            if inside - beside >= LEAST and not taken[first:last].any():
                taken[first:last] = True
                found.append((edges[first], edges[last]))
    return sorted(found)


def raised_anomalies(y: Array, intervals: Sequence[Interval]) -> list[Interval]:
    """Of reported stretches those inside the series that lie above the rest by 1.25 times."""
    outside = np.ones(y.size, dtype=bool)
    for start, end in intervals:
        outside[start:end] = False
    if not outside.any():
        return []
    base = float(np.median(y[outside]))
    return sorted(
        (start, end)
        for start, end in intervals
        if start > 0 and end < y.size and float(np.median(y[start:end])) - base >= LEAST
    )


def runs_above(excess: Array, limit: float) -> list[Interval]:
    """Runs of neighboring points above a limit, none of them at an end of the series."""
    above = np.concatenate([[False], excess > limit, [False]]).astype(np.int8)
    turns = np.flatnonzero(np.diff(above))
    pairs = zip(turns[::2].tolist(), turns[1::2].tolist(), strict=True)
    return [(start, end) for start, end in pairs if start > 0 and end < excess.size]
