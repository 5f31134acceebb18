"""Processes compared with each other on an axis of time. Layer: ``analysis``.

Source: method, section 8.3 and 8.4. Where each point is a process, neighbors on the axis have
nothing in common, so that no curve is fitted: the levels themselves are what there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from regimescope.analysis.sweep import FloatArray, Sweep
from regimescope.reasons import Reason
from regimescope.records import Trial
from regimescope.results import Estimate, Modes, Verdict
from regimescope.stats.drift import drift_test
from regimescope.stats.epidemic import SCALE_FLOOR
from regimescope.stats.estimate import wilson_interval

# One process on a side is an outlier, not a level. Accidents slow a run down and do not speed it
# up, so that two fast ones are a level sooner than two slow ones.
LEAST_FAST = 2
LEAST_SLOW = 4
# A gap stands out from the scatter on both sides of it when it is so many times as large
# (method, section 8.4).
GAP_SCALES = 6.0
# Fewer processes than a confirmation needs show no absence of levels either (method, section 5).
LEAST_PROCESSES = 6


class Lottery(NamedTuple):
    """What the levels of processes look like.

    Attributes:
        verdict: BIMODAL, DRIFT, CLEAN or INCONCLUSIVE.
        modes: Both levels of a BIMODAL one.
        reasons: Reason codes.
    """

    verdict: Verdict
    modes: Modes | None
    reasons: tuple[Reason, ...]


def points_are_processes(sweep: Sweep, trials: Sequence[Trial], axis: str) -> bool:
    """Return whether each value of the axis was measured in processes of its own."""
    if axis != "time" or sweep.values.size < 2:
        return False
    owners: dict[int, int] = {}
    for trial, value in zip(trials, sweep.x.tolist(), strict=True):
        if trial.process_run is None or owners.setdefault(trial.process_run, value) != value:
            return False
    return True


def compare_processes(sweep: Sweep, trials: Sequence[Trial], *, r_min: float) -> Lottery:
    """Say whether the levels of processes are one, two, or drift with their order.

    Args:
        sweep: Latencies by process.
        trials: The trials behind them, in the same order.
        r_min: Least ratio of two levels that counts.
    """
    levels = np.array([np.median(np.log(sweep.latency_s[sweep.x == v])) for v in sweep.values])
    least = float(np.log(r_min))
    few = (Reason.TOO_FEW_PROCESSES,) if levels.size < LEAST_PROCESSES else ()
    if np.ptp(levels) < least:
        verdict = Verdict.INCONCLUSIVE if few else Verdict.CLEAN
        return Lottery(verdict, None, few)
    cut = _cut(levels, least)
    if cut is not None:
        modes = _modes(levels, cut)
        return Lottery(Verdict.BIMODAL, modes, (Reason.BETWEEN_PROCESS_SPREAD, *few))
    ordered = all(trial.order_index is not None for trial in trials)
    if ordered and drift_test(sweep.values, levels).flagged:
        return Lottery(Verdict.DRIFT, None, (Reason.BETWEEN_PROCESS_SPREAD, *few))
    why = (Reason.BETWEEN_PROCESS_SPREAD, *((Reason.ORDER_CONFOUNDED,) if ordered else ()))
    return Lottery(Verdict.INCONCLUSIVE, None, (*why, *few))


def _cut(levels: FloatArray, least: float) -> float | None:
    """Return a log latency between two tight levels; ``None`` if there are no two.

    A slow accident scatters, a level repeats itself: hence several processes on each side, and a
    gap far beyond the scatter of either.
    """
    ordered = np.sort(levels)
    if ordered.size < LEAST_FAST + LEAST_SLOW:
        return None
    inner = np.diff(ordered)[LEAST_FAST - 1 : ordered.size - LEAST_SLOW]
    k = LEAST_FAST + int(np.argmax(inner))
    fast, slow = ordered[:k], ordered[k:]
    spread = max(float(np.std(fast, ddof=1)), float(np.std(slow, ddof=1)), SCALE_FLOOR)
    apart = float(np.median(slow) - np.median(fast))
    if apart < least or slow[0] - fast[-1] <= GAP_SCALES * spread:
        return None
    return float(fast[-1] + slow[0]) / 2


def _modes(levels: FloatArray, cut: float) -> Modes:
    slow = levels > cut
    share = wilson_interval(int(slow.sum()), levels.size)
    fast_s, slow_s = (float(np.exp(np.median(levels[side]))) for side in (~slow, slow))
    return Modes(
        fast_s=fast_s,
        slow_s=slow_s,
        ratio=slow_s / fast_s,
        slow_share=Estimate(value=share.value, low=share.low, high=share.high, n=levels.size),
    )
