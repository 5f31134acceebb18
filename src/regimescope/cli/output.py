"""What every command prints, and how it ends."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from regimescope.errors import MissingDependencyError

if TYPE_CHECKING:
    from rich.console import Console

    from regimescope.records import Run

FAILED, UNUSABLE, BROKEN, UNDECIDED, INTERRUPTED = 1, 2, 3, 4, 130
# Below, lotteries of processes and kernels are common (method, section 1.4). Written here too, so
# that --help does without the statistics.
DEFAULT_MARGIN = 1.25
REMOTE_CODE = "Warning: code that comes with the model runs here with all your rights."
# A line of an error names a path and a list of choices; longer ones are library output.
MOST_CHARACTERS = 2000


def present(
    run: Run,
    folder: Path | None,
    *,
    as_json: bool,
    margin: float = DEFAULT_MARGIN,
    quiet: bool = False,
) -> None:
    """Conclude, write the page where there is a folder, and print."""
    from regimescope import api
    from regimescope.report.consoles import write_out
    from regimescope.report.text import print_conclusion
    from regimescope.results import to_json

    conclusion = api.analyze(run, margin=margin)
    page = None
    if folder is not None and not quiet:
        say("writing the report")
    try:
        page = api.publish(run, conclusion, folder) if folder is not None else None
    except MissingDependencyError as error:
        # The measurement is done and its verdict worth more than its page.
        say(f"No {api.REPORT} was written: {error}")
    if as_json:
        write_out(to_json(conclusion))
        return
    print_conclusion(console(), run, conclusion, folder=folder, report_path=page)


def options_given(context: typer.Context) -> dict[str, Any]:
    """Return the options that stand on the command line, not the defaults."""
    return {
        name: value if isinstance(value, (bool, int, float, list)) else str(value)
        for name, value in context.params.items()
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    }


def console(*, stderr: bool = False) -> Console:
    """Return a console; colors only on a terminal."""
    from regimescope.report.consoles import LastingConsole

    return LastingConsole(stderr=stderr, highlight=False)


def say(message: str) -> None:
    """Print lines on standard error; what came from outside cannot steer the terminal."""
    from regimescope.report.consoles import wrapped
    from regimescope.report.escaping import plain

    width = console(stderr=True).width
    with contextlib.suppress(BrokenPipeError):  # nobody listens; the exit status still tells
        for line in message.splitlines():
            typer.echo(wrapped(plain(line, limit=MOST_CHARACTERS), width), err=True)


def fail(message: str, status: int) -> NoReturn:
    """Print an error and end."""
    say(f"Error: {message}")
    sys.exit(status)
