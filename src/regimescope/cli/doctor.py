"""``regimescope doctor``."""

from __future__ import annotations

from typing import Annotated

import typer

from regimescope.cli.options import AsJson, Device, EngineName
from regimescope.cli.output import FAILED, console
from regimescope.spec import DEFAULT_ENGINE


def doctor(
    engine: EngineName = DEFAULT_ENGINE,
    device: Device = "auto",
    model: Annotated[
        str | None, typer.Option(help="Model to examine with; a small built-in one if left out.")
    ] = None,
    trials: Annotated[int, typer.Option(help="Short trials for the noise floor.")] = 30,
    as_json: AsJson = False,
) -> None:
    """Say what this machine can measure, and what to fix before."""
    from msgspec.json import encode

    from regimescope.doctor import Wanted, examine
    from regimescope.report.consoles import write_out
    from regimescope.report.doctor_text import print_examination

    found = examine(Wanted(engine, device, model, trials))
    if as_json:
        write_out(encode(found) + b"\n")
    else:
        print_examination(console(), found)
    if found.synchronization.verdict == "does not wait":
        raise typer.Exit(FAILED)
