"""Search over sets of intervals at a fixed residual scale: selection, refinement, ambiguity.

The steps of method section 4 between two updates of the scale. Sets are compared by
``cost + lam * (number of intervals)``; every comparison is one batched call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from regimescope.stats.arrays import BoolArray, FloatArray
from regimescope.stats.batched_cost import CostBatch, CostRule, batched_cost, huber
from regimescope.stats.proposals import EXHAUSTIVE_UP_TO, Intervals, all_intervals

Interval: TypeAlias = tuple[int, int]

REFINE_PASSES = 6  # greedy moves; two steps per end and a split per interval suffice in practice
IMPROVEMENT = 1e-9  # less than this is rounding
SPLIT_ALL_UP_TO = 48  # points; longer intervals are split only where points inside look normal
SPLITS_TRIED = 64  # longest normal-looking runs inside a long interval
AMBIGUITY = 3.0  # cost difference of a likelihood ratio of 20
EDGE_REACH = 16  # points to each side in which the edges of a long axis are varied
HELD_SLACK = 3.0  # cost by which a new fit may lower that of a held curve, still to be trusted


class Problem(NamedTuple):
    """One response with its design and the rules of the search.

    Attributes:
        X: basis, shape (n, p).
        y: log latency less its median, shape (n,).
        ratio: ``X / exp(y)`` with a leading axis of one, shape (1, n, p).
        rule: which sets are allowed.
        lam: penalty per interval.
        max_intervals: most intervals of a set.
    """

    X: FloatArray
    y: FloatArray
    ratio: FloatArray
    rule: CostRule
    lam: float
    max_intervals: int

    @property
    def size(self) -> int:
        """Number of points n."""
        return self.y.size


class JointFit(NamedTuple):
    """Curve and offsets fitted together for one set of intervals.

    Attributes:
        intervals: the set, ascending.
        cost: its cost without penalty.
        theta: coefficients for ``exp(y)``, shape (p,).
        offsets: log slowdown of each interval, shape (R,).
        residual: log residual against the curve, shape (n,).
        normal: True outside the intervals, shape (n,).
        scale: residual scale of the cost.
    """

    intervals: tuple[Interval, ...]
    cost: float
    theta: FloatArray
    offsets: FloatArray
    residual: FloatArray
    normal: BoolArray
    scale: float


class Selection(NamedTuple):
    """Outcome of forward selection.

    Attributes:
        intervals: accepted intervals, ascending.
        null_cost: cost without any.
        best_gain: saving of the best single interval, accepted or not; 0 if none is allowed.
    """

    intervals: tuple[Interval, ...]
    null_cost: float
    best_gain: float


def set_problem(X: FloatArray, y: FloatArray, rule: CostRule, lam: float, most: int) -> Problem:
    """Put a design and a centered log response together."""
    ratio = (X / np.exp(y)[:, None])[None]
    return Problem(X, y, ratio, rule, lam, most)


def interval_labels(sets: Sequence[Sequence[Interval]], n: int) -> NDArray[np.int8]:
    """Label rows of sets of disjoint intervals, shape (len(sets), n)."""
    labels = np.zeros((len(sets), n), dtype=np.int8)
    for row, intervals in zip(labels, sets, strict=True):
        for r, (start, end) in enumerate(intervals, start=1):
            row[start:end] = r
    return labels


def set_costs(problem: Problem, labels: NDArray[np.int8], scale: float) -> CostBatch:
    """Costs of label rows for the one response of a problem; leading axis of one."""
    return batched_cost(problem.ratio, labels, np.array([scale]), problem.rule)


def joint_fit(problem: Problem, intervals: Sequence[Interval], scale: float) -> JointFit:
    """Fit one set of intervals; its cost is infinite if the set is not allowed."""
    ordered = tuple(sorted(intervals))
    labels = interval_labels([ordered], problem.size)
    batch = set_costs(problem, labels, scale)
    theta = batch.theta[0, 0]
    residual = -np.log(np.maximum(problem.ratio[0] @ theta, np.finfo(float).tiny))
    return JointFit(
        ordered,
        float(batch.cost[0, 0]),
        theta,
        batch.offsets[0, 0],
        residual,
        labels[0] == 0,
        scale,
    )


def forward_selection(problem: Problem, candidates: Intervals, scale: float) -> Selection:
    """Add the interval that saves most, while it saves more than the penalty."""
    n = problem.size
    chosen: list[Interval] = []
    base = np.zeros((1, n), dtype=np.int8)
    null_cost = current = float(set_costs(problem, base, scale).cost[0, 0])
    best_gain = 0.0
    while len(chosen) < problem.max_intervals:
        free = _disjoint(candidates, base[0])
        if free.start.size == 0:
            break
        cost = set_costs(problem, _with_interval(base[0], free, len(chosen) + 1), scale).cost[0]
        best = int(np.argmin(cost))
        gain = current - float(cost[best])
        if not chosen:
            best_gain = max(gain, 0.0)
        if not gain > problem.lam:
            break
        chosen.append((int(free.start[best]), int(free.end[best])))
        base[0, chosen[-1][0] : chosen[-1][1]] = len(chosen)
        current = float(cost[best])
    return Selection(tuple(sorted(chosen)), null_cost, best_gain)


def _disjoint(candidates: Intervals, base: NDArray[np.int8]) -> Intervals:
    busy = np.concatenate([[0], np.cumsum(base > 0)])
    free = busy[candidates.end] == busy[candidates.start]
    return Intervals(candidates.start[free], candidates.end[free])


def _with_interval(base: NDArray[np.int8], added: Intervals, label: int) -> NDArray[np.int8]:
    index = np.arange(base.size)
    inside = (index >= added.start[:, None]) & (index < added.end[:, None])
    labels: NDArray[np.int8] = base + inside.astype(np.int8) * np.int8(label)
    return labels


def refine(
    problem: Problem,
    intervals: Sequence[Interval],
    scale: float,
    *,
    limits: Interval | None = None,
) -> tuple[Interval, ...]:
    """Improve a set by its best single move, repeatedly, at most 6 times.

    Moves: shift one end by one or two points, delete an interval, split one around a gap.

    Args:
        problem: response and rules.
        intervals: disjoint intervals to start from.
        scale: residual scale of the costs.
        limits: half-open range that no interval may leave; None for all points.
    """
    current = tuple(sorted(intervals))
    if not current:
        return current
    within = limits or (0, problem.size)
    fit = joint_fit(problem, current, scale)
    value = fit.cost + problem.lam * len(current)
    for _ in range(REFINE_PASSES):
        moves = list(_moves(fit, problem.max_intervals, within))
        if not moves:
            break
        cost = set_costs(problem, interval_labels(moves, problem.size), scale).cost[0]
        values = cost + problem.lam * np.array([len(m) for m in moves])
        best = int(np.argmin(values))
        if not values[best] < value - IMPROVEMENT:
            break
        fit = joint_fit(problem, moves[best], scale)
        value = float(values[best])
    return fit.intervals


def _moves(fit: JointFit, most: int, within: Interval) -> Iterator[tuple[Interval, ...]]:
    for r, (start, end) in enumerate(fit.intervals):
        others = fit.intervals[:r] + fit.intervals[r + 1 :]
        yield others
        for shift in (-2, -1, 1, 2):
            for moved in ((start + shift, end), (start, end + shift)):
                if _fits(moved, others, within):
                    yield tuple(sorted((*others, moved)))
        if len(fit.intervals) < most:
            for gap_start, gap_end in _gaps(fit, r):
                yield tuple(sorted((*others, (start, gap_start), (gap_end, end))))


def _fits(interval: Interval, others: Sequence[Interval], within: Interval) -> bool:
    start, end = interval
    inside = within[0] <= start < end <= within[1]
    return inside and all(end <= a or start >= b for a, b in others)


def _gaps(fit: JointFit, r: int) -> list[Interval]:
    """Gaps around which interval r may be split, each leaving a point on both sides."""
    start, end = fit.intervals[r]
    if end - start <= SPLIT_ALL_UP_TO:
        return [(c, e) for c in range(start + 1, end - 1) for e in range(c + 1, end)]
    fast = fit.residual[start:end] < fit.offsets[r] / 2
    fast[[0, -1]] = False
    turns = np.flatnonzero(np.diff(fast.astype(np.int8)))
    runs = sorted(zip(turns[::2], turns[1::2], strict=True), key=lambda run: run[0] - run[1])
    return [(start + int(a) + 1, start + int(b) + 1) for a, b in runs[:SPLITS_TRIED]]


def leave_one_out_gains(problem: Problem, fit: JointFit) -> FloatArray:
    """What each interval saves in cost against the set without it, shape (R,)."""
    if not fit.intervals:
        return np.empty(0)
    rest = [fit.intervals[:r] + fit.intervals[r + 1 :] for r in range(len(fit.intervals))]
    labels = interval_labels(rest, problem.size)
    gains: FloatArray = set_costs(problem, labels, fit.scale).cost[0] - fit.cost
    return gains


def ambiguous_pairs(problem: Problem, fit: JointFit, r: int) -> tuple[Interval, ...]:
    """All (start, end) of interval r whose cost is within 3 of the best, others held.

    On a long axis only ends within 16 points are varied, one end at a time.
    """
    others = fit.intervals[:r] + fit.intervals[r + 1 :]
    within = (0, problem.size)
    pairs = [p for p in _edge_variants(problem, fit, r) if _fits(p, others, within)]
    if problem.size > EXHAUSTIVE_UP_TO:
        pairs = _near_with_held_curve(problem, fit, r, pairs)
    cost = _variant_costs(problem, fit, r, pairs)
    near = np.flatnonzero(cost <= cost.min() + AMBIGUITY)
    return tuple(pairs[k] for k in near)


def _variant_costs(
    problem: Problem, fit: JointFit, r: int, pairs: Sequence[Interval]
) -> FloatArray:
    """Costs with interval r replaced by each of the pairs, everything fitted again."""
    base = interval_labels([fit.intervals[:r] + fit.intervals[r + 1 :]], problem.size)[0]
    varied = Intervals(*np.array(pairs, dtype=np.int64).T)
    labels = _with_interval(base, varied, len(fit.intervals))
    cost: FloatArray = set_costs(problem, labels, fit.scale).cost[0]
    return cost


def _near_with_held_curve(
    problem: Problem, fit: JointFit, r: int, pairs: list[Interval]
) -> list[Interval]:
    """Pairs that can be within 3 of the best, judged with the curve of the fit where that holds.

    A few points of a long axis do not move its curve, and then most pairs need no fit of their
    own. Whether it holds is seen at the farthest variants: all pairs are returned unless a new
    fit leaves their costs where they were.
    """
    start, end = fit.intervals[r]
    farthest = sorted({min(pairs), max(pairs), *_ends_of((start, end), pairs)})
    known = _held_costs(problem, fit, r, farthest)
    fitted = _variant_costs(problem, fit, r, farthest) - fit.cost
    if (fitted < known - HELD_SLACK).any():
        return pairs
    held = _held_costs(problem, fit, r, pairs)
    return [
        p for p, cost in zip(pairs, held.tolist(), strict=True) if cost <= AMBIGUITY + HELD_SLACK
    ]


def _ends_of(interval: Interval, pairs: Sequence[Interval]) -> tuple[Interval, Interval]:
    """The pairs of the same start whose end lies farthest to the left and to the right."""
    ends = [b for a, b in pairs if a == interval[0]]
    return (interval[0], min(ends)), (interval[0], max(ends))


def _edge_variants(problem: Problem, fit: JointFit, r: int) -> list[Interval]:
    start, end = fit.intervals[r]
    if problem.size <= EXHAUSTIVE_UP_TO:
        every = all_intervals(problem.size, problem.size - problem.rule.min_outside)
        return list(zip(every.start.tolist(), every.end.tolist(), strict=True))
    shifts = range(-EDGE_REACH, EDGE_REACH + 1)
    moved = {(start + k, end) for k in shifts} | {(start, end + k) for k in shifts}
    return sorted(moved)


def _held_costs(problem: Problem, fit: JointFit, r: int, pairs: Sequence[Interval]) -> FloatArray:
    """Costs of variants of interval r with the curve held, less the cost of the fit.

    Only points between the outermost edges change sides, so only those are charged.
    """
    own = fit.intervals[r]
    first = min(own[0], *(a for a, _ in pairs))
    last = max(own[1], *(b for _, b in pairs))
    z = fit.residual[first:last]
    outside = np.concatenate([[0.0], np.cumsum(huber(z / fit.scale))])
    costs = []
    for start, end in (own, *pairs):
        inside = z[start - first : end - first]
        wider = problem.rule.kappa * fit.scale
        charge = float(huber((inside - np.median(inside)) / wider).sum())
        saved = outside[end - first] - outside[start - first]
        costs.append(charge + inside.size * np.log(problem.rule.kappa) - saved)
    saving: FloatArray = np.array(costs[1:]) - costs[0]
    return saving
