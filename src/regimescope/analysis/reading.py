"""What one curve looks like: intervals, slowdown, certificate, verdict. Layer: ``analysis``.

Source: method, sections 2 to 4, 7, 9 and 15. The same reading serves every axis: latency against
budget as well as step time against context length.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from regimescope.analysis.sweep import FloatArray, IntArray
from regimescope.reasons import Reason
from regimescope.results import Baseline, Certificate, Estimate, Grade, Point, Regime, Verdict
from regimescope.stats.arrays import MAD_TO_SD, BoolArray
from regimescope.stats.certificate import certificate as monotonicity
from regimescope.stats.curve import Curve, log_standard_error, predict_log
from regimescope.stats.epidemic import R_MIN, Edges, EpidemicOptions
from regimescope.stats.estimate import RepeatSummary, slowdown_interval
from regimescope.stats.hypotheses import PERIODS_RESOLVED
from regimescope.stats.shape import ShapeOptions, ShapeResult, classify
from regimescope.stats.stretches import ShapedInterval, certified_core

# Below this the certificate is within what the minimum over noisy points produces by itself
# (method, section 3).
LEAST_CERTIFICATE = 1.1
# Known periods of kernels and caches: KV page blocks, tiles, steps of a growing cache (method,
# section 9). They are configuration, not evidence.
STRUCTURAL_PERIODS = (16.0, 32.0, 64.0, 128.0, 256.0)


class Levels(NamedTuple):
    """One level per value of the axis, what trials have in common removed.

    Attributes:
        values: Distinct values of the axis, ascending, shape (n,).
        summary: Medians, repeats and pooled scale of log seconds; its steps are the abscissa of
            the expected curve.
        range_s: Least and largest seconds as measured, shape (n, 2).
        phase: What the latencies time.
    """

    values: IntArray
    summary: RepeatSummary
    range_s: FloatArray
    phase: str


class Reading(NamedTuple):
    """What a curve looks like.

    Attributes:
        verdict: The class.
        regimes: Slow intervals, ascending.
        reasons: Reason codes, possibly repeated.
        certificate: The curve-free evidence.
        baseline: The expected curve and the points.
    """

    verdict: Verdict
    regimes: tuple[Regime, ...]
    reasons: tuple[Reason, ...]
    certificate: Certificate | None
    baseline: Baseline


def read(
    levels: Levels,
    *,
    degree: int,
    r_min: float = R_MIN,
    phase: float = 0.0,
    extended: bool = False,
) -> Reading:
    """Fit the competing shapes and say which one a curve has.

    Args:
        levels: At least two values.
        degree: Largest degree of the expected curve in the steps of ``levels.summary``.
        r_min: Least slowdown that counts.
        phase: Added to a step to get its place in a structural period, such as prompt tokens.
        extended: Whether the range was extended to see whether a slowdown stays.
    """
    summary = levels.summary
    options = ShapeOptions(
        detector=EpidemicOptions(r_min=r_min),
        periods=_periods(summary.steps),
        phase=phase,
        extended=extended,
    )
    found = classify(
        summary.steps,
        summary.median,
        repeats=summary.repeats,
        sigma=summary.sigma,
        degree=degree,
        options=options,
    )
    fitted = _fitted(levels, found)
    parts, fitted = _certain(levels, found.intervals, fitted, r_min)
    reasons = [Reason(code) for code in found.codes]
    verdict = Verdict(found.shape)
    if verdict is Verdict.CLEAN and Reason.FLAT_CURVE not in reasons:
        reasons.append(Reason.NO_ABSOLUTE_REFERENCE)
    if verdict is Verdict.CLEAN and Reason.NOISY in reasons:
        verdict = Verdict.INCONCLUSIVE  # a clean curve is no claim where r_min would not be seen
    return Reading(
        verdict=verdict,
        regimes=tuple(_regime(levels, fitted, part) for part in parts),
        reasons=tuple(reasons),
        certificate=certificate_of(levels),
        baseline=_baseline(levels, fitted),
    )


def _periods(steps: FloatArray) -> tuple[float, ...]:
    """Return the structural periods that a grid resolves in part: three values in a period."""
    if steps.size < 2:
        return ()
    gap = float(np.median(np.diff(steps)))
    return tuple(p for p in STRUCTURAL_PERIODS if PERIODS_RESOLVED * gap <= p)


class _Fitted(NamedTuple):
    """The winning fit: expected curve, what departs from it, and the detector's edges.

    Attributes:
        curve: Expected latency; absent where none could be fitted.
        excess: Log latency minus log expectation, shape (n,); zero without a curve.
        normal: Values outside every slow interval, shape (n,).
        spread: Scale of the excess at normal values.
        edges: Edges of the intervals that the detector found, by start and end.
    """

    curve: Curve | None
    excess: FloatArray
    normal: BoolArray
    spread: float
    edges: dict[tuple[int, int], Edges]


def _fitted(levels: Levels, found: ShapeResult) -> _Fitted:
    """Return the winning fit of a classification."""
    excess = np.zeros(levels.values.size)
    if found.baseline is not None:
        excess = levels.summary.median - predict_log(found.baseline, levels.summary.steps)
    normal = np.ones(levels.values.size, dtype=bool)
    for part in found.intervals:
        normal[part.start : part.end] = False
    edges = dict(zip(found.fit.intervals, found.fit.edges, strict=True))
    return _Fitted(found.baseline, excess, normal, float(found.fit.scale), edges)


def _certain(
    levels: Levels, parts: tuple[ShapedInterval, ...], fitted: _Fitted, r_min: float
) -> tuple[tuple[ShapedInterval, ...], _Fitted]:
    """Replace spikes that touch by what the certificate says of them (method, section 3).

    Their reference is the chord between the points beside them, as in a confirmation (section 5),
    since the curve does not hold there.
    """
    summary = levels.summary
    violation = monotonicity(summary.steps, summary.median).ratio
    core = certified_core(parts, violation, r_min)
    if not core:
        return parts, fitted
    excess = fitted.excess.copy()
    found = []
    for start, end in core:
        if start == 0 or end == levels.values.size:
            return parts, fitted
        flanks = np.exp(summary.median[[start - 1, end]])
        ends = summary.steps[[start - 1, end]]
        chord = np.interp(summary.steps[start:end], ends, flanks)
        excess[start:end] = summary.median[start:end] - np.log(chord)
        level = float(np.median(excess[start:end]))
        codes = (Reason.REFERENCE_MISMATCH.value,)
        found.append(ShapedInterval(start, end, "SPIKE", level, codes))
    others = [part for part in parts if part.shape != "SPIKE"]
    return (*found, *others), fitted._replace(excess=excess)


def _regime(levels: Levels, fitted: _Fitted, part: ShapedInterval) -> Regime:
    """Describe one slow interval."""
    start, end, n = part.start, part.end, levels.values.size
    # The detector knows which neighboring edges fit about as well; others are known to one gap.
    edges = fitted.edges.get((start, end), Edges((start - 1, start), (end - 1, end)))
    latency_s = np.exp(levels.summary.median)
    lost_s = latency_s - np.exp(levels.summary.median - fitted.excess)
    # A ramp has no level; how far it got is what its last value shows.
    rises = part.shape == "STEP" and start > 0
    slowdown, peak = _slowdown(levels, fitted, n - 1 if part.shape == "RAMP" else start, end)
    return Regime(
        verdict=Verdict(part.shape),
        grade=Grade.C,
        onset=_edge(levels.values, edges.onset) if start > 0 else None,
        # The treads of a staircase end where the next begins; nothing recovers there.
        recovery=_edge(levels.values, edges.recovery) if end < n and not rises else None,
        slowdown=slowdown,
        peak=peak,
        ratio_to_reference=float(latency_s[start] / latency_s[start - 1]) if start > 0 else None,
        lost_s=float(lost_s[start:end].sum()),
        reasons=tuple(Reason(code) for code in part.codes),
    )


def _edge(values: IntArray, pair: tuple[int, int]) -> tuple[int, int]:
    """Return an edge as axis values; one that may lie outside is cut at the range measured."""
    low, high = max(pair[0], 0), min(pair[1], values.size - 1)
    return int(values[low]), int(values[high])


def _slowdown(levels: Levels, fitted: _Fitted, start: int, end: int) -> tuple[Estimate, Estimate]:
    """Return slowdown and peak of an interval, from the data that found it.

    The interval is not corrected for having been looked for; confirmation data would be needed.
    """
    summary = levels.summary
    normal = fitted.excess[fitted.normal]
    sigma = summary.sigma
    if math.isnan(sigma) and normal.size:
        sigma = MAD_TO_SD * float(np.median(np.abs(normal - np.median(normal))))
    error = np.zeros(end - start)
    if fitted.curve is not None:
        error = np.nan_to_num(log_standard_error(fitted.curve, summary.steps[start:end]))
    controls = max(int(summary.repeats[fitted.normal].sum()), 1)
    found = slowdown_interval(fitted.excess[start:end], error, sigma=sigma, controls=controls)
    trials = int(summary.repeats[start:end].sum())
    mean, most = found.slowdown, found.peak
    return (
        Estimate(value=mean.value, low=mean.low, high=mean.high, n=trials),
        Estimate(value=most.value, low=most.low, high=most.high, n=trials),
    )


def certificate_of(levels: Levels) -> Certificate | None:
    """Return the largest inversion, unless it is within what noise does by itself.

    Args:
        levels: Any number of values; those whose latency was projected prove nothing here.
    """
    found = monotonicity(levels.summary.steps, levels.summary.median)
    if found.value is None or found.peak_index is None or found.value <= LEAST_CERTIFICATE:
        return None
    return Certificate(
        value=float(found.value),
        at=int(levels.values[found.peak_index]),
        over=int(levels.values[found.witness[found.peak_index]]),
    )


def shown_baseline(reading: Reading) -> Baseline:
    """Return the baseline as it may be shown: from too few values no curve follows."""
    if Reason.TOO_FEW_BUDGETS not in reading.reasons:
        return reading.baseline
    bare = tuple(replace(p, expected_s=None, slowdown=None) for p in reading.baseline.points)
    return replace(reading.baseline, degree=None, coefficients=(), spread=None, points=bare)


def points_only(levels: Levels) -> Baseline:
    """Return the measured points without a curve, for an axis on which none is expected."""
    n = levels.values.size
    none = _Fitted(None, np.zeros(n), np.ones(n, dtype=bool), 0.0, {})
    return replace(_baseline(levels, none), spread=None)


def _baseline(levels: Levels, fitted: _Fitted) -> Baseline:
    """Return the expected curve with what was measured beside it."""
    n = levels.values.size
    level_s = np.exp(levels.summary.median).tolist()
    slowdown = np.exp(fitted.excess).tolist()
    expected_s = np.exp(levels.summary.median - fitted.excess).tolist()
    known = fitted.curve is not None
    points = tuple(
        Point(
            x=int(levels.values[k]),
            latency_s=level_s[k],
            low_s=float(levels.range_s[k, 0]),
            high_s=float(levels.range_s[k, 1]),
            n=int(levels.summary.repeats[k]),
            expected_s=expected_s[k] if known else None,
            slowdown=slowdown[k] if known else None,
        )
        for k in range(n)
    )
    return Baseline(
        degree=None if fitted.curve is None else fitted.curve.degree,
        coefficients=() if fitted.curve is None else tuple(fitted.curve.theta.tolist()),
        spread=fitted.spread,
        phase=levels.phase,
        points=points,
    )
