"""A slowdown that stays: where it begins, and whether it is one. Layer: ``search``.

Source: method, section 9. The range has been extended and no recovery was seen; the onset is
located like that of a spike, then twelve fresh trials on each side of it decide.
"""

from __future__ import annotations

import numpy as np

from regimescope import axes
from regimescope.search.confirming import Core
from regimescope.search.evidence import Evidence, IntArray
from regimescope.search.screening import Place, Screen
from regimescope.stats.boundary import label_errors
from regimescope.stats.certificate import RankTest, fresh_step_test
from regimescope.stats.curve import predict_log

STEP_PROCESSES = 12
# A check that moves the onset is repeated there, so often at most; the level is shared by them.
MOST_FINALS = 3
STEP_ALPHA = 0.001 / MOST_FINALS


def step_of(screen: Screen, evidence: Evidence, place: Place) -> Core | None:
    """Return the lasting slowdown of a screen as a core without recovery; ``None`` without one.

    Args:
        screen: The screen after its extension.
        evidence: The trials behind it.
        place: The axis.
    """
    curve = screen.result.baseline
    if screen.result.shape != "STEP" or curve is None:
        return None
    last = screen.value.size
    parts = [p for p in screen.result.intervals if p.start > 0 and p.end == last]
    if not parts:
        return None
    start = parts[0].start
    before, first = int(screen.value[start - 1]), int(screen.value[start])
    expected = predict_log(curve, axes.curve_steps(evidence.value, place.axis))
    excess, slow = evidence.log_s - expected, evidence.value >= first
    delta = float(np.median(excess[slow]))
    return Core(
        values=tuple(screen.value[start:].tolist()),
        log_slowdown=excess[slow],
        controls=int((~slow).sum()),
        onset=(before, first),
        recovery=None,
        errors=label_errors(excess[~slow], excess[slow], delta),
        delta=delta,
    )


def step_test(final: Evidence, before: int, first: int, place: Place) -> RankTest | None:
    """Test on fresh trials that latency jumps between two values; ``None`` without both sides.

    Only the latest processes that visited both values count: earlier checks have helped to choose
    the values, so that they are not fresh any more. What timed out is ranked last.

    Args:
        final: Trials of the final check.
        before: Last normal value.
        first: First slow value.
        place: The axis.
    """
    low, high = axes.curve_steps([before, first], place.axis).tolist()
    latest = final.where(np.isin(final.block, _latest_blocks(final, before, first)))
    at_step = latest.ranked[latest.value == first]
    below = latest.ranked[latest.value == before]
    if min(at_step.size, below.size) < STEP_PROCESSES or low <= 0:
        return None
    return fresh_step_test(at_step, below, steps=(low, high), degree=place.degree)


def _latest_blocks(final: Evidence, before: int, first: int) -> IntArray:
    """Return the blocks of the latest processes that visited both values."""
    both = np.intersect1d(final.block[final.value == before], final.block[final.value == first])
    return both[-STEP_PROCESSES:]
