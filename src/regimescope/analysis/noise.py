"""What disturbed a measurement: spread, drift, warm-up, observer. Layer: ``analysis``.

Source: method, sections 1.5 and 8.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from regimescope.analysis.sweep import FloatArray, IntArray, Selection
from regimescope.reasons import Reason
from regimescope.records import Trial
from regimescope.results import Estimate, Noise
from regimescope.stats.drift import (
    DRIFT_ALPHA,
    Drift,
    drift_test,
    median_polish,
    variance_components,
    warm_up_test,
)
from regimescope.stats.estimate import Estimate as Interval
from regimescope.stats.lottery import is_wide, widest_gap
from regimescope.stats.shift import hodges_lehmann

# Processes whose levels differ by more than this are worth a word.
MENTIONED_SPREAD = math.log(1.1)
# Occasions whose levels differ by more than half of that are worth a word: no single process
# explains it, and pooled without an occasion term it would widen every interval.
MENTIONED_SHIFT = math.log(1.05)
# From two processes the one that drifts cannot be told from the one that does not.
LEAST_PROCESSES = 3
# One process on a side is an outlier, not a level.
LEAST_PER_LEVEL = 2
# The stamped and the plain arm agree when the interval of their ratio lies within this.
OBSERVER_MARGIN = 0.05
OBSERVER_LEVEL = 0.90


class Disturbance(NamedTuple):
    """What was found, and what follows for the verdict.

    Attributes:
        noise: The figures.
        reasons: Reason codes.
        drifts: The machine changed its speed over process runs.
        bimodal: Whole processes fall into two levels.
    """

    noise: Noise
    reasons: tuple[Reason, ...]
    drifts: bool
    bimodal: bool


def disturbances(
    selection: Selection,
    residual: FloatArray,
    block_effect: FloatArray,
    first_repeats: Sequence[float] = (),
) -> Disturbance:
    """Estimate what disturbed the trials of a sweep.

    Args:
        selection: The trials by fate.
        residual: Log latency of each trial less the level of its budget, shape (trials,).
        block_effect: What the block of each trial adds to it, shape (trials,).
        first_repeats: Log of first over later repeats of a value in a process; they stand in for
            warm-ups where an import has none.
    """
    trials = selection.trials
    process = np.array([-1 if t.process_run is None else t.process_run for t in trials])
    shift = _occasion_shift(trials, block_effect)
    level = residual - shift
    # With the levels of the budgets removed, the trials of a process are repeats of each other.
    known = bool(trials) and bool((process >= 0).all())
    spread = variance_components(level, np.zeros(len(trials)), process) if known else None
    drift = _drift(trials, residual - block_effect, process) if trials else None
    warm_up = warm_up_test(_warm_up_differences(selection) or list(first_repeats))
    observer = observer_effect(selection.observed)
    noise = Noise(
        within=None if spread is None else _known(spread.within_pooled),
        between=None if spread is None else _known(spread.between_pooled),
        drift=_as_ratio(drift.change, drift.size) if drift is not None else None,
        warm_up=_as_ratio(warm_up.change, warm_up.size),
        observer=observer,
        vetoed=len(selection.vetoed) or None,
        veto_shift=selection.veto_shift,
    )
    drifts = drift is not None and drift.flagged
    return Disturbance(
        noise,
        _noise_reasons(noise, shift, suspected=warm_up.suspected),
        drifts=drifts or _one_process_drifts(trials, residual - block_effect, process),
        bimodal=_two_levels(level, process, noise.within or 0.0),
    )


def _noise_reasons(noise: Noise, shift: FloatArray, *, suspected: bool) -> tuple[Reason, ...]:
    """Return the disturbances that are worth a word."""
    codes = {
        Reason.OCCASION_SHIFT: bool(shift.size) and bool(np.ptp(shift) > MENTIONED_SHIFT),
        Reason.BETWEEN_PROCESS_SPREAD: (noise.between or 0.0) > MENTIONED_SPREAD,
        Reason.WARM_UP_SUSPECTED: suspected,
        Reason.OBSERVER_EFFECT: noise.observer is not None
        and not _within(noise.observer, 1 + OBSERVER_MARGIN),
    }
    return tuple(code for code, holds in codes.items() if holds)


def _occasion_shift(trials: Sequence[Trial], block_effect: FloatArray) -> FloatArray:
    """Return what the occasion of each trial adds to its log latency, shape (trials,)."""
    shift = np.zeros(len(trials))
    occasions = {trial.occasion for trial in trials}
    for name in occasions if len(occasions) > 1 else ():
        rows = np.array([trial.occasion == name for trial in trials])
        shift[rows] = np.median(block_effect[rows])
    return shift


def occasion_effects(trials: Sequence[Trial], values: IntArray, log_s: FloatArray) -> FloatArray:
    """Return what the occasion of each trial adds, from the values that several occasions visited.

    A search that was taken up again goes on elsewhere on its axis, so that whole occasions cannot
    be compared; values that fewer than two of them visited say nothing of their difference.

    Args:
        trials: The trials.
        values: Value of the axis of each, shape (trials,).
        log_s: Log latency of each, shape (trials,).

    Returns:
        Shape (trials,); zero for one occasion, and where too few values are shared to tell.
    """
    names = sorted({trial.occasion for trial in trials})
    if len(names) < 2:
        return np.zeros(len(trials))
    column = np.array([names.index(trial.occasion) for trial in trials])
    places, row = np.unique(values, return_inverse=True)
    table = np.full((places.size, len(names)), np.nan)
    for i, j in set(zip(row.tolist(), column.tolist(), strict=True)):
        table[i, j] = np.median(log_s[(row == i) & (column == j)])
    effects: FloatArray = median_polish(table).column[column]
    return effects


def _one_process_drifts(trials: Sequence[Trial], residual: FloatArray, process: IntArray) -> bool:
    """Return whether a process leaves the others along its own time, in a fixed order.

    What all processes share at a place in a fixed order may be the value measured there; what one
    of several does alone is not. In random order the drift of all is tested at once instead.
    """
    fixed = any(Reason.FIXED_ORDER in (trial.reasons or ()) for trial in trials)
    numbers, sizes = np.unique(process, return_counts=True)
    if not fixed or numbers.size < LEAST_PROCESSES or numbers[0] < 0:
        return False
    flagged = 0
    for number in numbers[sizes > 2]:
        rows = process == number
        part = [trial for trial, own in zip(trials, rows, strict=True) if own]
        found = _drift(part, residual[rows], process[rows])
        # As many tests as processes share the level of one.
        p_value = 1.0 if found is None or found.p_value is None else found.p_value
        if found is not None and found.flagged and p_value * numbers.size < DRIFT_ALPHA:
            flagged += 1
    return 0 < 2 * flagged < numbers.size


def observer_effect(trials: Sequence[Trial]) -> Estimate | None:
    """Return total time with a stamp at every token over that without, with a 90 % interval.

    Args:
        trials: Trials of the observer arm, stamped and plain, over a few budgets.

    Returns:
        ``None`` when one side is missing.
    """
    sides: dict[bool, list[float]] = {True: [], False: []}
    by_budget: dict[int | None, list[Trial]] = defaultdict(list)
    for trial in trials:
        if trial.decode_s:
            by_budget[trial.cell.budget].append(trial)
    for group in by_budget.values():
        center = float(np.median([math.log(t.decode_s) for t in group if t.decode_s]))
        for trial in group:
            if trial.decode_s:
                sides[trial.synced is not False].append(math.log(trial.decode_s) - center)
    if not sides[True] or not sides[False]:
        return None
    found = hodges_lehmann(sides[True], sides[False], level=OBSERVER_LEVEL)
    return _as_ratio(found, len(sides[True]) + len(sides[False]))


def _drift(trials: Sequence[Trial], residual: FloatArray, process: IntArray) -> Drift | None:
    """Return the drift of residuals over the order in their process."""
    known = np.array([trial.order_index is not None for trial in trials]) & (process >= 0)
    if known.sum() < len(trials):
        return None
    order = np.array([trial.order_index for trial in trials], dtype=float)
    return drift_test(order, residual)


def _warm_up_differences(selection: Selection) -> list[float]:
    """Return log warm-up minus median log of later trials of its budget, for each process."""
    later: dict[tuple[int | None, int | None], list[float]] = defaultdict(list)
    for trial in selection.trials:
        if trial.decode_s:
            later[trial.process_run, trial.cell.budget].append(math.log(trial.decode_s))
    return [
        math.log(first.decode_s) - float(np.median(later[first.process_run, first.cell.budget]))
        for first in selection.warm_ups
        if first.decode_s and later[first.process_run, first.cell.budget]
    ]


def _two_levels(residual: FloatArray, process: IntArray, sigma: float) -> bool:
    """Return whether processes fall into two levels with a clear gap between them."""
    if (process < 0).any():
        return False
    numbers, trials = np.unique(process, return_counts=True)
    # A process of one trial has an accident for a level.
    levels = [float(np.median(residual[process == k])) for k in numbers[trials > 1]]
    return is_wide(widest_gap(levels, below=LEAST_PER_LEVEL, above=LEAST_PER_LEVEL), sigma)


def _as_ratio(change: Interval | None, size: int) -> Estimate | None:
    """Return a change of log seconds as a ratio."""
    if change is None:
        return None
    value, low, high = (math.exp(part) for part in change)
    return Estimate(value=value, low=low, high=high, n=size)


def _within(estimate: Estimate, most: float) -> bool:
    """Return whether an interval lies within a factor of one."""
    low = estimate.value if estimate.low is None else estimate.low
    high = estimate.value if estimate.high is None else estimate.high
    return low >= 1 / most and high <= most


def _known(value: float) -> float | None:
    """Return a number, or ``None`` for NaN."""
    return None if math.isnan(value) else float(value)
