"""Runs read from anywhere, judged and published."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regimescope.analysis.regimes import conclude
from regimescope.errors import RunFolderError, UserError
from regimescope.importers.files import Asked, no_table, read_files
from regimescope.importers.foreign import Hints
from regimescope.records import Run
from regimescope.report.html import write_report
from regimescope.results import Conclusion
from regimescope.stats.epidemic import R_MIN
from regimescope.store import is_run_folder
from regimescope.store import load_run as load_run

REPORT = "report.html"
# A slowdown of a thousand is past any that was reported; larger margins are slips.
MOST_MARGIN = 1000.0


def analyze(source: Run | str | Path, *, margin: float = R_MIN, **options: Any) -> Conclusion:
    """Return the verdict on a run, a run folder, a case file, or a table of measurements.

    Args:
        source: A run in memory, the path of a run folder, or the path of a file.
        margin: Least slowdown that counts, above 1; a search has its own.
        options: What ``load`` takes, such as ``x`` and ``y`` for the columns of a table.

    Raises:
        UserError: The source cannot be read or cannot be a measurement.
    """
    if not 1 < margin <= MOST_MARGIN:
        raise UserError(
            f"A margin of {margin:g} is no slowdown.",
            remedy=f"Give a ratio above 1 and up to {MOST_MARGIN:g}, for example 1.25.",
        )
    return conclude(source if isinstance(source, Run) else load(source, **options), r_min=margin)


def load(  # noqa: PLR0913 - one per option of the command line
    source: str | Path,
    *more: str | Path,
    x: str | None = None,
    y: str | None = None,
    axis: str | None = None,
    pattern: str | None = None,
    lengths: Mapping[str, int] | None = None,
    columns: Mapping[str, Any] | None = None,
) -> Run:
    """Return a run folder, or files of measurements made elsewhere, as a run.

    Args:
        source: A run folder, a case file (TOML) or a file of a known tool, both recognized by
            their content, or a CSV file.
        more: Further files of the same sweep.
        x: Column of the decoding budget; tables only.
        y: Column of the latency; seconds, unless its name ends in another unit or one is told.
        axis: Axis to read; known tools only, the one with the most values if left out.
        pattern: Regular expression for file names; its groups tell lengths that files lack.
        lengths: The same for all files: ``budget``, ``prompt_tokens``, ``batch``, ``depth`` or
            ``capacity``.
        columns: What else is known of a table: ``unit``, ``process``, ``repeat``, ``order``, ``n``
            and ``where``, see ``importers.generic.Columns``.

    Raises:
        UserError: A source does not exist, cannot be read, or the columns are not named.
    """
    paths = [Path(source), *map(Path, more)]
    asked = Asked(x, y, axis, Hints(lengths or {}, pattern), columns or {})
    folders = [path for path in paths if is_run_folder(path)]
    if not folders:
        return read_files(paths, asked)
    if asked.names_columns:
        raise no_table(folders[0], "a run folder, which knows what it measured")
    if more or asked.is_of_tools:
        raise UserError(
            f"{folders[0]} is a run folder, and knows by itself what it holds.",
            remedy="Analyze it alone, without options for other files.",
        )
    return load_run(paths[0])


def load_folder(path: str | Path) -> Run:
    """Return a run folder as a run.

    Raises:
        RunFolderError: It is none, or is damaged.
    """
    if Path(path).is_file():
        raise RunFolderError(
            f"{path} is a file, no run folder.",
            remedy=f"To judge measurements in a file: regimescope analyze {path}",
        )
    return load_run(Path(path))


def publish(run: Run, conclusion: Conclusion, folder: str | Path) -> Path:
    """Write ``report.html`` into a folder and return its path.

    Raises:
        MissingDependencyError: The libraries that draw it are not installed.
        RunFolderError: The folder cannot be written.
    """
    path = Path(folder) / REPORT
    try:
        write_report(run, conclusion, path)
    except OSError as error:
        raise RunFolderError(
            f"{path} cannot be written: {error.strerror}.", remedy="Make the folder writable."
        ) from error
    return path
