"""Reading run folders, perhaps from a stranger. Layer: ``store``."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from regimescope.errors import RunFolderError
from regimescope.plan import refuse_impossible
from regimescope.records import SCHEMA_VERSION, Event, Run, RunHeader, Trial
from regimescope.store.files import open_regular
from regimescope.store.limits import (
    EVENTS,
    HEADER,
    MAX_HEADER_BYTES,
    MAX_LINE_BYTES,
    MAX_VALUES,
    TRIALS,
    Allowance,
    count_values,
)
from regimescope.store.migrations import migrate_event, migrate_header, migrate_trial

# Numbers in arrays and in files of other tools are 64 bits wide.
INTEGERS = range(-(2**63), 2**63)

_NOT_OURS = "Name a folder that `regimescope scan` has written."
_RESTORE = "The line is damaged; restore the file, or delete that line."
_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
# Arrays of gaps hold no keys; looking for doubled keys, they are passed over.
_LONG_ARRAY = re.compile(rb"\[[-+0-9.eE, ]{64,}\]")

# Integers beyond 64 bits have at least as many digits.
_MANY_DIGITS = b"0" * 19
_DIGITS_TO_ZEROS = bytes.maketrans(b"123456789", b"000000000")

_Line = TypeVar("_Line", Trial, Event)


class StoredHeader(NamedTuple):
    """A header of the present version, and the version it has on the disk."""

    header: RunHeader
    version: int


class _Versioned(msgspec.Struct):
    """The one field that decides how to read the others."""

    schema_version: Any = None


def is_run_folder(path: Path) -> bool:
    """Return whether a path looks like a run folder."""
    try:
        return (path / HEADER).is_file()
    except (OSError, ValueError):  # unreadable folders, names no system can hold
        return False


def load_header(path: Path) -> RunHeader:
    """Read ``run.json``.

    Raises:
        RunFolderError: There is none, it is damaged, or its schema is newer than this package.
    """
    return read_header(path).header


def load_run(path: str | Path) -> Run:
    """Read a whole run folder.

    A half-written last line, which a crash leaves behind, is passed over and counted.

    Raises:
        RunFolderError: It is no run folder, damaged, too large, or newer than this package.
    """
    folder = Path(path)
    stored = read_header(folder)
    trials, torn_trials = _read_lines(folder / TRIALS, Trial, migrate_trial, stored.version)
    events: list[Event] = []
    torn_events = 0
    if os.path.lexists(folder / EVENTS):  # events explain a run; without them it is still a run
        events, torn_events = _read_lines(folder / EVENTS, Event, migrate_event, stored.version)
    return Run(
        header=stored.header,
        trials=tuple(trials),
        events=tuple(events),
        torn_lines=torn_trials + torn_events,
    )


def read_header(path: Path) -> StoredHeader:
    """Read ``run.json`` and the version it was written in.

    Raises:
        RunFolderError: As ``load_header``.
    """
    file = path / HEADER
    content = _read_small(file)
    try:
        _refuse_byte_order_mark(content, file, 1)
        version = _version(msgspec.json.decode(content, type=_Versioned).schema_version, file)
        _refuse_doubled_keys(content)
        if version < SCHEMA_VERSION:
            table = migrate_header(msgspec.json.decode(content), version)
            header = msgspec.convert(table, RunHeader)
        else:
            header = msgspec.json.decode(content, type=RunHeader)
        _refuse_wide_integers(content, header)
        refuse_impossible(header.plan.processes if header.plan is not None else ())
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise RunFolderError(f"{file} is damaged: {error}.", remedy=_NOT_OURS) from error
    return StoredHeader(header, version)


def _read_small(file: Path) -> bytes:
    """Return the content of a header.

    Raises:
        RunFolderError: There is none, it cannot be read, or it is too large.
    """
    try:
        with os.fdopen(open_regular(file, os.O_RDONLY), "rb") as source:
            content = source.read(MAX_HEADER_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise RunFolderError(
            f"{file.parent} is no run folder: {HEADER}: {why}.", remedy=_NOT_OURS
        ) from error
    if len(content) > MAX_HEADER_BYTES:
        raise RunFolderError(
            f"{file} is larger than the {MAX_HEADER_BYTES:,} bytes of a header.", remedy=_NOT_OURS
        )
    if count_values(content) > MAX_VALUES // 5:  # values of many kinds, five times as large
        raise RunFolderError(
            f"{file} holds more than {MAX_VALUES // 5:,} values.", remedy=_NOT_OURS
        )
    return content


def _version(version: Any, file: Path) -> int:
    """Refuse a header without a schema version or with one from the future."""
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise RunFolderError(f"{file} has no schema version.", remedy=_NOT_OURS)
    if version > SCHEMA_VERSION:
        raise RunFolderError(
            f"{file} has schema version {version}; this regimescope reads up to {SCHEMA_VERSION}.",
            remedy="Upgrade regimescope: pip install --upgrade regimescope.",
        )
    return version


def _read_lines(
    file: Path, kind: type[_Line], migrate: Callable[[Any, int], Any], version: int
) -> tuple[list[_Line], int]:
    """Return the records of a file and the number of torn lines (0 or 1)."""
    decoder = msgspec.json.Decoder(kind)
    allowance = Allowance(file)
    records: list[_Line] = []
    try:
        for line in read_lines(file):
            allowance.take(line)
            if not line.endswith(b"\n"):
                return records, 1
            _refuse_byte_order_mark(line, file, allowance.lines)
            if version < SCHEMA_VERSION:
                table = migrate(msgspec.json.decode(line, type=dict[str, Any]), version)
                record = msgspec.convert(table, kind)
            else:
                record = decoder.decode(line)
            _refuse_doubled_keys(line)
            _refuse_wide_integers(line, record)
            records.append(record)
    except OSError as error:
        raise RunFolderError(
            f"{file} cannot be read: {error.strerror}.", remedy=_NOT_OURS
        ) from error
    except (ValueError, RecursionError) as error:
        raise RunFolderError(
            f"{file}, line {allowance.lines}: {error}.", remedy=_RESTORE
        ) from error
    return records, 0


def read_lines(file: Path) -> Iterator[bytes]:
    """Yield the lines of a regular file, line ends kept, none much longer than is allowed.

    Raises:
        RunFolderError: It is a link, a pipe or a device.
        OSError: It cannot be read.
    """
    with os.fdopen(open_regular(file, os.O_RDONLY), "rb") as lines:
        while line := lines.readline(MAX_LINE_BYTES + 1):
            yield line


def _refuse_byte_order_mark(content: bytes, file: Path, number: int) -> None:
    """Name what an editor did to a file; the decoder would only name the byte."""
    if number == 1 and content.startswith(_BYTE_ORDER_MARKS):
        raise RunFolderError(
            f"{file} begins with a byte order mark, so another program has rewritten it.",
            remedy="Restore the file, or save it as UTF-8 without a byte order mark.",
        )


def _refuse_doubled_keys(content: bytes) -> None:
    """Refuse an object that names a key twice, of which readers would take one or the other.

    Raises:
        ValueError: A key comes twice.
    """
    json.loads(_LONG_ARRAY.sub(b"[]", content), object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> None:
    """Raise for a doubled key; what the object holds is not needed."""
    if len(pairs) > 1 and len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("an object names a key twice")


def _refuse_wide_integers(content: bytes, record: msgspec.Struct) -> None:
    """Refuse integers beyond 64 bits, anywhere in a record.

    Raises:
        ValueError: There is one.
    """
    # Looking through every value is slow, and nearly no file has such a long number.
    if _MANY_DIGITS in content.translate(_DIGITS_TO_ZEROS) and not _fits(record):
        raise ValueError("an integer is beyond 64 bits")


def _fits(value: Any) -> bool:
    """Return whether all integers in a value fit into 64 bits."""
    if isinstance(value, int):
        return value in INTEGERS
    if isinstance(value, dict):
        return all(map(_fits, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_fits, value))
    if isinstance(value, msgspec.Struct):
        return all(_fits(getattr(value, name)) for name in value.__struct_fields__)
    return True
