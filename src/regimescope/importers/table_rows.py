"""Rows of a table, whatever holds its fields: CSV, TSV, JSON, Parquet. Layer: ``importers``."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from regimescope.errors import MissingDependencyError, SpecError, UserError
from regimescope.importers.content import read_content

# Larger tables are not typed by hand; the limit keeps a wrong file from filling the memory.
MAX_BYTES = 512 * 1024 * 1024
_DELIMITERS = ",\t;"
_PARQUET = b"PAR1"


def rows_of(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields of every row that is not blank; the first names the columns.

    JSON, a list of objects or one a line, gives rows too: the names of all keys come first, those
    of nested objects joined by dots, and a value that an object lacks is empty. Parquet is read by
    pyarrow, columns of lists and objects left out.

    Raises:
        UserError: The file cannot be read, is too large, or is no table.
        MissingDependencyError: It is Parquet and pyarrow is not installed.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path} is larger than 512 MiB.", remedy="Split the file.")
        if is_parquet(path):
            yield from _of_parquet(path)
            return
        with path.open(encoding="utf-8-sig", newline="") as file:
            start = file.read(1)
            while start.isspace():
                start = file.read(1)
            if start in ("{", "["):
                yield from _of_json(path)
                return
            file.seek(0)
            delimiter = _delimiter(file.readline())
            file.seek(0)
            reader = csv.reader(file, strict=True, delimiter=delimiter)
            for row in reader:
                if any(field.strip() for field in row):
                    # A mark at the start of the file stands there again after going back.
                    yield reader.line_num, [field.lstrip("\ufeff") for field in row]
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}.", remedy="Name a readable file.") from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}.",
            remedy="Save it as UTF-8.",
        ) from error
    except csv.Error as error:
        raise UserError(f"{path} is no CSV table: {error}.", remedy="Correct the file.") from error


def is_parquet(path: Path) -> bool:
    """Return whether a file begins as Parquet does; one that cannot be read does not."""
    try:
        with path.open("rb") as file:
            return file.read(len(_PARQUET)) == _PARQUET
    except OSError:
        return False


def parse_where(pairs: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return ``COLUMN=VALUE`` texts as pairs.

    Raises:
        SpecError: One has no ``=``, or no column before it.
    """
    found = [tuple(part.strip() for part in pair.split("=", 1)) for pair in pairs]
    for pair, parts in zip(pairs, found, strict=True):
        if len(parts) != 2 or not parts[0]:
            raise SpecError(
                f"--where {pair!r} is not COLUMN=VALUE.", remedy="Write for example device=mps."
            )
    return tuple((parts[0], parts[1]) for parts in found)


def _delimiter(header: str) -> str:
    """Return what separates the names of the columns: the one that occurs most, else a comma."""
    return max(_DELIMITERS, key=header.count)


def _of_json(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of objects; numbers count the objects."""
    content = read_content(path)
    objects = [dict(_flat(table, "")) for table in content.objects]
    if not objects:
        raise UserError(
            f"{path} holds no objects.", remedy="Give a list of objects, or one object a line."
        )
    columns = list(dict.fromkeys(name for table in objects for name in table))
    yield 0, columns
    for ordinal, table in enumerate(objects, start=1):
        yield ordinal, [table.get(name, "") for name in columns]


def _of_parquet(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a Parquet file, a part of it at a time; numbers count the rows."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingDependencyError(
            f"{path} is Parquet, which needs pyarrow.",
            remedy="Install it: pip install 'regimescope[catalog]'. Or save the table as CSV.",
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            names = [f.name for f in file.schema_arrow if not pyarrow.types.is_nested(f.type)]
            yield 0, names
            ordinal = 0
            for batch in file.iter_batches(columns=names):
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    ordinal += 1
                    yield ordinal, ["" if value is None else str(value) for value in row]
    except (pyarrow.ArrowException, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{path} is damaged Parquet: {reason}.", remedy="Write the file again."
        ) from error


def _flat(table: Any, before: str) -> Iterator[tuple[str, str]]:
    """Yield the values of nested tables as text under names joined by dots; lists are left out."""
    for key, value in table.items():
        name = f"{before}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{name}.")
        elif not isinstance(value, list):
            yield name, "" if value is None else str(value)
