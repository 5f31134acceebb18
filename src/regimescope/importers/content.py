"""The content of a file of another tool, read once and within bounds. Layer: ``importers``.

Source: formats, section 0: content decides, file names never do; nothing in it is executed.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regimescope.errors import UserError
from regimescope.importers.case_file import MAX_NESTING, depth_exceeds

# Larger files are no results of a benchmark; the limit keeps a wrong one from filling the memory.
MAX_BYTES = 512 * 1024 * 1024
_MISSING = {"", "null", "nan", "none", "na"}

Table = Mapping[str, Any]


class Content(NamedTuple):
    """A file as text and, where it is JSON, as objects.

    Attributes:
        path: Where it is.
        text: All of it, without a byte order mark.
        objects: The objects of a JSON file, of a list in one, or of the lines of one; empty for
            other files.
        torn: Whether a half-written last line was passed over, as of a run that was interrupted.
    """

    path: Path
    text: str
    objects: tuple[Table, ...]
    torn: bool = False

    @property
    def first(self) -> Table:
        """The first object; empty where there is none."""
        return self.objects[0] if self.objects else {}

    def rows(self) -> list[dict[str, str]]:
        """Return the rows of a CSV table by the names of its header; none where it is no table."""
        try:
            return list(csv.DictReader(self.text.splitlines(), strict=True))
        except csv.Error:
            return []


def read_content(path: Path) -> Content:
    """Read a file.

    Raises:
        UserError: It cannot be read, is too large or nested too deep, or is no UTF-8 text.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path} is larger than 512 MiB.", remedy="Split the file.")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}.", remedy="Name a readable file.") from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}.",
            remedy="Save it as UTF-8.",
        ) from error
    try:
        return Content(path, text, *_objects(text))
    except RecursionError as error:
        raise _too_deep(path) from error
    except _TooDeep as error:
        raise _too_deep(path) from error


class _TooDeep(Exception):
    """Lists and tables stand in each other beyond the limit."""


def _too_deep(path: Path) -> UserError:
    return UserError(
        f"{path} is nested deeper than {MAX_NESTING} levels.", remedy="This is no benchmark file."
    )


def _objects(text: str) -> tuple[tuple[Table, ...], bool]:
    """Return the objects of JSON text or of its lines, and whether its last line is torn."""
    if text.lstrip()[:1] not in ("{", "["):
        return (), False
    try:
        return _tables(json.loads(text)), False
    except ValueError:
        return _of_lines(text)


def _of_lines(text: str) -> tuple[tuple[Table, ...], bool]:
    """Return the objects of JSON lines; none if another line than the last cannot be read."""
    found: list[Table] = []
    lines = [line for line in text.splitlines() if line.strip()]
    for number, line in enumerate(lines, start=1):
        try:
            found += _tables(json.loads(line))
        except ValueError:
            return (tuple(found), True) if found and number == len(lines) else ((), False)
    return tuple(found), False


def _tables(value: Any) -> tuple[Table, ...]:
    """Return the objects of a JSON value: itself, or those of a list."""
    if depth_exceeds(value, MAX_NESTING):
        raise _TooDeep
    if isinstance(value, dict):
        return (value,)
    return tuple(item for item in value if isinstance(item, dict)) if type(value) is list else ()


def at(table: Any, path: str) -> Any:
    """Return what stands at ``a.b.c`` in tables; ``None`` where nothing does."""
    for name in path.split("."):
        if not isinstance(table, Mapping):
            return None
        table = table.get(name)
    return table


def number(value: Any) -> float | None:
    """Return a finite number, also one written as text; ``None`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str) and value.strip().lower() in _MISSING:
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def whole(value: Any) -> int | None:
    """Return a whole number of zero or more; ``None`` for anything else."""
    found = number(value)
    return int(found) if found is not None and found >= 0 and found % 1 == 0 else None


def above_zero(value: Any) -> float | None:
    """Return a number above zero; ``None`` for anything else."""
    found = number(value)
    return found if found is not None and found > 0 else None


def numbers(value: Any) -> list[float] | None:
    """Return a list of numbers above zero; ``None`` if it is no list or one of them is not."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return None
    found = [above_zero(item) for item in value]
    return [item for item in found if item is not None] if None not in found else None
