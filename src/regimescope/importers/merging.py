"""Several files of one sweep as one run. Layer: ``importers``.

Each file is an occasion of its own: what its numbers have in common, a faster build or a cooler
machine, must be taken out before they are pooled (method, section 1.3).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from regimescope.errors import InputError
from regimescope.reasons import Reason
from regimescope.records import Run


def merged(runs: Sequence[Run]) -> Run:
    """Return the trials of several imports of one sweep as one run.

    Process runs are renumbered, so that those of different files stay apart.

    Args:
        runs: At least one import; not scans, which have plans of their own.

    Raises:
        InputError: They are not of one axis.
    """
    first, *others = runs
    if not others:
        return first
    axes = {run.header.axis for run in runs}
    if len(axes) > 1:
        raise InputError(
            Reason.MIXED_SERIES,
            f"The files sweep different axes: {', '.join(sorted(axes))}.",
            remedy="Analyze each by itself.",
        )
    trials = []
    numbers: dict[tuple[int, int], int] = {}
    for k, run in enumerate(runs):
        for trial in run.trials:
            process = trial.process_run
            if process is not None:
                process = numbers.setdefault((k, process), len(numbers))
            trials.append(
                replace(
                    trial,
                    trial_id=f"{k}:{trial.trial_id}",
                    occasion=f"{k}:{trial.occasion}",
                    process_run=process,
                )
            )
    name = " + ".join(run.header.run for run in runs)
    return Run(header=replace(first.header, run=name), trials=tuple(trials))
