"""A slowdown that stays: where it begins, and whether it is one. Layer: ``search``.

Source: method, section 9. The range has been extended and no recovery was seen; the onset is
located like that of a spike, then twelve fresh trials on each side of it decide.
"""

from __future__ import annotations

import numpy as np

from regimescope import axes
from regimescope.search.confirming import Core
from regimescope.search.evidence import Evidence
from regimescope.search.screening import Place, Screen
from regimescope.stats.boundary import label_errors
from regimescope.stats.certificate import RankTest, fresh_step_test
from regimescope.stats.curve import predict_log

STEP_PROCESSES = 12
STEP_ALPHA = 0.001


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

    Args:
        final: Trials of the final check.
        before: Last normal value.
        first: First slow value.
        place: The axis.
    """
    low, high = axes.curve_steps([before, first], place.axis).tolist()
    at_step = final.log_s[(final.value == first) & final.exact]
    below = final.log_s[(final.value == before) & final.exact]
    if min(at_step.size, below.size) < STEP_PROCESSES or low <= 0:
        return None
    return fresh_step_test(at_step, below, steps=(low, high), degree=place.degree)
