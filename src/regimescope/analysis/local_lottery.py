"""Values at which some processes are slow and others are not. Layer: ``analysis``.

Source: method, section 8.3 and 8.4. Medians hide such a value or make a candidate of it; whether
its trials fall into two levels, and whether the level is drawn once per process, shows here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from regimescope.analysis.sweep import FloatArray, Sweep
from regimescope.records import Trial
from regimescope.results import Estimate, Grade, Regime, Verdict
from regimescope.stats.arrays import BoolArray
from regimescope.stats.lottery import (
    largest_gap_split,
    lottery_scope,
    modes,
    process_lottery,
)


def lottery_regimes(
    sweep: Sweep, trials: Sequence[Trial], log_s: FloatArray, within: float
) -> tuple[Regime, ...]:
    """Return the stretches of values whose slowness is drawn once per process.

    Args:
        sweep: The latencies; at least 20 trials of a value, several in each of its processes, are
            needed to tell.
        trials: The trials behind them, in the same order.
        log_s: Log latency of each, what their blocks have in common removed, shape (trials,).
        within: Scatter of repeats within a process, log units.

    Returns:
        Ascending; none where the values at both ends flip as well, since the lottery is then one
        of whole processes and must not be localized.
    """
    if any(trial.process_run is None for trial in trials):
        return ()
    process = np.array([trial.process_run for trial in trials])
    slow = np.zeros(len(trials), dtype=bool)
    flips = np.zeros(sweep.values.size, dtype=bool)
    for row, value in enumerate(sweep.values.tolist()):
        here = sweep.x == value
        cut = largest_gap_split(log_s[here], sigma=within)
        if cut is not None:
            slow[here] = log_s[here] > cut
            flips[row] = process_lottery(slow[here], process[here]).bimodal
    ends = np.zeros(flips.size, dtype=bool)
    ends[[0, -1]] = True
    if lottery_scope(flips, ends) != "local":
        return ()
    return tuple(
        _regime(sweep, start, end, log_s, slow, process) for start, end in _stretches(flips)
    )


def with_lottery(regimes: Sequence[Regime], bimodal: Sequence[Regime]) -> tuple[Regime, ...]:
    """Return slow intervals with those of a lottery in place of the spikes that they explain."""
    kept = [
        regime
        for regime in regimes
        if regime.verdict is not Verdict.SPIKE or not any(_holds(b, regime) for b in bimodal)
    ]
    return tuple(sorted((*kept, *bimodal), key=lambda r: r.onset or (0, 0)))


def _holds(outer: Regime, inner: Regime) -> bool:
    """Return whether an interval lies inside another one, by their first and last slow values."""
    if None in (outer.onset, outer.recovery, inner.onset, inner.recovery):
        return False
    (_, low), (high, _) = outer.onset or (0, 0), outer.recovery or (0, 0)
    (_, first), (last, _) = inner.onset or (0, 0), inner.recovery or (0, 0)
    return low <= first and last <= high


def _regime(
    sweep: Sweep, start: int, end: int, log_s: FloatArray, slow: BoolArray, process: FloatArray
) -> Regime:
    """Describe the stretch of values with indices [start, end), which has a value on each side."""
    here = np.isin(sweep.x, sweep.values[start:end])
    share = process_lottery(slow[here], process[here]).share
    ratios = []
    for value in sweep.values[start:end]:
        both = modes(log_s[sweep.x == value], slow[sweep.x == value])
        ratios.append((both.slow or 0.0) - (both.normal or 0.0))
    return Regime(
        verdict=Verdict.BIMODAL,
        grade=Grade.C,
        onset=(int(sweep.values[start - 1]), int(sweep.values[start])),
        recovery=(int(sweep.values[end - 1]), int(sweep.values[end])),
        slowdown=Estimate(value=math.exp(float(np.median(ratios))), n=int(here.sum())),
        share=None
        if share is None
        else Estimate(
            value=share.value, low=share.low, high=share.high, n=int(np.unique(process[here]).size)
        ),
    )


def _stretches(marked: BoolArray) -> list[tuple[int, int]]:
    """Return runs of marked values as half-open index ranges."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], marked, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]
