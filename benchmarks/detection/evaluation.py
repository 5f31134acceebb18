"""All methods on one case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import process_time

import numpy as np
from benchmarks.detection.cells import Case
from benchmarks.detection.confirmation import Outcome, confirmed
from benchmarks.detection.methods import Detector, Series
from benchmarks.detection.ours import Ours, Row, curve_alone, evaluate_ours
from benchmarks.detection.scoring import (
    CONFIRMED,
    RAW,
    RESIDUAL,
    score_confirmed,
    score_screen,
)
from benchmarks.detection.segments import Interval

from regimescope.stats.curve import Curve, fit_curve

Clock = Callable[[], float]

FEWEST_NORMAL = 4  # points outside the intervals, without which there is no curve


def evaluate_baselines(
    case: Case, detectors: dict[str, Detector], ours: Ours, clock: Clock
) -> Iterator[Row]:
    """Score every baseline on raw medians, on residuals, and on these with confirmation."""
    started = clock()
    alone = curve_alone(case)
    curve_cpu_s = clock() - started
    if alone.curve is None:
        return
    inputs = ((Series(case.steps, case.log_s, RAW), 0.0),
              (Series(case.steps, alone.residual, RESIDUAL), curve_cpu_s))  # fmt: skip
    judge = _Judge(case, ours, clock)
    for name, detector in detectors.items():
        for series, before in inputs:
            started = clock()
            intervals = detector(series)
            cpu_s = before + clock() - started
            yield Row(name, series.kind, score_screen(case, intervals, cpu_s))
        outcome, judged_cpu_s = judge(intervals)
        yield Row(name, CONFIRMED, score_confirmed(case, outcome, cpu_s + judged_cpu_s))


class _Judge:
    """Confirmation that remembers what it was asked: many methods suspect the same intervals."""

    def __init__(self, case: Case, ours: Ours, clock: Clock) -> None:
        self._case = case
        self._clock = clock
        self._known = {tuple(ours.candidates): (ours.outcome, ours.cpu_s)}

    def __call__(self, intervals: list[Interval]) -> tuple[Outcome, float]:
        key = tuple(intervals)
        if key not in self._known:
            started = self._clock()
            outcome = confirmed(self._case, intervals, _curve_outside(self._case, intervals))
            self._known[key] = (outcome, self._clock() - started)
        return self._known[key]


def _curve_outside(case: Case, intervals: list[Interval]) -> Curve | None:
    """Fit the curve on the points that a method left outside its intervals."""
    normal = np.ones(case.steps.size, dtype=bool)
    for start, end in intervals:
        normal[start:end] = False
    if not intervals or normal.sum() < FEWEST_NORMAL:
        return None
    return fit_curve(
        case.steps[normal], case.log_s[normal], degree=case.degree, sigma=case.sigma
    ).curve


def evaluate(
    case: Case, detectors: dict[str, Detector] | None, clock: Clock = process_time
) -> list[Row]:
    """Score all methods on one case; without detectors only the package's own.

    Args:
        case: the case.
        detectors: baselines by name, or None.
        clock: processor seconds spent so far, a child process included.
    """
    ours = evaluate_ours(case)
    rows = list(ours.rows)
    if detectors is not None:
        rows.extend(evaluate_baselines(case, detectors, ours, clock))
    return rows
