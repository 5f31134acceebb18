"""``regimescope compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regimescope.cli.options import AsJson
from regimescope.cli.output import console
from regimescope.errors import SpecError


def compare(
    before: Annotated[Path, typer.Argument(metavar="A", help="The reference: a run folder.")],
    after: Annotated[
        list[Path], typer.Argument(metavar="B...", help="Runs that are compared with it.")
    ],
    kv_cache: Annotated[
        bool,
        typer.Option("--kv-cache", help="A has the KV cache on, B off: say what it buys."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say which regimes appeared, vanished, moved or grew, and how the speed changed."""
    import msgspec

    from regimescope import api
    from regimescope.report.compare_text import print_comparisons
    from regimescope.report.consoles import write_out

    if kv_cache:
        _ablate(before, after, as_json=as_json)
        return
    found = api.compare(before, *after)
    if as_json:
        table = {"schema_version": 1, "comparisons": found}
        write_out(msgspec.json.format(msgspec.json.encode(table), indent=2) + b"\n")
    else:
        print_comparisons(console(), found)


def _ablate(cached: Path, others: list[Path], *, as_json: bool) -> None:
    """Print what the KV cache buys."""
    import msgspec

    from regimescope import api
    from regimescope.report.compare_text import print_ablation
    from regimescope.report.consoles import write_out

    if len(others) != 1:
        raise SpecError(
            f"--kv-cache compares two runs, {len(others) + 1} are named.",
            remedy="Name the run with the cache, then the one without.",
        )
    found = api.kv_ablation(cached, others[0])
    if as_json:
        table = {"schema_version": 1, **msgspec.to_builtins(found)}
        write_out(msgspec.json.format(msgspec.json.encode(table), indent=2) + b"\n")
    else:
        print_ablation(console(), found)
