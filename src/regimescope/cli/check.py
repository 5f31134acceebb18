"""``regimescope check``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from regimescope.cli.options import AsJson, RunFolderArgument
from regimescope.cli.output import BROKEN, UNDECIDED, console
from regimescope.errors import UserError


def check(
    run: RunFolderArgument,
    baseline: Annotated[
        Path | None, typer.Option(help="Run folder that this one must not be worse than.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="Limits, as TOML; left out, the default ones.")
    ] = None,
    markdown: Annotated[Path | None, typer.Option(help="File for a Markdown summary.")] = None,
    junit: Annotated[Path | None, typer.Option(help="File for JUnit XML.")] = None,
    annotations: Annotated[
        bool, typer.Option("--annotations", help="Print annotations for GitHub on stdout.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a run against a policy; status 3 if it is broken, 4 if that cannot be told."""
    import msgspec

    from regimescope import api
    from regimescope.report import check_output
    from regimescope.report.consoles import write_out

    result = api.check(run, baseline=baseline, policy=policy)
    if as_json:
        table = {"schema_version": 1, **msgspec.to_builtins(result)}
        write_out(msgspec.json.format(msgspec.json.encode(table), indent=2) + b"\n")
    else:
        check_output.print_check(console(), result)
    if markdown is not None:
        _write(markdown, check_output.to_markdown(result))
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        _write(Path(summary), check_output.to_markdown(result), mode="a")
    if junit is not None:
        _write(junit, check_output.to_junit(result))
    if annotations:
        write_out(check_output.to_annotations(result).encode())
    if result.outcome != "met":
        raise typer.Exit(BROKEN if result.outcome == "broken" else UNDECIDED)


def _write(path: Path, text: str, *, mode: str = "w") -> None:
    """Write a file that was asked for.

    Raises:
        UserError: It cannot be written.
    """
    try:
        with path.open(mode, encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror}.", remedy="Name another file."
        ) from error
