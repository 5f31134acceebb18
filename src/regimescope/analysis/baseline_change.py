"""How the normal speed changed between two runs, regimes left out. Layer: ``analysis``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import numpy as np

from regimescope.analysis.sweep import FloatArray, primary_series, select, to_sweep
from regimescope.records import Run
from regimescope.results import Conclusion, Estimate, Point, Regime, Result
from regimescope.stats.estimate import ratio_of_groups

Speed = Literal["same", "slower", "faster", "cannot tell"]

# Processes of one machine differ by a few percent (method, section 1.4), so that less is no news.
MARGIN = 1.05
LEAST_PROCESSES = 2


class BaselineChange(Result, frozen=True, kw_only=True):
    """Normal latency after over normal latency before.

    Attributes:
        verdict: ``same`` if the whole interval lies within the margin, ``slower`` or ``faster`` if
            it lies beyond one and the estimate beyond the margin, else ``cannot tell``.
        ratio: The estimate; its interval is that of process runs, its ``n`` their number in both.
        margin: Largest factor that counts as no change.
        why: Why nothing can be told.
    """

    verdict: Speed
    margin: float = MARGIN
    ratio: Estimate | None = None
    why: str = ""


def baseline_change(
    before: Run,
    before_conclusion: Conclusion,
    after: Run,
    after_conclusion: Conclusion,
    *,
    margin: float = MARGIN,
) -> BaselineChange:
    """Compare the levels of the processes of two runs where both are normal.

    Each process of either run is read against the expected curve of the first one, which may have
    been measured at other values: its level is the median log ratio over its trials. Levels are
    compared by a t interval without equal variances (Welch).

    Args:
        before: The reference.
        before_conclusion: Its verdict.
        after: The run that is compared.
        after_conclusion: Its verdict.
        margin: Largest factor that counts as no change, above 1.
    """
    curve = _curve(before_conclusion)
    if len(curve) < 2:
        return BaselineChange(verdict="cannot tell", margin=margin, why="the first has no curve")
    slow = (*before_conclusion.regimes, *after_conclusion.regimes)
    levels = [_levels(run, curve, slow) for run in (before, after)]
    if not all(part.size for part in levels):
        why = "they share no normal values"
        return BaselineChange(verdict="cannot tell", margin=margin, why=why)
    n = sum(part.size for part in levels)
    if min(part.size for part in levels) < LEAST_PROCESSES:
        value = float(np.exp(np.mean(levels[1]) - np.mean(levels[0])))
        why = f"an interval needs {LEAST_PROCESSES} process runs of each"
        ratio = Estimate(value=value, n=n)
        return BaselineChange(verdict="cannot tell", margin=margin, ratio=ratio, why=why)
    found = ratio_of_groups(*levels)
    ratio = Estimate(value=found.value, low=found.low, high=found.high, n=n)
    verdict = _speed(found.value, found.low, found.high, margin)
    why = "the interval reaches over the margin" if verdict == "cannot tell" else ""
    return BaselineChange(verdict=verdict, margin=margin, ratio=ratio, why=why)


def _speed(value: float, low: float, high: float, margin: float) -> Speed:
    """Return what an interval of a ratio says."""
    if 1 / margin <= low and high <= margin:
        return "same"
    if low > 1 and value > margin:
        return "slower"
    return "faster" if high < 1 and value < 1 / margin else "cannot tell"


def _curve(conclusion: Conclusion) -> list[Point]:
    """Return the points with an expectation, or all of them where a curve has none."""
    points = conclusion.baseline.points if conclusion.baseline else ()
    expected = [p for p in points if p.expected_s is not None]
    return expected or list(points)


def _levels(run: Run, curve: Sequence[Point], slow: Sequence[Regime]) -> FloatArray:
    """Return the level of each process against a curve, logarithms, shape (processes,).

    Trials beyond the ends of the curve are left out, and those in a slow interval of either run.
    """
    selection = select(primary_series(run))
    if not selection.trials:
        return np.empty(0)
    sweep = to_sweep(selection, run.header.axis)
    x = np.array([p.x for p in curve], dtype=np.float64)
    expected = np.array([p.expected_s or p.latency_s for p in curve])
    log_ratio = np.log(sweep.latency_s) - np.log(np.interp(sweep.x, x, expected))
    of_process: dict[tuple[str, int | None], list[float]] = defaultdict(list)
    for trial, value, found in zip(selection.trials, sweep.x, log_ratio, strict=True):
        if x[0] <= value <= x[-1] and not any(_inside(int(value), r) for r in slow):
            of_process[trial.occasion, trial.process_run].append(float(found))
    return np.array([np.median(found) for found in of_process.values()])


def _inside(value: int, regime: Regime) -> bool:
    """Return whether a value may be slow, edges taken at their widest."""
    return not (
        (regime.onset is not None and value <= regime.onset[0])
        or (regime.recovery is not None and value >= regime.recovery[1])
    )
