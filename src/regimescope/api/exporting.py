"""Records of a run for other programs."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from regimescope.analysis.sweep import primary_series, select
from regimescope.api.judging import load
from regimescope.records import Run
from regimescope.store.export import export as write_table


def export(
    run: Run | str | Path,
    path: str | Path | None = None,
    *,
    file_format: str = "csv",
    table: str = "trials",
    measured: bool = False,
) -> str | None:
    """Write the records of a run as a table, or return them as text.

    Args:
        run: A run, a run folder, or a file of measurements.
        path: File to write; it must not exist. ``None`` returns the text; not for Parquet.
        file_format: ``csv``, ``json`` or ``parquet``.
        table: ``trials``, one row a trial, or ``gaps``, one row a gap between tokens.
        measured: Whether only the trials that the verdict rests on are written: no warm-ups, no
            sentinels, nothing failed, ended early, or of a block that was measured again.

    Raises:
        UserError: The run cannot be read, the format is unknown, or the file cannot be written.
    """
    whole = run if isinstance(run, Run) else load(run)
    if measured:
        whole = replace(whole, trials=tuple(select(primary_series(whole)).trials))
    return write_table(whole, None if path is None else Path(path), file_format, table)
