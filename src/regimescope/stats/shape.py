"""Which shape a latency curve has: competing fits at one scale (method section 9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from regimescope.stats.arrays import FloatArray
from regimescope.stats.batched_cost import huber_weight
from regimescope.stats.curve import (
    Curve,
    effective_degree,
    is_admissible,
    residual_scale,
    theta_covariance,
)
from regimescope.stats.epidemic import (
    FEWEST_FOR_VERDICT,
    FEWEST_NORMAL,
    R_MIN,
    SCALE_FLOOR,
    SCALE_PASSES,
    SCALE_SETTLED,
    SCALE_START,
    EpidemicFit,
    EpidemicOptions,
    Sweep,
    candidate_intervals,
    checked_sweep,
    detect,
    sweep_problem,
)
from regimescope.stats.hypotheses import (
    PERIODS_RESOLVED,
    Hypothesis,
    clean,
    is_resolved,
    ramp,
    sawtooth,
    spikes,
    step,
    step_left,
)
from regimescope.stats.plain_reading import JUMP_SHARE, read_plainly
from regimescope.stats.stretches import ShapedInterval, label_stretches

MARGIN = 3.0  # cost difference of a likelihood ratio of 20 between two shapes
LEAST_EFFECT = 1.1  # slowdown from which an element is a shape at all; r_min decides if it counts
DECREASING_TAU = -0.8  # rank correlation with the axis at which a curve falls throughout
FLAT_RISE = 0.02  # log rise over the range below which the axis seems not to matter
NOISY_SCALES = 2.0  # residual scales within r_min below which single points hide a slowdown


@dataclass(frozen=True)
class ShapeOptions:
    """Settings of the classification.

    Attributes:
        detector: settings of the detector; ``r_min`` is the least slowdown that counts.
        margin: cost by which the winner must beat every other class.
        periods: known structural periods, in steps.
        phase: added to a step before its place in a period is taken, such as prompt tokens.
        extended: the sweep was extended and a step persisted, so it is not right-censored.
    """

    detector: EpidemicOptions = field(default_factory=EpidemicOptions)
    margin: float = MARGIN
    periods: tuple[float, ...] = ()
    phase: float = 0.0
    extended: bool = False


@dataclass(frozen=True, eq=False)
class ShapeResult:
    """The class of a sweep with the fits behind it; indices in ascending order of steps.

    Attributes:
        shape: CLEAN, STEP, RAMP, SPIKE, SAWTOOTH or INCONCLUSIVE.
        leading: name of the cheapest fit, also when the verdict is INCONCLUSIVE; STEP_LEFT is a
            step seen only as a recovery. Empty when nothing was fitted.
        runner_up: name of the next class, other than CLEAN; empty without any.
        margin: cost by which the leading fit beats it; 0 when nothing was fitted, infinite when
            the points allow no other.
        costs: penalized cost by name; shapes that the points do not allow are absent.
        intervals: slow stretches of the leading fit, then others that the detector found.
        log_effect: log size of the leading element, 0 for CLEAN.
        period: of a SAWTOOTH, in steps; None otherwise.
        baseline: curve of the leading fit without its element; None when nothing was fitted.
        fit: result of the detector.
        codes: reason codes that limit or annotate the class.
    """

    shape: str
    leading: str
    runner_up: str
    margin: float
    costs: Mapping[str, float]
    intervals: tuple[ShapedInterval, ...]
    log_effect: float
    period: float | None
    baseline: Curve | None
    fit: EpidemicFit
    codes: tuple[str, ...]


class _Contest(NamedTuple):
    """All hypotheses at the last scale, cheapest first."""

    ranking: list[Hypothesis]
    scale: float
    degree: int

    @property
    def leader(self) -> Hypothesis:
        return self.ranking[0]

    @property
    def rivals(self) -> list[Hypothesis]:
        """Other possible shapes, cheapest first, without CLEAN.

        The penalty alone decides against the plain curve; asking for the margin as well would
        drop what the screening is calibrated to let pass.
        """
        others = self.ranking[1:]
        return [h for h in others if h.name != "CLEAN" and np.isfinite(h.cost)]


def classify(
    steps: ArrayLike,
    log_latency: ArrayLike,
    *,
    repeats: ArrayLike,
    sigma: float,
    degree: int,
    options: ShapeOptions | None = None,
) -> ShapeResult:
    """Name the shape of a sweep, or say that it cannot be told.

    The class with the lowest penalized cost wins if it beats every other by the margin. With 3
    to 5 steps, or fewer than 4 outside the slow stretch, only a plain reading is given.

    Args:
        steps: distinct axis values >= 0, shape (n,), any order.
        log_latency: log seconds, median of the repeats of each step, block effects removed,
            shape (n,).
        repeats: number of repeats behind each median, shape (n,).
        sigma: scale of one repeat in log units; NaN when unknown.
        degree: degree of the expected curve; 0 for an axis expected flat.
        options: settings; None for the defaults.

    Raises:
        ValueError: malformed input.
    """
    settings = options or ShapeOptions()
    # The floor keeps its proportion to the margin, or no shape of a finer margin could ever win.
    fineness = min(1.0, np.log(settings.detector.r_min) / np.log(R_MIN))
    sweep = checked_sweep(steps, log_latency, repeats, sigma)
    sweep = sweep._replace(least_scale=SCALE_FLOOR * float(fineness))
    fit = detect(
        steps, log_latency, repeats=repeats, sigma=sigma, degree=degree, options=settings.detector
    )
    if sweep.steps.size < FEWEST_FOR_VERDICT:
        return _small(sweep, fit, degree, settings)
    if degree > 0 and _falls_throughout(sweep):
        return _without_contest(fit, "INCONCLUSIVE", ("not_increasing",))
    contest = _hold(sweep, degree if fit.curve is None else fit.curve.degree, settings)
    supported = max(1, effective_degree(contest.degree, int(contest.leader.normal.sum())))
    if contest.degree > supported:
        contest = _hold(sweep, supported, settings)
    return _judged(sweep, fit, contest, degree, settings)


def _small(sweep: Sweep, fit: EpidemicFit, degree: int, settings: ShapeOptions) -> ShapeResult:
    reading = read_plainly(
        sweep.steps, sweep.log_latency, degree=degree, r_min=settings.detector.r_min
    )
    result = _without_contest(fit, reading.shape, ("too_few_budgets", *reading.codes))
    if reading.onset is None:
        return result
    n = sweep.steps.size
    codes = ("right_censored",) if reading.shape == "STEP" else ()
    part = ShapedInterval(reading.onset, n, reading.shape, reading.log_effect, codes)
    p = reading.theta.size
    unknown = np.full((p, p), np.nan)  # no degrees of freedom are left
    return replace(
        result,
        intervals=(part,),
        log_effect=reading.log_effect,
        baseline=Curve(reading.theta, float(sweep.steps[-1]), unknown),
        codes=result.codes + codes,
    )


def _without_contest(fit: EpidemicFit, shape: str, codes: tuple[str, ...]) -> ShapeResult:
    return ShapeResult(
        shape=shape,
        leading="",
        runner_up="",
        margin=0.0,
        costs={},
        intervals=(),
        log_effect=0.0,
        period=None,
        baseline=fit.curve,
        fit=fit,
        codes=_merged(codes, tuple(c for c in fit.codes if c != "curve_inadmissible")),
    )


def _merged(*parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(code for part in parts for code in part))


def _falls_throughout(sweep: Sweep) -> bool:
    """Whether latency falls along an axis on which it must rise, by more than noise."""
    y = sweep.log_latency
    if y[0] - y[-1] < np.log(LEAST_EFFECT) or np.ptp(y) == 0:
        return False
    return bool(stats.kendalltau(sweep.steps, y).statistic <= DECREASING_TAU)


def _hold(sweep: Sweep, degree: int, settings: ShapeOptions) -> _Contest:
    """Fit all shapes, at the residual scale of the winner."""
    scale = max(sweep.scale_floor, SCALE_START * sweep.least_scale / SCALE_FLOOR)
    for _ in range(SCALE_PASSES):
        used = scale
        ranking = _ranking(sweep, degree, settings, used)
        leader = ranking[0]
        scale = residual_scale(
            leader.residual[leader.normal], leader.X.shape[1] - 1, floor=sweep.scale_floor
        )
        if abs(np.log(scale / used)) < SCALE_SETTLED:
            break
    return _Contest(ranking, used, degree)


def _ranking(sweep: Sweep, degree: int, settings: ShapeOptions, scale: float) -> list[Hypothesis]:
    least = min(LEAST_EFFECT, settings.detector.r_min)
    detector = replace(settings.detector, r_min=least)
    problem = sweep_problem(sweep, degree, detector)
    smooth = clean(problem, scale)
    kink = ramp(problem, sweep.steps, scale)
    shapes = [
        smooth,
        step(problem, scale),
        step_left(problem, scale),
        kink,
        spikes(problem, scale, candidate_intervals(sweep, problem, scale)),
    ]
    positions = sweep.steps + settings.phase
    periodic = [sawtooth(problem, positions, scale, p) for p in settings.periods]
    if periodic:
        best = min(periodic, key=lambda h: h.cost)
        # A fixed period is no evidence by itself, hence the margin against the plain curve too.
        # On a flat axis its two columns add up to a slope, so that a ramp must be beaten as well.
        plain = [smooth.cost] if degree else [smooth.cost, kink.cost]
        if best.cost + settings.margin < min(plain):
            shapes.append(best)
    return sorted(shapes, key=lambda h: h.cost)


def _judged(
    sweep: Sweep, fit: EpidemicFit, contest: _Contest, degree: int, settings: ShapeOptions
) -> ShapeResult:
    leader, rivals = contest.leader, contest.rivals
    shape, codes = _class_of(contest, sweep, settings)
    costs = {h.name: h.cost for h in contest.ranking if np.isfinite(h.cost)}
    if effective_degree(degree, int(leader.normal.sum())) < degree:
        codes = (*codes, "reduced_degree")
    if 2 * contest.scale > np.log(settings.detector.r_min) and shape in {"CLEAN", "INCONCLUSIVE"}:
        codes = (*codes, "noisy")
    if shape == "CLEAN" and _is_flat(sweep, leader, degree):
        codes = (*codes, "flat_curve")
    inherited = tuple(c for c in fit.codes if c in {"zero_spread", "curve_failed"})
    return ShapeResult(
        shape=shape,
        leading=leader.name,
        runner_up=rivals[0].name if rivals else "",
        margin=float(rivals[0].cost - leader.cost) if rivals else float("inf"),
        costs=costs,
        intervals=label_stretches(
            leader, fit, r_min=settings.detector.r_min, extended=settings.extended
        ),
        log_effect=leader.effect,
        period=leader.period,
        baseline=_baseline(sweep, contest),
        fit=fit,
        codes=_merged(codes, inherited),
    )


def _class_of(
    contest: _Contest, sweep: Sweep, settings: ShapeOptions
) -> tuple[str, tuple[str, ...]]:
    """Class of the leading fit with the codes that limit it.

    The plain curve needs no margin: it is the class when nothing beats it. Nor do rivals matter
    that would be clean as well, because their element is too small to count.
    """
    leader = contest.leader
    least = np.log(settings.detector.r_min)
    near = [h for h in contest.rivals if h.cost < leader.cost + settings.margin]
    codes: tuple[str, ...] = ()
    if not is_admissible(leader.residual):
        codes = ("curve_inadmissible",)
    if leader.name == "CLEAN":
        return ("INCONCLUSIVE" if codes else "CLEAN"), codes
    if leader.name != "SAWTOOTH" and all(h.effect < least for h in (leader, *near)):
        return ("INCONCLUSIVE" if codes else "CLEAN"), ("below_margin", *codes)
    if codes and leader.name != "SAWTOOTH":
        # What is slow against a curve that is itself too slow is no claim (method, section 2).
        teeth = ("period_unresolved",) if _recurs(leader, sweep, settings) else ()
        return "INCONCLUSIVE", (*codes, *teeth)
    if near and not (leader.name == "STEP" and _is_jump(leader, near)):
        return "INCONCLUSIVE", ("ambiguous_shape", *codes)
    return _element_class(leader, codes, sweep, settings)


def _is_jump(leader: Hypothesis, near: list[Hypothesis]) -> bool:
    """Whether a step that only ramps come near to rises mostly within one gap of the grid.

    A ramp is steady growth; the share that makes a jump is that of the plain reading.
    """
    k = leader.position
    if k is None or any(h.name != "RAMP" for h in near):
        return False
    excess = leader.residual
    return bool(excess[k] - excess[k - 1] >= JUMP_SHARE * (excess[-1] - excess[k - 1]))


def _recurs(leader: Hypothesis, sweep: Sweep, settings: ShapeOptions) -> bool:
    """Whether two or more slow stretches lie a known period apart, on a grid that resolves it."""
    if leader.name != "SPIKE" or len(leader.intervals) < 2:
        return False
    starts = sweep.steps[[start for start, _ in leader.intervals]]
    gap = float(np.median(np.diff(sweep.steps)))
    return any(
        PERIODS_RESOLVED * gap <= p and not ((starts - starts[0]) % p).any()
        for p in settings.periods
    )


def _element_class(
    leader: Hypothesis, codes: tuple[str, ...], sweep: Sweep, settings: ShapeOptions
) -> tuple[str, tuple[str, ...]]:
    """Class of a fit with an element that won by the margin."""
    if leader.name == "SAWTOOTH":
        positions = sweep.steps + settings.phase
        resolved = leader.period is not None and is_resolved(positions, leader.period)
        return "SAWTOOTH", codes if resolved else (*codes, "period_unresolved")
    few = int(leader.normal.sum()) < FEWEST_NORMAL
    if few:
        codes = (*codes, "too_few_normal_budgets")
    if leader.name == "STEP":
        return "STEP", codes if settings.extended else ("right_censored", *codes)
    if leader.name == "STEP_LEFT":
        return ("INCONCLUSIVE" if few else "STEP"), ("left_censored", *codes)
    return ("INCONCLUSIVE" if few else leader.name), codes


def _is_flat(sweep: Sweep, leader: Hypothesis, degree: int) -> bool:
    fitted = sweep.log_latency - leader.residual
    return degree > 0 and float(fitted[-1] - fitted[0]) < FLAT_RISE


def _baseline(sweep: Sweep, contest: _Contest) -> Curve:
    """Curve of the leading fit without its extra columns; of the plain fit for a SAWTOOTH."""
    source = contest.leader
    if source.name == "SAWTOOTH":
        source = next(h for h in contest.ranking if h.name == "CLEAN")
    p = contest.degree + 1
    unit = float(np.exp(np.median(sweep.log_latency)))
    weight = huber_weight(source.residual[source.normal] / contest.scale)
    covariance = theta_covariance(source.X[source.normal], source.theta, weight, contest.scale)
    theta: FloatArray = source.theta[:p] * unit
    return Curve(theta, float(sweep.steps[-1]), covariance[:p, :p] * unit**2)
