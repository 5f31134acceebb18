"""What one curve looks like: intervals, slowdown, certificate, verdict. Layer: ``analysis``.

Source: method, sections 2 to 4, 7 and 15. The same reading serves every axis: latency against
budget as well as step time against context length.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from regimescope.analysis.sweep import FloatArray, IntArray
from regimescope.reasons import Reason
from regimescope.results import (
    Baseline,
    Certificate,
    Estimate,
    Grade,
    Point,
    Regime,
    Verdict,
)
from regimescope.stats.certificate import certificate as monotonicity
from regimescope.stats.curve import log_standard_error, predict_log
from regimescope.stats.epidemic import (
    FEWEST_FOR_VERDICT,
    FEWEST_NORMAL,
    R_MIN,
    EpidemicFit,
    detect,
)
from regimescope.stats.estimate import RepeatSummary, slowdown_interval

# Below this the certificate is within what the minimum over noisy points produces by itself
# (method, section 3).
LEAST_CERTIFICATE = 1.1
# The normal distribution's ratio of standard deviation to median absolute deviation.
MAD_TO_SD = 1.4826


class Levels(NamedTuple):
    """One level per value of the axis, what trials have in common removed.

    Attributes:
        values: Distinct values of the axis, ascending, shape (n,).
        summary: Medians, repeats and pooled scale of log seconds; its steps are the abscissa of
            the expected curve.
        latency_s: Median, least and largest seconds as measured, shape (n, 3).
        phase: What the latencies time.
    """

    values: IntArray
    summary: RepeatSummary
    latency_s: FloatArray
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


def read(levels: Levels, *, degree: int) -> Reading:
    """Fit a curve with its slow intervals and say what it looks like.

    Args:
        levels: At least two values.
        degree: Largest degree of the expected curve in the steps of ``levels.summary``.
    """
    summary = levels.summary
    fit = detect(
        summary.steps,
        summary.median,
        repeats=summary.repeats,
        sigma=summary.sigma,
        degree=degree,
    )
    regimes = tuple(_regime(levels, fit, k) for k in range(len(fit.intervals)))
    verdict, why = _verdict(levels, fit, regimes)
    reasons = [Reason(code) for code in fit.codes]
    reasons += [reason for regime in regimes for reason in regime.reasons]
    return Reading(
        verdict=verdict,
        regimes=regimes,
        reasons=(*reasons, *why),
        certificate=_certificate(levels),
        baseline=_baseline(levels, fit),
    )


def _verdict(
    levels: Levels, fit: EpidemicFit, regimes: tuple[Regime, ...]
) -> tuple[Verdict, tuple[Reason, ...]]:
    """Return the class and the reasons for it that neither fit nor intervals name."""
    n = levels.values.size
    if n < 3:
        return Verdict.INCONCLUSIVE, (Reason.TOO_FEW_BUDGETS,)
    if np.ptp(levels.summary.median) == 0:
        return Verdict.CLEAN, (Reason.FLAT_CURVE,)
    if fit.curve is None:
        return Verdict.INCONCLUSIVE, (Reason.CURVE_FAILED,)
    if (np.diff(levels.summary.median) < 0).all():
        return Verdict.INCONCLUSIVE, (Reason.NOT_INCREASING,)
    if n < FEWEST_FOR_VERDICT or (regimes and fit.normal.sum() < FEWEST_NORMAL):
        return _plain_verdict(fit, regimes), ()
    if regimes:
        spikes = any(regime.verdict is Verdict.SPIKE for regime in regimes)
        return (Verdict.SPIKE if spikes else Verdict.STEP), ()
    if "curve_inadmissible" in fit.codes:
        return Verdict.INCONCLUSIVE, ()
    if fit.scale > math.log(R_MIN) / 2:
        return Verdict.INCONCLUSIVE, (Reason.NOISY,)
    return Verdict.CLEAN, (Reason.NO_ABSOLUTE_REFERENCE,)


def _plain_verdict(fit: EpidemicFit, regimes: tuple[Regime, ...]) -> Verdict:
    """Say what three to five values show by themselves; no detector has a say (section 15)."""
    admissible = "curve_inadmissible" not in fit.codes
    if admissible and not regimes and (np.abs(fit.residual) <= math.log(R_MIN)).all():
        return Verdict.CLEAN
    if len(regimes) == 1 and regimes[0].verdict is Verdict.STEP:
        return Verdict.STEP
    return Verdict.INCONCLUSIVE


def _regime(levels: Levels, fit: EpidemicFit, k: int) -> Regime:
    """Describe one interval of a fit."""
    start, end = fit.intervals[k]
    n = levels.values.size
    reasons = []
    if start == 0:
        reasons.append(Reason.LEFT_CENSORED)
    if end == n:
        reasons.append(Reason.RIGHT_CENSORED)
    latency_s = np.exp(levels.summary.median)
    excess_s = latency_s - np.exp(levels.summary.median - fit.residual)
    slowdown, peak = _slowdown(levels, fit, start, end)
    return Regime(
        verdict=Verdict.STEP if reasons else Verdict.SPIKE,
        grade=Grade.C,
        onset=_edge(levels.values, fit.edges[k].onset) if start > 0 else None,
        recovery=_edge(levels.values, fit.edges[k].recovery) if end < n else None,
        slowdown=slowdown,
        peak=peak,
        ratio_to_reference=float(latency_s[start] / latency_s[start - 1]) if start > 0 else None,
        lost_s=float(excess_s[start:end].sum()),
        reasons=tuple(reasons),
    )


def _edge(values: IntArray, pair: tuple[int, int]) -> tuple[int, int]:
    """Return an edge as axis values; one that may lie outside is cut at the range measured."""
    low, high = max(pair[0], 0), min(pair[1], values.size - 1)
    return int(values[low]), int(values[high])


def _slowdown(levels: Levels, fit: EpidemicFit, start: int, end: int) -> tuple[Estimate, Estimate]:
    """Return slowdown and peak of an interval, from the data that found it.

    The interval is not corrected for having been looked for; confirmation data would be needed.
    """
    normal = fit.residual[fit.normal]
    sigma = levels.summary.sigma
    if math.isnan(sigma):
        sigma = MAD_TO_SD * float(np.median(np.abs(normal - np.median(normal))))
    error = np.zeros(end - start)
    if fit.curve is not None:
        error = np.nan_to_num(log_standard_error(fit.curve, levels.summary.steps[start:end]))
    found = slowdown_interval(
        fit.residual[start:end],
        error,
        sigma=sigma,
        controls=max(int(levels.summary.repeats[fit.normal].sum()), 1),
    )
    trials = int(levels.summary.repeats[start:end].sum())
    mean, most = found.slowdown, found.peak
    return (
        Estimate(value=mean.value, low=mean.low, high=mean.high, n=trials),
        Estimate(value=most.value, low=most.low, high=most.high, n=trials),
    )


def _certificate(levels: Levels) -> Certificate | None:
    """Return the largest inversion, unless it is within what noise does by itself."""
    found = monotonicity(levels.summary.steps, levels.summary.median)
    if found.value is None or found.peak_index is None or found.value <= LEAST_CERTIFICATE:
        return None
    return Certificate(
        value=float(found.value),
        at=int(levels.values[found.peak_index]),
        over=int(levels.values[found.witness[found.peak_index]]),
    )


def _baseline(levels: Levels, fit: EpidemicFit) -> Baseline:
    """Return the expected curve with what was measured beside it."""
    n = levels.values.size
    expected_s: list[float | None] = [None] * n
    slowdown: list[float | None] = [None] * n
    if fit.curve is not None:
        log_expected = predict_log(fit.curve, levels.summary.steps)
        expected_s = np.exp(log_expected).tolist()
        slowdown = np.exp(levels.summary.median - log_expected).tolist()
    points = tuple(
        Point(
            x=int(levels.values[k]),
            latency_s=float(levels.latency_s[k, 0]),
            low_s=float(levels.latency_s[k, 1]),
            high_s=float(levels.latency_s[k, 2]),
            n=int(levels.summary.repeats[k]),
            expected_s=expected_s[k],
            slowdown=slowdown[k],
        )
        for k in range(n)
    )
    return Baseline(
        degree=None if fit.curve is None else fit.curve.degree,
        coefficients=() if fit.curve is None else tuple(fit.curve.theta.tolist()),
        spread=float(fit.scale),
        phase=levels.phase,
        points=points,
    )
