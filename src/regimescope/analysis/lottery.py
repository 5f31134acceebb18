"""Processes compared with each other on an axis of time. Layer: ``analysis``.

Source: method, section 8.3 and 8.4. Where each point is a process, neighbors on the axis have
nothing in common, so that no curve is fitted: the levels themselves are what there is.
"""

from __future__ import annotations

import math
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
from regimescope.stats.lottery import level_split, modes

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
    cut = level_split(levels, least=least, floor=SCALE_FLOOR)
    if cut is not None:
        modes = _modes(levels, cut)
        return Lottery(Verdict.BIMODAL, modes, (Reason.BETWEEN_PROCESS_SPREAD, *few))
    ordered = all(trial.order_index is not None for trial in trials)
    if ordered and drift_test(sweep.values, levels).flagged:
        return Lottery(Verdict.DRIFT, None, (Reason.BETWEEN_PROCESS_SPREAD, *few))
    why = (Reason.BETWEEN_PROCESS_SPREAD, *((Reason.ORDER_CONFOUNDED,) if ordered else ()))
    return Lottery(Verdict.INCONCLUSIVE, None, (*why, *few))


def _modes(levels: FloatArray, cut: float) -> Modes:
    """Return both levels of processes, and the share of the slow ones."""
    slow = levels > cut
    both = modes(levels, slow)
    share = wilson_interval(both.size[1], levels.size)
    fast_s, slow_s = (math.exp(level or 0.0) for level in (both.normal, both.slow))
    return Modes(
        fast_s=fast_s,
        slow_s=slow_s,
        ratio=slow_s / fast_s,
        slow_share=Estimate(value=share.value, low=share.low, high=share.high, n=levels.size),
    )
