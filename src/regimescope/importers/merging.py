"""Several files of one sweep as one run. Layer: ``importers``.

Each file is an occasion of its own: what its numbers have in common, a faster build or a cooler
machine, must be taken out before they are pooled (method, section 1.3).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from regimescope.errors import InputError, UserError
from regimescope.reasons import Reason
from regimescope.records import Run

PIECE_BYTES = 1 << 20


def refuse_copies(paths: Sequence[Path]) -> None:
    """Refuse files that are given twice, under one name or as copies: they replicate nothing.

    Args:
        paths: Files that exist.

    Raises:
        InputError: Two have the same content.
        UserError: One cannot be read.
    """
    seen: dict[bytes, Path] = {}
    for path in paths:
        try:
            digest = _digest(path)
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}.", remedy="Name a readable file.") from error
        first = seen.setdefault(digest, path)
        if first is not path:
            what = f"{path} is given twice" if first == path else f"{path} is a copy of {first}"
            raise InputError(
                Reason.POSSIBLE_DUPLICATES,
                f"{what}; the same measurements twice are no repetition.",
                remedy="Give each file once.",
            )


def _digest(path: Path) -> bytes:
    """Return a digest of the content of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
    return digest.digest()


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
