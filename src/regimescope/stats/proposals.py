"""Candidate intervals: all of them on a short axis, a linear-time selection on a long one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from regimescope.stats.arrays import FloatArray, IntArray
from regimescope.stats.batched_cost import KAPPA, huber

EXHAUSTIVE_UP_TO = 128  # points; 8256 intervals are still cheaper than selecting among them
LEVELS = (1.25, 1.5, 2.0, 4.0, 8.0, 16.0)  # slowdowns sought; within x1.5 of any from 1.25 to 24
MOST_PROPOSALS = 64  # several times what K = 3 intervals with shifted edges need


class Intervals(NamedTuple):
    """Half-open index intervals [start, end), shape (B,) each."""

    start: IntArray
    end: IntArray


def all_intervals(n: int, longest: int) -> Intervals:
    """Every non-empty [i, j) on n points with at most ``longest`` points."""
    start, end = np.triu_indices(n + 1, k=1)
    short = end - start <= longest
    return Intervals(start[short].astype(np.int64), end[short].astype(np.int64))


def viterbi_intervals(
    residual: FloatArray, scale: float, switch_cost: float, *, kappa: float = KAPPA
) -> Intervals:
    """Intervals that two-state paths over the residuals mark as slow, best savings first.

    For each slowdown level the path of least cost alternates between a normal state, charged
    Huber's loss of z / s, and a slow one, charged the loss of (z - log r) / (kappa s) plus
    log kappa; each change of state costs ``switch_cost``.

    Args:
        residual: log latency minus the log of a robust curve, in axis order, shape (n,).
        scale: residual scale in log units, > 0.
        switch_cost: cost of entering or of leaving the slow state.
        kappa: factor by which slow points may scatter more.

    Returns:
        Distinct intervals, at most 64, ranked by what each alone saves.
    """
    savings: dict[tuple[int, int], float] = {}
    normal = huber(residual / scale)
    for level in LEVELS:
        slow = huber((residual - np.log(level)) / (kappa * scale)) + np.log(kappa)
        excess = slow - normal
        total = np.concatenate([[0.0], np.cumsum(excess)])
        for start, end in _slow_stretches(excess, switch_cost):
            saved = float(total[start] - total[end])
            savings[start, end] = max(saved, savings.get((start, end), -np.inf))
    ranked = sorted(savings, key=lambda pair: (-savings[pair], pair))[:MOST_PROPOSALS]
    pairs = np.array(ranked, dtype=np.int64).reshape(-1, 2)
    return Intervals(pairs[:, 0], pairs[:, 1])


def _slow_stretches(excess: FloatArray, switch_cost: float) -> list[tuple[int, int]]:
    """Slow stretches of the cheapest path, normal before the first and after the last point.

    The recursion needs only the difference of the two path costs, clipped to what one switch
    costs; plain floats are faster here than arrays of length two.
    """
    lead = switch_cost
    stays: list[float] = []  # slow minus normal cost before each point's own charge
    for value in excess.tolist():
        stays.append(lead)
        lead = min(max(lead, -switch_cost), switch_cost) + value
    slow = lead < -switch_cost
    stretches = []
    end = len(stays)
    for k in range(len(stays) - 1, -1, -1):
        before = stays[k]
        if slow and before >= switch_cost:
            stretches.append((k, end))
            slow = False
        elif not slow and before < -switch_cost:
            slow, end = True, k
    return stretches[::-1]
