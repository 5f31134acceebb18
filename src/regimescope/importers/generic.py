"""A table of anybody's measurements: the user names the columns. Layer: ``importers``.

Source: formats, sections 0 and 1. The generic reader stops at the first kind of bad input with the
lines concerned, since a user who retypes numbers wants to hear of a slip.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from regimescope.errors import InputError, UserError
from regimescope.importers.table_rows import rows_of
from regimescope.importers.table_units import Unit, unit_of
from regimescope.reasons import Reason
from regimescope.records import SCHEMA_VERSION, Cell, Event, Run, RunHeader, Series, Trial
from regimescope.spec import MAX_BUDGET
from regimescope.units import count, listing, utc_now

MAX_LISTED = 20
# No generation takes less than a nanosecond or more than thirty years.
LEAST_S, MOST_S = 1e-9, 1e9
_MISSING = {"", "null", "nan", "none", "na"}


class Columns(NamedTuple):
    """Which columns of a table hold what, and which of its rows count.

    Attributes:
        x: The decoding budget, whole tokens, 1 or more.
        y: The latency.
        unit: Unit of ``y``, see ``table_units``; absent, the name of the column may end in one.
        process: What tells process runs apart, as text; rows of one value are one process.
        repeat: Ordinal of a measurement among those of its budget and process.
        order: Ordinal in time, within its process.
        n: Output tokens; without it nobody knows whether a generation ended early.
        where: Pairs of a column and the text that rows must have there.
    """

    x: str
    y: str
    unit: str | None = None
    process: str | None = None
    repeat: str | None = None
    order: str | None = None
    n: str | None = None
    where: tuple[tuple[str, str], ...] = ()


class _Row(NamedTuple):
    """One row: its line, and what stands in a column by the name of that column."""

    line: int
    values: dict[str, str]


class _Problem(NamedTuple):
    """What is wrong with a row."""

    reason: Reason
    message: str


def read_table(path: Path, columns: Columns) -> Run:
    """Read a table with one measurement a row: CSV, fields separated by tabs or semicolons, JSON.

    Args:
        path: UTF-8 text, with or without a byte order mark; the first row names the columns.
        columns: What they hold.

    Returns:
        A run of trials; what no column tells of process, order and token count is unknown.

    Raises:
        InputError: A column is missing, a value is not a number, not positive or not finite, two
            rows are the same measurement, or there are fewer than two rows.
        UserError: The file cannot be read or is not UTF-8.
    """
    if columns.x == columns.y:
        raise UserError(
            f"--x and --y both name {columns.x!r}.", remedy="Name two different columns."
        )
    unit = unit_of(columns.unit, columns.y)
    problems: list[_Problem] = []
    rows, others = _chosen(path, columns, problems)
    processes = {text: k for k, text in enumerate(dict.fromkeys(_text(r, columns) for r in rows))}
    trials = []
    for row in rows:
        found = _trial(row, columns, unit, processes, path)
        if isinstance(found, _Problem):
            problems.append(found)
        else:
            trials.append(found)
    _refuse(path, [*problems, *_twice(path, trials, columns)])
    if len(trials) < 2:
        raise InputError(
            Reason.EMPTY if not trials else Reason.TOO_FEW_BUDGETS,
            f"{path} holds {count(len(trials), 'measurement')}; a curve needs at least two.",
            remedy="Measure more budgets." if not others else "Choose other rows with --where.",
        )
    header = RunHeader(
        schema_version=SCHEMA_VERSION, run=path.stem, created_utc=utc_now(), source="generic"
    )
    told = f"{path.name}: {count(others, 'row')} left out by --where"
    left_out = (Event(kind="skip", at_utc=utc_now(), message=told),) if others else ()
    return Run(header=header, trials=tuple(trials), events=left_out)


def _chosen(path: Path, columns: Columns, problems: list[_Problem]) -> tuple[list[_Row], int]:
    """Return the rows that count and how many do not; add those that are no rows to problems."""
    rows = rows_of(path)
    header = next(rows, None)
    if header is None:
        raise InputError(
            Reason.EMPTY, f"{path} is empty.", remedy="Give a table with a header row."
        )
    names = [name.strip() for name in header[1]]
    wanted = [*columns[:2], columns.process, columns.repeat, columns.order, columns.n]
    places = {
        name: _column(path, names, name)
        for name in dict.fromkeys([*wanted, *(name for name, _ in columns.where)])
        if name is not None
    }
    chosen, others = [], 0
    for line, row in rows:
        if len(row) > len(names):
            excess = f"{path}:{line}: {len(row)} fields, but the header names {len(names)}"
            problems.append(_Problem(Reason.INVALID_LATENCY, excess))
            continue
        values = {name: _field(row, at) for name, at in places.items()}
        if all(values[name] == text for name, text in columns.where):
            chosen.append(_Row(line, values))
        else:
            others += 1
    return chosen, others


def _text(row: _Row, columns: Columns) -> str:
    """Return what tells the process of a row."""
    return row.values[columns.process] if columns.process is not None else ""


def _twice(path: Path, trials: Sequence[Trial], columns: Columns) -> list[_Problem]:
    """Return rows that are the same repeat of one budget in one process, where columns tell it."""
    if columns.repeat is None:
        return []
    first: dict[tuple[int | None, int | None, int], Trial] = {}
    found = []
    for trial in trials:
        key = (trial.process_run, trial.cell.budget, trial.repeat)
        if first.setdefault(key, trial) is not trial:
            lines = f"{first[key].trial_id} and {trial.trial_id}"
            what = f"{path}: {lines} are the same repeat of budget {trial.cell.budget}"
            found.append(_Problem(Reason.POSSIBLE_DUPLICATES, what))
    return found


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


def _trial(
    row: _Row, columns: Columns, unit: Unit, processes: dict[str, int], path: Path
) -> Trial | _Problem:
    """Return the record of one row, or what is wrong with it."""
    place = f"{path}:{row.line}"
    budget = _budget(row.values[columns.x])
    latency_s = _latency_s(row.values[columns.y], unit)
    if isinstance(budget, str):
        return _Problem(Reason.INVALID_BUDGET, f"{place}: {columns.x}: {budget}")
    if isinstance(latency_s, str):
        return _Problem(Reason.INVALID_LATENCY, f"{place}: {columns.y}: {latency_s}")
    ordinals = {}
    for name in (columns.repeat, columns.order, columns.n):
        if name is not None:
            value = _number(row.values[name])
            if value is None or value < 0 or value % 1:
                what = f"{place}: {name}: {row.values[name]!r} is not a whole number from 0 on"
                return _Problem(Reason.INVALID_LATENCY, what)
            ordinals[name] = int(value)
    return Trial(
        trial_id=f"line{row.line}",
        occasion=path.name,
        series=Series(engine="generic"),
        cell=Cell(budget=budget),
        status="ok",
        warmup=False,
        phase="decode" if unit.of_step else "mixed",
        process_run=None if columns.process is None else processes[_text(row, columns)],
        repeat=ordinals.get(columns.repeat or "", 0),
        order_index=ordinals.get(columns.order or ""),
        output_tokens=ordinals.get(columns.n or ""),
        reasons=[Reason.UNITS_FROM_USER]
        if columns.n is not None
        else [Reason.TOKENS_NOT_VERIFIED, Reason.UNITS_FROM_USER],
        # The time of a token is that of one step, however many there were.
        decode_s=latency_s if unit.of_step else None,
        decode_steps=1 if unit.of_step else None,
        e2e_s=None if unit.of_step else latency_s,
    )


def _budget(text: str) -> int | str:
    """Return a decoding budget, or what is wrong with the text."""
    value = _number(text)
    if value is None or value <= 0 or value % 1 or value > MAX_BUDGET:
        return f"{text!r} is not a whole number of tokens from 1 to {MAX_BUDGET:,}"
    return int(value)


def _latency_s(text: str, unit: Unit) -> float | str:
    """Return a latency in seconds, or what is wrong with the text."""
    value = _number(text)
    latency_s = None if value is None else unit.seconds(value)
    if latency_s is None or not LEAST_S <= latency_s <= MOST_S:
        return f"{text!r} is not a number of seconds above zero, up to {MOST_S:g}"
    return latency_s


def _number(text: str) -> float | None:
    """Return a finite number, or ``None`` for anything else. Digit grouping is not a number."""
    if text.lower() in _MISSING or not re.fullmatch(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?", text):
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _refuse(path: Path, problems: Sequence[_Problem]) -> None:
    """Raise one error that lists what is wrong, 20 lines at most."""
    if not problems:
        return
    lines = [problem.message for problem in problems[:MAX_LISTED]]
    if len(problems) > MAX_LISTED:
        lines.append(f"and {len(problems) - MAX_LISTED} more")
    raise InputError(
        problems[0].reason,
        "\n".join(lines),
        remedy=f"Correct or remove {'this row' if len(problems) == 1 else 'these rows'} of "
        f"{path.name}.",
    )
