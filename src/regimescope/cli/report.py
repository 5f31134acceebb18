"""``regimescope report``."""

from __future__ import annotations

from regimescope.cli.options import AsJson, RunFolderArgument
from regimescope.cli.output import present


def report(run: RunFolderArgument, as_json: AsJson = False) -> None:
    """Draw the verdict on a run folder again: summary and report.html; with --json neither."""
    from regimescope import api

    # A script that asks for the object is spared the page and the libraries that draw it.
    present(api.load_folder(run), None if as_json else run, as_json=as_json)
