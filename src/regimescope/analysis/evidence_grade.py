"""How strong the evidence for a confirmed regime is. Layer: ``analysis``.

Source: method, sections 3 and 9.
"""

from __future__ import annotations

from regimescope import axes
from regimescope.reasons import Reason
from regimescope.results import Grade
from regimescope.search.confirming import Core
from regimescope.search.edges import Edge
from regimescope.search.evidence import Evidence
from regimescope.search.phases import Findings
from regimescope.search.stepping import MOST_FINALS
from regimescope.stats.boundary import is_slow
from regimescope.stats.certificate import fresh_certificate_test
from regimescope.stats.curve import predict_log

# Fewer processes confirm nothing (method, section 5).
LEAST_PROCESSES = 6
CERTIFICATE_ALPHA = 0.01


def grade_of(
    core: Core, onset: Edge, recovery: Edge, found: Findings
) -> tuple[Grade, tuple[Reason, ...]]:
    """Return the strength of the evidence for a regime that passed, and what limits it.

    A: the final check agrees and a longer value is faster on fresh trials. B: one of them fails.

    Args:
        core: What passed.
        onset: Its lower edge.
        recovery: Its upper edge.
        found: Everything measured.
    """
    reasons = []
    for edge in (onset, recovery):
        reasons += [Reason(code) for code in edge.boundary.codes]
        if edge.contradicted:
            reasons.append(Reason.BOUNDARY_CONTRADICTION)
        if edge.boundary.next_query is not None:
            reasons.append(Reason.LIMIT_REACHED)
    final = found.evidence.of("final")
    agrees = bool(final.value.size) and _agrees(final, core, onset, recovery, found)
    certified = _certified(core, recovery, found)
    grade = Grade.A if agrees and certified else Grade.B
    return grade, tuple(dict.fromkeys(reasons))


def _agrees(final: Evidence, core: Core, onset: Edge, recovery: Edge, found: Findings) -> bool:
    """Return whether most full-length trials on both sides of each edge say the same."""
    confirmation = found.confirmation
    if confirmation is None:
        return False
    steps = axes.curve_steps(final.value, found.place.axis)
    slow = is_slow(final.log_s - predict_log(confirmation.curve, steps), core.delta)
    slow = slow | final.timed_out
    for edge, (before, after) in ((onset, (False, True)), (recovery, (True, False))):
        for value, expected in zip(edge.sides, (before, after), strict=True):
            here = slow[final.value == value]
            if here.size == 0 or 2 * int((here == expected).sum()) <= here.size:
                return False
    return True


def _certified(core: Core, recovery: Edge, found: Findings) -> bool:
    """Return whether a longer value is faster on fresh trials: evidence without any curve."""
    last, after = recovery.sides
    for rows, slow, longer, alpha in (
        # Earlier final checks may have moved the edge that a later one is made at.
        (found.evidence.of("final"), last, after, CERTIFICATE_ALPHA / MOST_FINALS),
        (found.evidence.of("confirm"), core.values[-1], _flank(core, found), CERTIFICATE_ALPHA),
    ):
        # What ran out of time is slower than all others, not absent.
        told = rows.exact | rows.timed_out
        a = rows.ranked[told & (rows.value == slow)]
        b = rows.ranked[told & (rows.value == longer)]
        if min(a.size, b.size) >= LEAST_PROCESSES:
            return fresh_certificate_test(a, b).p_value <= alpha
    return False


def _flank(core: Core, found: Findings) -> int:
    """Return the normal value above a core."""
    candidates = () if found.confirmation is None else (found.confirmation.candidates)
    above = [c.right for c in candidates if c.right is not None and c.right > core.values[-1]]
    return min(above, default=0)
