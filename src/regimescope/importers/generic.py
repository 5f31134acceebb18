"""A table of anybody's measurements: the user names the columns. Layer: ``importers``.

Source: formats, sections 0 and 1. The generic reader stops at the first kind of bad input with the
lines concerned, since a user who retypes numbers wants to hear of a slip.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from regimescope.errors import InputError, UserError
from regimescope.reasons import Reason
from regimescope.records import SCHEMA_VERSION, Cell, Run, RunHeader, Series, Trial
from regimescope.spec import MAX_BUDGET
from regimescope.units import count, listing, utc_now

# Larger tables are not typed by hand; the limit keeps a wrong file from filling the memory.
MAX_BYTES = 512 * 1024 * 1024
MAX_LISTED = 20
# No generation takes less than a nanosecond or more than thirty years.
LEAST_S, MOST_S = 1e-9, 1e9
_MISSING = {"", "null", "nan", "none", "na"}


def read_table(path: Path, *, x: str, y: str) -> Run:
    """Read a CSV file with one measurement a row.

    Args:
        path: UTF-8 text, with or without a byte order mark; the first row names the columns.
        x: Column of the decoding budget, whole tokens, 1 or more.
        y: Column of the latency in seconds, end to end.

    Returns:
        A run of trials whose process, order and token count are unknown.

    Raises:
        InputError: A column is missing, a value is not a number, not positive or not finite, or
            there are fewer than two rows.
        UserError: The file cannot be read or is not UTF-8.
    """
    if x == y:
        raise UserError(f"--x and --y both name {x!r}.", remedy="Name two different columns.")
    rows = _rows(path)
    header = next(rows, None)
    if header is None:
        raise InputError(
            Reason.EMPTY, f"{path} is empty.", remedy="Give a table with a header row."
        )
    columns = [name.strip() for name in header[1]]
    at_x, at_y = _column(path, columns, x), _column(path, columns, y)
    problems: list[tuple[Reason, str]] = []
    trials = []
    for line, row in rows:
        if len(row) > len(columns):
            excess = f"{path}:{line}: {len(row)} fields, but the header names {len(columns)}"
            problems.append((Reason.INVALID_LATENCY, excess))
            continue
        budget = _budget(_field(row, at_x))
        latency_s = _latency_s(_field(row, at_y))
        if isinstance(budget, str):
            problems.append((Reason.INVALID_BUDGET, f"{path}:{line}: {x}: {budget}"))
        elif isinstance(latency_s, str):
            problems.append((Reason.INVALID_LATENCY, f"{path}:{line}: {y}: {latency_s}"))
        else:
            trials.append(_trial(line, budget, latency_s, occasion=path.name))
    _refuse(path, problems)
    if len(trials) < 2:
        raise InputError(
            Reason.EMPTY if not trials else Reason.TOO_FEW_BUDGETS,
            f"{path} holds {count(len(trials), 'measurement')}; a curve needs at least two.",
            remedy="Measure more budgets.",
        )
    header_record = RunHeader(
        schema_version=SCHEMA_VERSION,
        run=path.stem,
        created_utc=utc_now(),
        source="generic",
    )
    return Run(header=header_record, trials=tuple(trials))


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields of every row that is not blank."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path} is larger than 512 MiB.", remedy="Split the file.")
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            for row in reader:
                if any(field.strip() for field in row):
                    yield reader.line_num, row
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}.", remedy="Name a readable file.") from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}.",
            remedy="Save it as UTF-8.",
        ) from error
    except csv.Error as error:
        raise UserError(f"{path} is no CSV table: {error}.", remedy="Correct the file.") from error


def _field(row: Sequence[str], at: int) -> str:
    """Return a field without surrounding blanks; a short row has empty ones."""
    return row[at].strip() if at < len(row) else ""


def _column(path: Path, columns: Sequence[str], name: str) -> int:
    """Return the position of a column.

    Raises:
        InputError: It is missing or there are two of it.
    """
    matches = [index for index, column in enumerate(columns) if column == name]
    if not matches:
        raise InputError(
            Reason.EMPTY,
            f"{path} has no column {name!r}.",
            remedy=f"Its columns are: {listing(columns, most=MAX_LISTED)}. The first row must name "
            "them, separated by commas.",
        )
    if len(matches) > 1:
        raise InputError(
            Reason.MIXED_SERIES, f"{path} has {name!r} twice.", remedy="Rename one of the columns."
        )
    return matches[0]


def _trial(line: int, budget: int, latency_s: float, *, occasion: str) -> Trial:
    """Return the record of one row."""
    return Trial(
        trial_id=f"line{line}",
        occasion=occasion,
        series=Series(engine="generic"),
        cell=Cell(budget=budget),
        status="ok",
        warmup=False,
        phase="mixed",
        e2e_s=latency_s,
        reasons=[Reason.TOKENS_NOT_VERIFIED, Reason.UNITS_FROM_USER],
    )


def _budget(text: str) -> int | str:
    """Return a decoding budget, or what is wrong with the text."""
    value = _number(text)
    if value is None or value <= 0 or value % 1 or value > MAX_BUDGET:
        return f"{text!r} is not a whole number of tokens from 1 to {MAX_BUDGET:,}"
    return int(value)


def _latency_s(text: str) -> float | str:
    """Return a latency in seconds, or what is wrong with the text."""
    value = _number(text)
    if value is None or not LEAST_S <= value <= MOST_S:
        return f"{text!r} is not a number of seconds above zero, up to {MOST_S:g}"
    return value


def _number(text: str) -> float | None:
    """Return a finite number, or ``None`` for anything else. Digit grouping is not a number."""
    if text.lower() in _MISSING or not re.fullmatch(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?", text):
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _refuse(path: Path, problems: Sequence[tuple[Reason, str]]) -> None:
    """Raise one error that lists what is wrong, 20 lines at most."""
    if not problems:
        return
    lines = [message for _, message in problems[:MAX_LISTED]]
    if len(problems) > MAX_LISTED:
        lines.append(f"and {len(problems) - MAX_LISTED} more")
    raise InputError(
        problems[0][0],
        "\n".join(lines),
        remedy=f"Correct or remove {'this row' if len(problems) == 1 else 'these rows'} of "
        f"{path.name}.",
    )
