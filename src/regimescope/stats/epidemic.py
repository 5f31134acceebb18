"""Detector of slow stretches: curve and intervals fitted jointly (method section 4).

Fitting a baseline first and segmenting its residuals fails for wide regimes, which bend the
baseline. Here each set of intervals gets its own curve and the cheapest set is kept.
Screening only: what it finds is a candidate, to be confirmed on fresh measurements.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from regimescope.stats.arrays import (
    BoolArray,
    FloatArray,
    Series,
    finite_vector_like,
    sorted_series,
)
from regimescope.stats.batched_cost import KAPPA, CostRule, huber_weight
from regimescope.stats.calibration import screening_penalty
from regimescope.stats.curve import (
    Curve,
    basis,
    choose_degree,
    effective_degree,
    fit_curve,
    is_admissible,
    residual_scale,
    theta_covariance,
)
from regimescope.stats.interval_search import (
    Interval,
    JointFit,
    Problem,
    Selection,
    ambiguous_pairs,
    forward_selection,
    joint_fit,
    leave_one_out_gains,
    refine,
    set_problem,
)
from regimescope.stats.proposals import (
    EXHAUSTIVE_UP_TO,
    Intervals,
    all_intervals,
    viterbi_intervals,
)

R_MIN = 1.25  # least slowdown worth a name: below, process and kernel lotteries are common
MAX_INTERVALS = 3  # K; more than three regimes in one sweep have not been reported
SCALE_FLOOR = 0.02  # log units; timers and clocks of real machines do not scatter less
SCALE_START = 0.03  # log units; typical scatter of one budget's median
SCALE_PASSES = 3  # scale and intervals settle in two passes unless they contradict each other
SCALE_SETTLED = 0.1  # a relative change of the scale which moves no decision
ROUNDING = 1e-9  # log units; residuals of equal latencies differ by this much
FEWEST_POINTS = 4  # three parameters of a curve and one point to contradict it
FEWEST_FOR_VERDICT = 6  # below, no residual degrees of freedom are left beside an interval
FEWEST_NORMAL = 4  # points outside intervals, below which the curve follows them exactly


@dataclass(frozen=True)
class EpidemicOptions:
    """Settings of the detector.

    Attributes:
        lam: penalty per interval; None looks it up by size, repeats and degree.
        r_min: least slowdown of an interval, > 1.
        kappa: factor by which slow points may scatter more than normal ones, >= 1.
        max_intervals: most intervals sought, >= 0.
        choose_degree: lower the degree by an information criterion where points allow.
    """

    lam: float | None = None
    r_min: float = R_MIN
    kappa: float = KAPPA
    max_intervals: int = MAX_INTERVALS
    choose_degree: bool = True


class Edges(NamedTuple):
    """What one interval's edges can be on this grid, as index pairs (low, high].

    The edge lies after point ``low`` and not after point ``high``; ``onset.low`` is -1 and
    ``recovery.high`` is n where an edge may lie outside the measured range.
    """

    onset: tuple[int, int]
    recovery: tuple[int, int]


@dataclass(frozen=True, eq=False)
class EpidemicFit:
    """Joint fit of curve and intervals; arrays and indices are in ascending order of steps.

    Attributes:
        steps: axis values, shape (n,).
        intervals: half-open index intervals [start, end), ascending; they may touch.
        offsets: log slowdown of each interval (median residual inside), shape (R,).
        gains: what each interval saves in cost against the fit without it, shape (R,).
        edges: for each interval, where its edges can lie (cost within 3 of the best).
        ambiguous: for each interval, all (start, end) with a cost within 3 of the best.
        curve: expected latency.
        residual: log latency minus log curve, shape (n,).
        scale: residual scale that the costs are in units of.
        scale_settled: False when the scale still moved after the last pass.
        cost: cost of the intervals, without penalty.
        null_cost: cost without intervals, at the same scale.
        best_gain: what the best single interval saves, accepted or not; 0 without any.
        lam: penalty per interval used.
        codes: reason codes, among ``too_few_budgets``, ``too_few_normal_budgets``,
            ``reduced_degree``, ``curve_inadmissible``, ``curve_failed``, ``zero_spread``.
    """

    steps: FloatArray
    intervals: tuple[Interval, ...]
    offsets: FloatArray
    gains: FloatArray
    edges: tuple[Edges, ...]
    ambiguous: tuple[tuple[Interval, ...], ...]
    curve: Curve | None
    residual: FloatArray
    scale: float
    scale_settled: bool
    cost: float
    null_cost: float
    best_gain: float
    lam: float
    codes: tuple[str, ...]

    @property
    def normal(self) -> BoolArray:
        """True for points outside all intervals, shape (n,)."""
        outside = np.ones(self.steps.size, dtype=bool)
        for start, end in self.intervals:
            outside[start:end] = False
        return outside


class Sweep(NamedTuple):
    """A checked series with what the noise of its points is known to be.

    Attributes:
        steps: ascending axis, shape (n,).
        log_latency: median of the repeats of each step, shape (n,).
        repeats: repeats behind each median, shape (n,).
        sigma: scale of one repeat in log units; NaN when unknown.
        least_scale: residual scale below which no scatter is believed, log units.
    """

    steps: FloatArray
    log_latency: FloatArray
    repeats: FloatArray
    sigma: float
    least_scale: float = SCALE_FLOOR

    @property
    def scale_floor(self) -> float:
        """Least residual scale: that of a median of repeats (1.25 sigma / sqrt m), or the least."""
        if not np.isfinite(self.sigma):
            return self.least_scale
        return max(self.least_scale, 1.25 * self.sigma / float(np.sqrt(np.median(self.repeats))))


def checked_sweep(
    steps: ArrayLike, log_latency: ArrayLike, repeats: ArrayLike, sigma: float
) -> Sweep:
    """Check and sort the input of a detector.

    Raises:
        ValueError: malformed series, repeats below 1, or a negative or infinite sigma.
    """
    series: Series = sorted_series(steps, log_latency)
    counts = finite_vector_like(repeats, series.steps.size, "repeats")[series.order]
    if counts.min() < 1:
        raise ValueError("every step needs at least one repeat")
    if sigma < 0 or np.isinf(sigma):
        raise ValueError(f"sigma must be finite and not negative, or NaN; got {sigma}")
    return Sweep(series.steps, series.response, counts, float(sigma))


def detect(
    steps: ArrayLike,
    log_latency: ArrayLike,
    *,
    repeats: ArrayLike,
    sigma: float,
    degree: int,
    options: EpidemicOptions | None = None,
) -> EpidemicFit:
    """Find stretches of an axis which are slower than the curve of the rest.

    Args:
        steps: distinct axis values >= 0, shape (n,), any order.
        log_latency: log seconds, the median of the repeats of each step after removal of block
            effects, shape (n,).
        repeats: number of repeats behind each median, shape (n,).
        sigma: scale of one repeat in log units; NaN when unknown.
        degree: degree of the expected curve: 2 with a KV cache, 3 without, 0 for a flat axis.
        options: settings; None for the defaults.

    Returns:
        The fit. With fewer than 4 steps nothing is sought and ``too_few_budgets`` says so.

    Raises:
        ValueError: malformed input.
    """
    sweep = checked_sweep(steps, log_latency, repeats, sigma)
    settings = options or EpidemicOptions()
    if degree < 0:
        raise ValueError(f"degree must not be negative, got {degree}")
    n = sweep.steps.size
    if n < FEWEST_POINTS:
        return _curve_only(sweep, degree, settings)
    supported = max(effective_degree(degree, n), min(degree, 1))
    search = _search_at(sweep, supported, settings)
    while True:  # the degree falls with each turn, so there are at most three
        lower = _lower_degree(sweep, search.fit, supported, settings)
        if lower == supported:
            break
        supported = lower
        search = _search_at(sweep, supported, settings)
    fit = _result(sweep, search)
    normal = int(fit.normal.sum())
    codes = list(fit.codes)
    if n < FEWEST_FOR_VERDICT:
        codes.append("too_few_budgets")
    if normal < FEWEST_NORMAL:
        codes.append("too_few_normal_budgets")
    if effective_degree(degree, normal) < degree:
        codes.append("reduced_degree")
    return replace(fit, codes=tuple(codes))


class _Search(NamedTuple):
    """What was found with one degree; its ambiguity is worked out for the last degree only."""

    problem: Problem
    fit: JointFit
    chosen: Selection
    next_scale: float


def _lower_degree(sweep: Sweep, fit: JointFit, current: int, settings: EpidemicOptions) -> int:
    """Degree that the points outside the intervals support and, with enough of them, prefer."""
    if current <= 1:
        return current
    normal = fit.normal
    supported = max(1, effective_degree(current, int(normal.sum())))
    if supported < current or not settings.choose_degree:
        return supported
    return choose_degree(sweep.steps, sweep.log_latency, normal, degree=current, scale=fit.scale)


def _curve_only(sweep: Sweep, degree: int, settings: EpidemicOptions) -> EpidemicFit:
    alone = fit_curve(sweep.steps, sweep.log_latency, degree=degree, sigma=sweep.sigma)
    return EpidemicFit(
        steps=sweep.steps,
        intervals=(),
        offsets=np.empty(0),
        gains=np.empty(0),
        edges=(),
        ambiguous=(),
        curve=alone.curve,
        residual=alone.residual,
        scale=max(sweep.scale_floor, SCALE_START),
        scale_settled=False,
        cost=alone.cost,
        null_cost=alone.cost,
        best_gain=0.0,
        lam=settings.lam if settings.lam is not None else float("nan"),
        codes=("too_few_budgets", *alone.codes),
    )


def _search_at(sweep: Sweep, degree: int, settings: EpidemicOptions) -> _Search:
    """Search with a given degree: intervals and residual scale, in turns."""
    problem = sweep_problem(sweep, degree, settings)
    scale = max(sweep.scale_floor, SCALE_START)
    candidates = candidate_intervals(sweep, problem, scale)
    for _ in range(SCALE_PASSES):
        chosen = forward_selection(problem, candidates, scale)
        fit = joint_fit(problem, refine(problem, chosen.intervals, scale), scale)
        scale = residual_scale(fit.residual[fit.normal], degree, floor=sweep.scale_floor)
        if abs(np.log(scale / fit.scale)) < SCALE_SETTLED:
            break
    return _Search(problem, fit, chosen, scale)


def sweep_problem(sweep: Sweep, degree: int, settings: EpidemicOptions) -> Problem:
    """Design, rules and penalty for a sweep at one degree."""
    lam = settings.lam
    if lam is None:
        lam = screening_penalty(sweep.steps.size, sweep.repeats, degree)
    X = basis(sweep.steps, float(sweep.steps[-1]), degree)
    y = sweep.log_latency - np.median(sweep.log_latency)
    rule = CostRule(float(np.log(settings.r_min)), degree + 2, settings.kappa)
    return set_problem(X, y, rule, lam, settings.max_intervals)


def candidate_intervals(sweep: Sweep, problem: Problem, scale: float) -> Intervals:
    """All intervals of a short sweep; on a long one those that slow paths propose."""
    longest = problem.size - problem.rule.min_outside
    if problem.size <= EXHAUSTIVE_UP_TO:
        return all_intervals(problem.size, longest)
    alone = fit_curve(
        sweep.steps, sweep.log_latency, degree=problem.X.shape[1] - 1, sigma=sweep.sigma
    )
    if alone.curve is None:
        return all_intervals(problem.size, 0)
    return viterbi_intervals(alone.residual, scale, problem.lam / 2, kappa=problem.rule.kappa)


def _result(sweep: Sweep, search: _Search) -> EpidemicFit:
    problem, fit, chosen, next_scale = search
    center = float(np.median(sweep.log_latency))
    unit = float(np.exp(center))
    X = problem.X[fit.normal]
    weight = huber_weight(fit.residual[fit.normal] / fit.scale)
    covariance = theta_covariance(X, fit.theta, weight, fit.scale)
    pairs = [ambiguous_pairs(problem, fit, r) for r in range(len(fit.intervals))]
    codes = []
    if not is_admissible(fit.residual):
        codes.append("curve_inadmissible")
    if sweep.sigma == 0 or residual_scale(fit.residual[fit.normal], 0, floor=0.0) < ROUNDING:
        codes.append("zero_spread")
    return EpidemicFit(
        steps=sweep.steps,
        intervals=fit.intervals,
        offsets=fit.offsets,
        gains=leave_one_out_gains(problem, fit),
        edges=tuple(_edges(p) for p in pairs),
        ambiguous=tuple(pairs),
        curve=Curve(fit.theta * unit, float(sweep.steps[-1]), covariance * unit**2),
        residual=fit.residual,
        scale=fit.scale,
        scale_settled=bool(abs(np.log(next_scale / fit.scale)) < SCALE_SETTLED),
        cost=fit.cost,
        null_cost=chosen.null_cost,
        best_gain=chosen.best_gain,
        lam=problem.lam,
        codes=tuple(codes),
    )


def _edges(pairs: tuple[Interval, ...]) -> Edges:
    starts = [start for start, _ in pairs]
    ends = [end for _, end in pairs]
    return Edges((min(starts) - 1, max(starts)), (min(ends) - 1, max(ends)))
