"""Grade of an import: is its class found alike in parts analyzed apart? Layer: ``analysis``.

Source: method, section 9: grade B for what is replicated in at least two processes or occasions;
A needs a confirmation of our own. Reason codes that rule a grade out are in sections 9 and 15.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from regimescope.analysis.sweep import IntArray, Sweep
from regimescope.reasons import Reason
from regimescope.records import Trial
from regimescope.results import Grade, Regime, Verdict

# A part with fewer values has no verdict of its own (method, section 15).
LEAST_VALUES = 6
# What makes the evidence of an import grade C however often it repeats.
UNGRADED = frozenset(
    {
        Reason.TOKENS_NOT_VERIFIED,
        Reason.SUMMARY_STATISTICS_ONLY,
        Reason.TAIL_STATISTIC,
        Reason.NO_REPLICATION,
        Reason.MISSING_PROCESS_RUN,
        Reason.BUDGET_EQUALS_PROCESS,
    }
)
# Nothing can replicate a verdict that says nothing, or one about what differs between parts.
REPLICABLE = frozenset({Verdict.CLEAN, Verdict.STEP, Verdict.SPIKE, Verdict.RAMP, Verdict.SAWTOOTH})


class Part(NamedTuple):
    """What one part of the trials shows by itself."""

    verdict: Verdict
    regimes: tuple[Regime, ...]


def replicated_grade(
    whole: Part,
    parts: Sequence[Part],
    reasons: Collection[Reason],
) -> Grade:
    """Return B where every part has the class of the whole, in intervals that meet, else C.

    Args:
        whole: What all trials show together.
        parts: What each process or occasion shows apart.
        reasons: Reason codes of the whole.
    """
    if len(parts) < 2 or whole.verdict not in REPLICABLE or UNGRADED & set(reasons):
        return Grade.C
    return Grade.B if all(_alike(whole, part) for part in parts) else Grade.C


def parts_of(sweep: Sweep, trials: Sequence[Trial]) -> list[Sweep]:
    """Return each process that visits enough values, or each occasion where none does, apart.

    Args:
        sweep: All latencies.
        trials: The trials behind them, in the same order.

    Returns:
        At least two parts, or none.
    """
    for unit in ([t.process_run for t in trials], [t.occasion for t in trials]):
        rows: dict[object, list[int]] = {}
        for k, key in enumerate(unit):
            rows.setdefault(key, []).append(k)
        large = [
            np.array(at) for at in rows.values() if np.unique(sweep.x[at]).size >= LEAST_VALUES
        ]
        if len(large) > 1:
            return [_part(sweep, at) for at in large]
    return []


def _part(sweep: Sweep, at: IntArray) -> Sweep:
    x = sweep.x[at]
    return Sweep(
        x=x,
        latency_s=sweep.latency_s[at],
        steps=sweep.steps[at],
        group=np.unique(sweep.group[at], return_inverse=True)[1].astype(np.int64),
        values=np.unique(x),
        phase=sweep.phase,
    )


def _alike(whole: Part, part: Part) -> bool:
    if part.verdict is not whole.verdict:
        return False
    wanted = [r for r in whole.regimes if r.verdict is whole.verdict]
    found = [r for r in part.regimes if r.verdict is whole.verdict]
    return all(any(_meet(one, other) for other in found) for one in wanted)


def _meet(one: Regime, other: Regime) -> bool:
    """Return whether two intervals share a value; a missing edge is outside of the data."""
    start = max(r.onset[1] if r.onset else -np.inf for r in (one, other))
    end = min(r.recovery[1] if r.recovery else np.inf for r in (one, other))
    return bool(start < end)
