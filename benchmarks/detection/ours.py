"""The package's own way from a screen to confirmed regimes."""

from __future__ import annotations

from time import process_time
from typing import NamedTuple

from benchmarks.detection.cells import Case
from benchmarks.detection.confirmation import Outcome, confirmed
from benchmarks.detection.scoring import (
    CONFIRMED,
    OURS,
    RAW,
    SHAPED,
    Score,
    score_confirmed,
    score_screen,
)
from benchmarks.detection.segments import Interval

from regimescope.stats.curve import CurveFit, fit_curve
from regimescope.stats.epidemic import EpidemicFit, detect
from regimescope.stats.shape import ShapeResult, classify


class Row(NamedTuple):
    """Score of one method on one input."""

    method: str
    input: str
    score: Score


class Ours(NamedTuple):
    """What the package makes of a case.

    Attributes:
        rows: scores of the detector alone, with its shape gate, and with confirmation.
        candidates: the intervals that went into confirmation.
        outcome: what it left.
        cpu_s: processor time of the confirmation.
    """

    rows: tuple[Row, ...]
    candidates: list[Interval]
    outcome: Outcome
    cpu_s: float


def evaluate_ours(case: Case) -> Ours:
    """Score the package's detector alone, with its shape gate, and with confirmation."""
    started = process_time()
    fit = joint_fit(case)
    intervals = interior(fit.intervals, case.steps.size)
    detected_cpu_s = process_time() - started
    shaped: list[Interval] = []
    candidates: list[Interval] = []
    if intervals:
        result = shape(case)
        if result.shape == "SPIKE":
            found = tuple((p.start, p.end) for p in result.intervals if p.shape == "SPIKE")
            shaped = interior(found, case.steps.size)
        # The gate: a SPIKE that loses to a STEP or a RAMP is not worth confirming.
        candidates = intervals if result.leading == "SPIKE" else []
    shaped_cpu_s = process_time() - started
    outcome = confirmed(case, candidates, fit.curve)
    total_cpu_s = process_time() - started
    rows = (
        Row(OURS, RAW, score_screen(case, intervals, detected_cpu_s)),
        Row(OURS, SHAPED, score_screen(case, shaped, shaped_cpu_s)),
        Row(OURS, CONFIRMED, score_confirmed(case, outcome, total_cpu_s)),
    )
    return Ours(rows, candidates, outcome, total_cpu_s - shaped_cpu_s)


def joint_fit(case: Case) -> EpidemicFit:
    """Run the package's detector."""
    return detect(
        case.steps, case.log_s, repeats=case.repeats, sigma=case.sigma, degree=case.degree
    )


def shape(case: Case) -> ShapeResult:
    """Classify the screen."""
    return classify(
        case.steps, case.log_s, repeats=case.repeats, sigma=case.sigma, degree=case.degree
    )


def curve_alone(case: Case) -> CurveFit:
    """Fit the package's curve alone."""
    return fit_curve(case.steps, case.log_s, degree=case.degree, sigma=case.sigma)


def interior(intervals: tuple[Interval, ...], n: int) -> list[Interval]:
    """Intervals that leave a point on both sides, as every method is asked for."""
    return [(start, end) for start, end in intervals if start > 0 and end < n]
