"""Fits of each shape that a latency curve can have, all at one residual scale (method section 9).

Each hypothesis is charged its robust cost plus the detector's penalty per element, so that the
numbers compare: one curve, one curve with an interval, with a kink, or with a periodic part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from regimescope.stats.arrays import BoolArray, FloatArray, IntArray
from regimescope.stats.batched_cost import CostRule, batched_cost
from regimescope.stats.interval_search import (
    Interval,
    JointFit,
    Problem,
    forward_selection,
    interval_labels,
    joint_fit,
    refine,
    set_costs,
)
from regimescope.stats.proposals import EXHAUSTIVE_UP_TO, Intervals, all_intervals

COARSE_POSITIONS = 128  # places of a change tried first on a long axis, then all near the best
LEAST_TREAD = 2  # values between two rises of a staircase: one alone is not a level
PERIODS_RESOLVED = 3  # periods in the range, and points per period, that show a period


class Hypothesis(NamedTuple):
    """One shape, fitted.

    Attributes:
        name: CLEAN, STEP, STEP_LEFT, RAMP, SPIKE or SAWTOOTH.
        cost: robust cost plus penalties; infinite when the points do not allow the shape.
        X: basis of the fit, extra columns last, shape (n, p).
        theta: coefficients for the centered latency, shape (p,).
        intervals: slow intervals, ascending; the treads of a staircase touch.
        offsets: log slowdown of each interval.
        residual: log residual against the curve (intervals not removed), shape (n,).
        normal: True outside intervals, shape (n,).
        position: index where a step, a kink or a recovery lies; None otherwise.
        period: period in steps; None otherwise.
        effect: log size of the element: offset of a step, largest offset of the spikes, rise of
            a kink at the last point, range of a periodic part; 0 for CLEAN.
    """

    name: str
    cost: float
    X: FloatArray
    theta: FloatArray
    intervals: tuple[Interval, ...]
    offsets: FloatArray
    residual: FloatArray
    normal: BoolArray
    position: int | None
    period: float | None
    effect: float


def clean(problem: Problem, scale: float) -> Hypothesis:
    """The curve alone; pays no penalty."""
    return _from_intervals("CLEAN", problem, joint_fit(problem, (), scale), None)


def step(problem: Problem, scale: float) -> Hypothesis:
    """Best lasting slowdown [k, n), with further rises on either side that save the penalty."""
    n = problem.size
    best = _one_sided("STEP", problem, scale, lambda k: [((int(i), n),) for i in k])
    if n > EXHAUSTIVE_UP_TO or best.position is None:
        return best
    while len(best.intervals) < problem.max_intervals:
        more = _one_more_rise(problem, scale, [start for start, _ in best.intervals])
        if more is None or not more.cost < best.cost:
            break
        best = more
    return best


def _one_more_rise(problem: Problem, scale: float, rises: list[int]) -> Hypothesis | None:
    """The staircase with one rise more than given that costs least; None if none is allowed."""
    n = problem.size
    sets = [
        tuple(zip(cuts, (*cuts[1:], n), strict=True))
        for cuts in (sorted((*rises, new)) for new in range(1, n) if new not in rises)
        # A single value between two rises would be an accident on the way up.
        if min(np.diff((*cuts, n))) >= LEAST_TREAD
    ]
    if not sets:
        return None
    batch = set_costs(problem, interval_labels(sets, n), scale)
    rising = (np.diff(batch.offsets[0], axis=1) >= problem.rule.min_offset).all(axis=1)
    cost = np.where(rising, batch.cost[0], np.inf)
    best = sets[int(np.argmin(cost))]
    if not np.isfinite(cost.min()):
        return None
    return _from_intervals("STEP", problem, joint_fit(problem, best, scale), best[0][0])


def step_left(problem: Problem, scale: float) -> Hypothesis:
    """Best recovery without an onset: slow in [0, k), also the mark of a wrong intercept."""
    return _one_sided("STEP_LEFT", problem, scale, lambda k: [((0, int(i)),) for i in k])


def _one_sided(
    name: str,
    problem: Problem,
    scale: float,
    sets: Callable[[IntArray], list[tuple[Interval, ...]]],
) -> Hypothesis:
    def costs(positions: IntArray) -> FloatArray:
        labels = interval_labels(sets(positions), problem.size)
        cost: FloatArray = set_costs(problem, labels, scale).cost[0]
        return cost

    position = _best_position(np.arange(1, problem.size), costs)
    (best,) = sets(np.array([position]))
    return _from_intervals(name, problem, joint_fit(problem, best, scale), position)


def _best_position(positions: IntArray, costs: Callable[[IntArray], FloatArray]) -> int:
    """Position of least cost; on a long axis searched coarsely, then around the best."""
    if positions.size > COARSE_POSITIONS:
        picks = np.unique(np.linspace(0, positions.size - 1, COARSE_POSITIONS).astype(np.int64))
        best = picks[int(np.argmin(costs(positions[picks])))]
        reach = -(-positions.size // COARSE_POSITIONS)
        positions = positions[max(0, best - reach) : best + reach + 1]
    return int(positions[int(np.argmin(costs(positions)))])


def spikes(problem: Problem, scale: float, proposals: Intervals) -> Hypothesis:
    """Best interior intervals, the first whatever it saves, further ones above the penalty.

    Args:
        problem: response and rules.
        scale: residual scale of the costs.
        proposals: candidate intervals for an axis too long for all of them.
    """
    n = problem.size
    candidates = proposals
    if n <= EXHAUSTIVE_UP_TO:
        candidates = all_intervals(n, n - problem.rule.min_outside)
    inner = (candidates.start > 0) & (candidates.end < n)
    candidates = Intervals(candidates.start[inner], candidates.end[inner])
    # The penalty is charged below; here it must not keep the best single interval away.
    first = forward_selection(
        problem._replace(lam=-np.inf, max_intervals=1), candidates, scale
    ).intervals
    more = forward_selection(problem, candidates, scale).intervals
    chosen = refine(problem, more or first, scale, limits=(1, n - 1))
    if not chosen:
        return impossible("SPIKE", problem)
    return _from_intervals("SPIKE", problem, joint_fit(problem, chosen, scale), None)


def impossible(name: str, problem: Problem) -> Hypothesis:
    """A shape that these points do not allow."""
    n, p = problem.X.shape
    return Hypothesis(
        name=name,
        cost=np.inf,
        X=problem.X,
        theta=np.zeros(p),
        intervals=(),
        offsets=np.empty(0),
        residual=np.zeros(n),
        normal=np.ones(n, dtype=bool),
        position=None,
        period=None,
        effect=0.0,
    )


def _from_intervals(name: str, problem: Problem, fit: JointFit, position: int | None) -> Hypothesis:
    return Hypothesis(
        name=name,
        cost=fit.cost + problem.lam * len(fit.intervals),
        X=problem.X,
        theta=fit.theta,
        intervals=fit.intervals,
        offsets=fit.offsets,
        residual=fit.residual,
        normal=fit.normal,
        position=position,
        period=None,
        effect=float(fit.offsets.max(initial=0.0)),
    )


def ramp(problem: Problem, steps: FloatArray, scale: float) -> Hypothesis:
    """Best kink: from step k on, latency grows faster, without recovery.

    The kink lies at least two points inside both ends; on a flat axis also at the first point.
    """
    n, p = problem.X.shape
    positions = np.arange(2, n - 2)
    if p == 1:
        positions = np.concatenate([[0], positions])
    if positions.size == 0 or n < p + 2:
        return impossible("RAMP", problem)

    def designs(k: IntArray) -> FloatArray:
        hinge = np.maximum(0.0, steps[None, :] - steps[k][:, None]) / steps[-1]
        return _with_columns(problem.X, hinge[:, :, None])

    def costs(k: IntArray) -> FloatArray:
        return _plain_costs(designs(k), problem, scale)[0]

    position = _best_position(positions, costs)
    X = designs(np.array([position]))
    return _from_columns("RAMP", problem, X[0], scale)._replace(position=position)


def sawtooth(problem: Problem, positions: FloatArray, scale: float, period: float) -> Hypothesis:
    """A known period: columns for the count of full periods and for the place within one.

    Args:
        problem: response and rules.
        positions: ascending axis on which the period counts, shape (n,).
        scale: residual scale of the costs.
        period: length of a period, > 0.
    """
    n, p = problem.X.shape
    spanned = (positions[-1] - positions[0]) / period
    if spanned < PERIODS_RESOLVED or n < p + 3:
        return impossible("SAWTOOTH", problem)
    count, place = np.divmod(positions, period)
    columns = np.stack([count * period, place], axis=1) / positions[-1]
    X = _with_columns(problem.X, columns[None])[0]
    found = _from_columns("SAWTOOTH", problem, X, scale)
    smooth = joint_fit(problem, (), scale).residual
    return found._replace(period=period, effect=float(np.ptp(found.residual - smooth)))


def is_resolved(positions: FloatArray, period: float) -> bool:
    """Whether the range holds 3 periods and, on average, 3 points in each."""
    periods = (positions[-1] - positions[0]) / period
    return bool(periods >= PERIODS_RESOLVED and positions.size / periods >= PERIODS_RESOLVED)


def _with_columns(X: FloatArray, columns: FloatArray) -> FloatArray:
    """Stack a common basis (n, p) with extra columns (N, n, q) to (N, n, p + q)."""
    shared = np.broadcast_to(X, (columns.shape[0], *X.shape))
    return np.concatenate([shared, columns], axis=2)


def _plain_costs(X: FloatArray, problem: Problem, scale: float) -> tuple[FloatArray, FloatArray]:
    """Costs (N,) and coefficients (N, p) of designs without intervals."""
    ratio = X / np.exp(problem.y)[:, None]
    labels = np.zeros((1, problem.size), dtype=np.int8)
    scales = np.full(X.shape[0], scale)
    fit = batched_cost(ratio, labels, scales, CostRule(0.0, X.shape[2] + 1))
    return fit.cost[:, 0], fit.theta[:, 0]


def _from_columns(name: str, problem: Problem, X: FloatArray, scale: float) -> Hypothesis:
    cost, theta = _plain_costs(X[None], problem, scale)
    fitted = X @ theta[0]
    base = X[:, : problem.X.shape[1]] @ theta[0, : problem.X.shape[1]]
    with_element = np.log(np.maximum(fitted, np.finfo(float).tiny))
    without = np.log(np.maximum(base, np.finfo(float).tiny))
    return Hypothesis(
        name=name,
        cost=float(cost[0]) + problem.lam,
        X=X,
        theta=theta[0],
        intervals=(),
        offsets=np.empty(0),
        residual=problem.y - with_element,
        normal=np.ones(problem.size, dtype=bool),
        position=None,
        period=None,
        effect=float(np.max(with_element - without)),
    )
