"""What a search promises about what it did not find. Layer: ``analysis``.

Source: method, section 11, the guarantee.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regimescope.analysis.sweep import Selection
from regimescope.metrics import decoded_tokens
from regimescope.reasons import Reason
from regimescope.records import Trial
from regimescope.results import Guarantee
from regimescope.search.phases import Findings
from regimescope.spec import DEFAULT_HIGH, ScanSpec
from regimescope.stats.confirm import ConfirmationRule
from regimescope.stats.epidemic import R_MIN

# Level of the intervals of an edge (method, section 6).
EDGE_ERROR = 0.05
# What leaves a part of the range unseen: nothing is said about what was not found there, and no
# search that lacks it is clean (method, section 15).
UNSEEN = frozenset(
    {
        Reason.LIMIT_REACHED,
        Reason.INTERRUPTED,
        Reason.DRIFT_VETO,
        Reason.BACKEND_FAILURES,
        Reason.GAP_TOO_WIDE,
    }
)


def promised(
    spec: ScanSpec, trials: Sequence[Trial], found: Findings, selection: Selection
) -> Guarantee:
    """Return what the search promises, and why it does not where it does not.

    Args:
        spec: Its settings.
        trials: All of its trials, dropped ones included: they were paid for.
        found: What it found.
        selection: The trials by fate.
    """
    high = spec.high or DEFAULT_HIGH
    withdrawn = [reason for reason in selection.reasons if reason in UNSEEN]
    values = found.screen.value
    inside = values[(values >= spec.low) & (values <= high)]
    if not _covered(inside.tolist(), spec.low, high, spec.min_width):
        withdrawn.append(Reason.GAP_TOO_WIDE)
    measured = found.evidence.value
    ends = (int(measured.min()), int(measured.max()))
    final = {t.process_run for t in trials if t.stage == "final" and not t.sentinel}
    return Guarantee(
        low=spec.low,
        high=high,
        looked=ends if ends[0] < spec.low or ends[1] > high else None,
        width=spec.min_width,
        slowdown=R_MIN,
        prevalence=spec.prevalence,
        false_regimes=ConfirmationRule().alpha,
        edge_error=EDGE_ERROR,
        tokens=sum(decoded_tokens(trial) for trial in trials),
        processes=len({t.process_run for t in selection.trials}),
        final_processes=len(final) or None,
        withdrawn=tuple(dict.fromkeys(withdrawn)),
    )


def _covered(values: Sequence[int], low: int, high: int, width: int) -> bool:
    """Return whether a screen reached both ends of its range without a gap above the width."""
    if len(values) < 2 or values[0] > low or values[-1] < high:
        return False
    return bool(np.diff(values).max() <= width)
