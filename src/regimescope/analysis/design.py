"""What the design of a measurement limits, whatever its numbers say. Layer: ``analysis``.

Source: method, section 15.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regimescope.analysis.sweep import IntArray
from regimescope.reasons import Reason
from regimescope.records import Run, Trial


def design_reasons(run: Run, trials: Sequence[Trial], x: IntArray) -> tuple[Reason, ...]:
    """Return the reason codes of a design, each once.

    Args:
        run: The run, for the order that was asked for.
        trials: The trials that count.
        x: Value of the swept axis of each, shape (trials,).
    """
    reasons = []
    if np.unique(x, return_counts=True)[1].max() < 2:
        reasons.append(Reason.NO_REPLICATION)
    processes = {trial.process_run for trial in trials}
    if None in processes:
        reasons.append(Reason.MISSING_PROCESS_RUN)
    elif len(processes) == 1:
        reasons.append(Reason.SINGLE_PROCESS)
    if any(trial.order_index is None for trial in trials):
        reasons.append(Reason.MISSING_ORDER)
    if run.header.spec is not None and run.header.spec.order != "random":
        reasons.append(Reason.FIXED_ORDER)
    for trial in trials:
        reasons += trial.reasons or ()
    return tuple(dict.fromkeys(reasons))
