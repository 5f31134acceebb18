"""``regimescope export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regimescope.cli.options import RunFolderArgument


def export(
    run: RunFolderArgument,
    file_format: Annotated[str, typer.Option("--format", help="csv, json or parquet.")] = "csv",
    table: Annotated[
        str, typer.Option(help="trials: a row each; gaps: a row per gap between tokens.")
    ] = "trials",
    measured: Annotated[
        bool, typer.Option("--measured", help="Only trials that the verdict rests on.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="File to write; must not exist. Left out, stdout.")
    ] = None,
) -> None:
    """Write the records of a run as CSV, JSON or Parquet."""
    from regimescope import api
    from regimescope.report.consoles import write_out

    text = api.export(run, out, file_format=file_format, table=table, measured=measured)
    if text is not None:
        write_out(text.encode())
