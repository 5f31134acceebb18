"""The command line put together: commands in, exit status out."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from regimescope import __version__
from regimescope.cli.analyze import analyze
from regimescope.cli.check import check
from regimescope.cli.compare import compare
from regimescope.cli.doctor import doctor
from regimescope.cli.engines import engines
from regimescope.cli.export import export
from regimescope.cli.output import FAILED, UNUSABLE, fail
from regimescope.cli.report import report
from regimescope.cli.scan import scan
from regimescope.cli.serve import serve
from regimescope.errors import MeasurementError, UserError

app = typer.Typer(
    name="regimescope",
    help="Find, confirm and locate slow execution regimes of autoregressive decoding.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# In the order in which --help lists them.
for command in (scan, analyze, report, compare, check, export, engines, serve, doctor):
    app.command()(command)


def _show_version(wanted: bool) -> None:
    """Print the version and end."""
    if wanted:
        typer.echo(f"regimescope {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Find, confirm and locate slow execution regimes of autoregressive decoding."""


def main() -> None:
    """Run the command line; the only place where an error becomes an exit status."""
    # A scheduler that ends a job sends SIGTERM; it deserves the same tidy end as Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except UserError as error:
        fail(str(error), UNUSABLE)
    except OSError as error:
        # Standard output on a full disk, for one; files of ours raise errors of our own.
        fail(f"{error.strerror or error}.", FAILED)
    except MeasurementError as error:
        fail(str(error), FAILED)
