"""The TOML of a case: what it may hold, read and checked. Layer: ``importers``.

Source: formats, section 1 (case TOML). ``[expected]`` and ``[[series]]`` are never read.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from regimescope.errors import InputError, UserError
from regimescope.importers.case_units import better_direction, known_units
from regimescope.reasons import Reason

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - the standard library gained a TOML reader in 3.11
    import tomli as tomllib

# A case is retyped by hand; the limit keeps a wrong file from filling the memory.
MAX_BYTES = 16 * 1024 * 1024
# Deepest nesting of lists and tables (formats, section 0); the format itself needs three.
MAX_NESTING = 64
# No axis of a model runs further; above 2**53 a float skips whole numbers.
MOST_X = 10**12
# No published time is shorter than a picosecond or longer than thirty years.
LEAST_VALUE, MOST_VALUE = 1e-12, 1e12
MAX_LISTED = 20
# A plateau is given by its ends and level. So many points on each keep a step apart from a slope,
# and leave more than the four normal values that a baseline needs.
PLATEAU_POINTS = 8

Samples = list[tuple[float, list[float]]]
Points = list[tuple[float, float]]


class CaseRun(msgspec.Struct, frozen=True, kw_only=True):
    """One process, or one occasion of measuring."""

    id: str = ""
    points: Points = []
    samples: Samples = []
    process_per_point: bool = False


class CaseFile(msgspec.Struct, frozen=True, kw_only=True):
    """A case as it stands in its file; other keys are passed over."""

    id: str
    axis: Literal["budget", "context", "depth", "prompt", "batch", "capacity", "time"]
    phase: Literal["prefill", "decode", "mixed", "kernel"]
    unit: str
    better: Literal["lower", "higher"]
    source: str = ""
    axis_unit: str | None = None
    metric: str = ""
    points: Points = []
    samples: Samples = []
    spread: Points = []
    plateaus: list[tuple[float, float, float]] = []
    failures: list[tuple[float, str]] = []
    run: list[CaseRun] = []
    order: str = "unknown"
    processes: int | str = "unknown"
    samples_per_point: int | str = "unknown"
    tokens_per_measure: int | None = None
    rounded: bool = False
    stack: dict[str, str] = {}


class Row(NamedTuple):
    """One published number.

    Attributes:
        key: Where it stands, for a message.
        x: Value of the swept axis.
        value: The number.
        run: Ordinal of its ``[[run]]``; ``None`` outside of one.
        repeat: Ordinal among the numbers of its x in its run.
    """

    key: str
    x: int
    value: float
    run: int | None
    repeat: int


def looks_like_case(path: Path) -> bool:
    """Return whether a file is a case by its content: it has the keys ``id`` and ``axis``.

    Raises:
        UserError: The file cannot be read.
    """
    try:
        with path.open("rb") as file:
            head = file.read(1 << 16)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}.", remedy="Name a readable file.") from error
    keys = re.findall(rb"(?m)^\s*\"?(id|axis)\"?\s*=", head)
    return {b"id", b"axis"} <= set(keys)


def no_case(path: Path) -> UserError:
    """Return the error for a TOML file that is no case: what its reader says, or what it lacks."""
    try:
        _toml(path)
    except UserError as error:
        return error
    return UserError(
        f"{path} is no case: it lacks the keys id and axis.",
        remedy='Add them, for example id = "mine" and axis = "budget".',
    )


def read_case_file(path: Path) -> CaseFile:
    """Read and check the keys of a case file.

    Raises:
        InputError: A key is missing, or has a value that it cannot have.
        UserError: The file cannot be read or is no TOML.
    """
    table = _toml(path)
    try:
        case = msgspec.convert(table, CaseFile)
    except msgspec.ValidationError as error:
        raise InputError(
            Reason.INVALID_LATENCY, f"{path}: {error}.", remedy="Correct this key of the file."
        ) from error
    direction = better_direction(case.unit)
    if direction is None:
        raise InputError(
            Reason.INVALID_LATENCY,
            f"{path}: unit: {case.unit!r} is not a known unit.",
            remedy=f"Known units: {known_units()}.",
        )
    if direction != case.better:
        raise InputError(
            Reason.INVALID_LATENCY,
            f"{path}: better: {case.better!r} does not fit the unit {case.unit}.",
            remedy=f"A number in {case.unit} is better when it is {direction}.",
        )
    if case.tokens_per_measure is not None and not 1 <= case.tokens_per_measure <= MOST_X:
        raise InputError(
            Reason.INVALID_LATENCY,
            f"{path}: tokens_per_measure: {case.tokens_per_measure} is not a number of tokens.",
            remedy="Give a whole number, 1 or more, or leave it out.",
        )
    return case


def case_rows(path: Path, case: CaseFile) -> list[Row]:
    """Return the numbers of a case, the raw ones where both raw and summarized ones are given.

    Raises:
        InputError: There is none, or one is no possible measurement.
    """
    rows, problems = [], []
    for key, x, value, run, repeat in _numbers(case):
        slip = _slip(case, x, value)
        if slip:
            problems.append(f"{path}: {key}: {slip}")
        else:
            rows.append(Row(key, int(x), value, run, repeat))
    if problems:
        shown = problems[:MAX_LISTED]
        if len(problems) > MAX_LISTED:
            shown.append(f"and {len(problems) - MAX_LISTED} more")
        raise InputError(
            Reason.INVALID_LATENCY, "\n".join(shown), remedy="Correct or remove these numbers."
        )
    if not rows:
        raise InputError(
            Reason.EMPTY,
            f"{path} has no measurements under points, samples, plateaus or [[run]].",
            remedy="Add them, for example points = [[1, 0.5], [2, 0.9]].",
        )
    return rows


def failed_values(path: Path, case: CaseFile) -> list[tuple[int, str]]:
    """Return the values at which the measurement failed, with what happened.

    Raises:
        InputError: A value is impossible.
    """
    for k, (x, _) in enumerate(case.failures):
        slip = _slip(case, x, 1.0)
        if slip:
            raise InputError(
                Reason.INVALID_BUDGET, f"{path}: failures[{k}]: {slip}", remedy="Correct it."
            )
    return [(int(x), what) for x, what in case.failures]


def _toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file of bounded size and depth."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path} is larger than 16 MiB.", remedy="A case is a short table.")
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}.", remedy="Name a readable file.") from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}.",
            remedy="Save it as UTF-8.",
        ) from error
    except RecursionError as error:
        raise _too_deep(path) from error
    except ValueError as error:  # TOMLDecodeError, and integers of more digits than Python reads
        raise UserError(f"{path} is no TOML: {error}.", remedy="Correct the file.") from error
    if depth_exceeds(table, MAX_NESTING):
        raise _too_deep(path)
    return table


def _too_deep(path: Path) -> UserError:
    return UserError(
        f"{path} is nested deeper than {MAX_NESTING} levels.", remedy="Flatten its lists."
    )


def depth_exceeds(value: object, most: int) -> bool:
    """Return whether lists and tables stand in each other more than ``most`` deep."""
    level: list[object] = [value]
    for _ in range(most + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return any(isinstance(inner, (dict, list)) for inner in level)


def _numbers(case: CaseFile) -> Iterator[tuple[str, float, float, int | None, int]]:
    """Yield key, x, value, run and repeat of every number, raw ones before summaries."""
    if case.run:
        for number, run in enumerate(case.run):
            yield from _of_table(f"run[{number}]", run.points, run.samples, number)
    elif case.plateaus:
        for k, (first, last, level) in enumerate(case.plateaus):
            for x in _on_plateau(first, last):
                yield f"plateaus[{k}]", x, level, None, 0
    else:
        yield from _of_table("", case.points, case.samples, None)


def _on_plateau(first: float, last: float) -> Iterator[float]:
    """Yield whole numbers on a plateau, different ones, fewer where it is narrow.

    They are middles of equal parts: the end itself belongs to one of two plateaus, and the file
    does not say to which.
    """
    before = math.nan
    for j in range(PLATEAU_POINTS):
        x = first + (last - first) * (2 * j + 1) / (2 * PLATEAU_POINTS)
        place = math.floor(x) if math.isfinite(x) else x
        if place != before:
            yield place
        before = place


def _of_table(
    prefix: str, points: Points, samples: Samples, run: int | None
) -> Iterator[tuple[str, float, float, int | None, int]]:
    dot = "." if prefix else ""
    if samples:
        for k, (x, values) in enumerate(samples):
            for repeat, value in enumerate(values):
                yield f"{prefix}{dot}samples[{k}]", x, value, run, repeat
        return
    seen: dict[float, int] = {}
    for k, (x, value) in enumerate(points):
        repeat = seen.get(x, 0)
        seen[x] = repeat + 1
        yield f"{prefix}{dot}points[{k}]", x, value, run, repeat


def _slip(case: CaseFile, x: float, value: float) -> str | None:
    """Return what is wrong with a point, ``None`` if nothing is."""
    least = 0 if case.axis in ("context", "depth", "time", "prompt") else 1
    if not math.isfinite(x) or x % 1 or not least <= x <= MOST_X:
        return f"x = {x:g} is not a whole number from {least} to {MOST_X:,}"
    if not math.isfinite(value) or not LEAST_VALUE <= value <= MOST_VALUE:
        return f"y = {value:g} is not a number from {LEAST_VALUE:g} to {MOST_VALUE:g}"
    if x == 0 and case.axis == "prompt":
        return "a prompt of no tokens has no prefill"
    return None
