"""Records of a run as CSV, JSON or Parquet, for other programs. Layer: ``store``."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal, get_args

import msgspec

from regimescope.errors import MissingDependencyError, RunFolderError, SpecError
from regimescope.records import Run
from regimescope.store.columns import gap_columns, trial_lists
from regimescope.units import listing

FileFormat = Literal["csv", "json", "parquet"]
Table = Literal["trials", "gaps"]
SCHEMA_VERSION = 1

# A spreadsheet takes a cell that begins so for a formula and runs it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def export(run: Run, path: Path | None, file_format: str, table: str = "trials") -> str | None:
    """Write a table of a run to a file, or return it as text.

    Args:
        run: The run.
        path: File to write; it must not exist. ``None`` returns the text.
        file_format: ``csv``, ``json`` (an object with one list per column) or ``parquet``.
        table: ``trials``, one row a trial, or ``gaps``, one row a gap between tokens.

    Raises:
        SpecError: The format or the table is unknown, or a binary one has no file.
        MissingDependencyError: Parquet is asked for and pyarrow is not installed.
        RunFolderError: The file exists or cannot be written.
    """
    for name, choices, given in (
        ("format", get_args(FileFormat), file_format),
        ("table", get_args(Table), table),
    ):
        if given not in choices:
            raise SpecError(
                f"There is no {name} {given!r}.", remedy=f"Choose from: {listing(choices)}."
            )
    columns = trial_lists(run) if table == "trials" else _gap_lists(run)
    if file_format == "parquet":
        _write_parquet(columns, path)
        return None
    if path is None:
        text = io.StringIO(newline="")
        _write_text(columns, text, file_format)
        return text.getvalue()
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            _write_text(columns, file, file_format)
    except OSError as error:
        raise _unwritable(path, error) from error
    return None


def _gap_lists(run: Run) -> dict[str, list[Any]]:
    """Return the gaps as lists, with the id of each trial for its row."""
    columns = gap_columns(run)
    ids = [trial.trial_id for trial in run.trials]
    lists = {name: values.tolist() for name, values in columns.items()}
    lists["context_length"] = [None if v < 0 else v for v in lists["context_length"]]
    return {"trial_id": [ids[row] for row in lists.pop("trial")], **lists}


def _write_text(columns: dict[str, list[Any]], file: IO[str], file_format: str) -> None:
    """Write columns as CSV or JSON."""
    if file_format == "json":
        whole = {"schema_version": SCHEMA_VERSION, "columns": columns}
        file.write(msgspec.json.encode(whole).decode() + "\n")
        return
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(_rows(columns))


def _rows(columns: dict[str, list[Any]]) -> Iterator[list[Any]]:
    """Yield the rows of a CSV file: numbers in full, missing values empty, no formulas."""
    for row in zip(*columns.values(), strict=True):
        yield [_cell(value) for value in row]


def _cell(value: Any) -> Any:
    """Return what stands in a cell."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # The writer quotes a line break only where it is the one that ends its rows.
        text = value.replace("\r\n", "\n").replace("\r", "\n")
        return f"'{text}" if value.startswith(_FORMULA) else text
    return value


def _write_parquet(columns: dict[str, list[Any]], path: Path | None) -> None:
    """Write columns as Parquet."""
    if path is None:
        raise SpecError("Parquet needs a file.", remedy="Add --out FILE.parquet.")
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingDependencyError(
            "Parquet needs pyarrow, which is not installed.",
            remedy="Install it: pip install 'regimescope[catalog]'. Or use --format csv.",
        ) from error
    try:
        with path.open("xb") as file:
            parquet.write_table(pyarrow.table(columns), file)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> RunFolderError:
    """Return the error for a file that cannot be written."""
    return RunFolderError(
        f"{path} cannot be written: {error.strerror or error}.",
        remedy="Name another file; one that exists is kept.",
    )
