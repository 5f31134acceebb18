"""``regimescope analyze``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regimescope.cli.options import AsJson
from regimescope.cli.output import DEFAULT_MARGIN, console, present


def analyze(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="A run folder; files of one sweep, of a known tool or CSV; or the word paper, for "
            "the published figures of arXiv 2605.08913.",
        ),
    ],
    x: Annotated[str | None, typer.Option(help="Column of the decoding budget.")] = None,
    y: Annotated[str | None, typer.Option(help="Column of the latency.")] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="s, ms, us, ns, s_per_token, ms_per_token, us_per_token or tokens_per_s; left "
            "out, what the name of the column ends in, else s."
        ),
    ] = None,
    process: Annotated[
        str | None, typer.Option(help="Column that tells process runs apart.")
    ] = None,
    repeat: Annotated[str | None, typer.Option(help="Column that numbers repeats.")] = None,
    order: Annotated[str | None, typer.Option(help="Column that numbers in time.")] = None,
    n: Annotated[str | None, typer.Option("--n", help="Column of the output tokens.")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Only rows with this value."),
    ] = None,
    axis: Annotated[
        str | None,
        typer.Option(help="What to read of a tool's file: budget, prompt, context, batch."),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(help="Pattern for file names; its groups, such as budget, tell lengths."),
    ] = None,
    budget: Annotated[int | None, typer.Option(help="Budget, where files lack it.")] = None,
    prompt_tokens: Annotated[int | None, typer.Option(help="Prompt, where files lack it.")] = None,
    batch: Annotated[int | None, typer.Option(help="Batch, where files lack it.")] = None,
    margin: Annotated[float, typer.Option(help="Least slowdown that counts.")] = DEFAULT_MARGIN,
    as_json: AsJson = False,
) -> None:
    """Say whether measurements made elsewhere have regimes."""
    from regimescope import api

    if sources == [Path("paper")] and not sources[0].exists():
        _paper(as_json=as_json)
        return
    lengths = {"budget": budget, "prompt_tokens": prompt_tokens, "batch": batch}
    told = {name: value for name, value in lengths.items() if value is not None}
    columns = {"unit": unit, "process": process, "repeat": repeat, "order": order, "n": n}
    known: dict[str, Any] = {name: value for name, value in columns.items() if value is not None}
    if where:
        from regimescope.importers.table_rows import parse_where

        known["where"] = parse_where(where)
    run = api.load(*sources, x=x, y=y, axis=axis, pattern=pattern, lengths=told, columns=known)
    present(run, None, as_json=as_json, margin=margin)


def _paper(*, as_json: bool) -> None:
    """Print the claims of the paper against its figures."""
    import msgspec

    from regimescope.analysis.paper import SOURCE, paper_claims
    from regimescope.report.consoles import write_out
    from regimescope.report.paper import print_claims

    claims = paper_claims()
    if as_json:
        table = {"schema_version": 1, "source": SOURCE, "claims": claims}
        write_out(msgspec.json.format(msgspec.json.encode(table), indent=2) + b"\n")
    else:
        print_claims(console(), claims)
