"""Cores that belong together, and brackets that begin where trials are normal. Layer: ``search``.

A value that did not pass need not be normal: a mild slowdown may miss the level of the test at one
value and reach it at both neighbors. Taken for the end of a regime it would cut one in two, at an
edge that is none. Where most fresh trials of such a value are slow by label, the regime goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regimescope.stats.boundary import is_slow
from regimescope.stats.confirm import Candidate, Core, FreshTrials
from regimescope.stats.curve import Curve, predict_log


def join(
    cores: Sequence[Core], candidates: Sequence[Candidate], fresh: FreshTrials, curve: Curve
) -> tuple[Core, ...]:
    """Return cores whose brackets lie between mostly slow and mostly normal values.

    Args:
        cores: Runs of values that passed, ascending.
        candidates: What they belong to.
        fresh: Trials of the confirmation.
        curve: The expected latency.
    """
    found: list[Core] = []
    for core in cores:
        grown = _grown(core, candidates[core.candidate], fresh, curve)
        last = found[-1] if found else None
        if last is not None and last.candidate == core.candidate and _meet(last, grown):
            grown = grown._replace(
                steps=tuple(sorted({*last.steps, *grown.steps})), onset=last.onset
            )
            found.pop()
        found.append(grown)
    return tuple(found)


def _meet(first: Core, second: Core) -> bool:
    """Return whether nothing normal lies between two cores."""
    return first.recovery[1] >= second.onset[1]


def _grown(core: Core, candidate: Candidate, fresh: FreshTrials, curve: Curve) -> Core:
    """Return a core whose brackets reach over values that are mostly slow."""
    tested = [candidate.flanks[0], *candidate.steps, candidate.flanks[1]]
    steps, log_s = np.asarray(fresh.steps), np.asarray(fresh.log_latency)

    def excess(step: float) -> float:
        seen = log_s[steps == step]
        return float(np.median(seen) - predict_log(curve, [step])[0]) if seen.size else -np.inf

    delta = float(np.median([excess(step) for step in core.steps]))
    slow = [bool(is_slow([excess(step)], delta)[0]) for step in tested]
    low, high = tested.index(core.steps[0]), tested.index(core.steps[-1])
    while low > 1 and slow[low - 1]:
        low -= 1
    while high < len(tested) - 2 and slow[high + 1]:
        high += 1
    return core._replace(
        onset=(tested[low - 1], tested[low]), recovery=(tested[high], tested[high + 1])
    )
