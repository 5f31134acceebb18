"""``regimescope compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regimescope.cli.options import AsJson
from regimescope.cli.output import console


def compare(
    before: Annotated[Path, typer.Argument(metavar="A", help="The reference: a run folder.")],
    after: Annotated[
        list[Path], typer.Argument(metavar="B...", help="Runs that are compared with it.")
    ],
    as_json: AsJson = False,
) -> None:
    """Say which regimes appeared, vanished, moved or grew, and how the speed changed."""
    import msgspec

    from regimescope import api
    from regimescope.report.compare_text import print_comparisons
    from regimescope.report.consoles import write_out

    found = api.compare(before, *after)
    if as_json:
        table = {"schema_version": 1, "comparisons": found}
        write_out(msgspec.json.format(msgspec.json.encode(table), indent=2) + b"\n")
    else:
        print_comparisons(console(), found)
