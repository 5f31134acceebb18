"""The run folder: append, load, refuse what is not ours. Layer: ``store``.

::

    <run>/run.json        header, replaced atomically
          trials.jsonl    one finished trial a line, on disk the moment it ends
          events.jsonl    one event a line

Files are input too: a folder may come from a stranger, so nothing in it is executed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from regimescope.errors import RunFolderError
from regimescope.records import SCHEMA_VERSION, Event, Run, RunHeader, Trial

HEADER, TRIALS, EVENTS = "run.json", "trials.jsonl", "events.jsonl"
# A header holds the plan; ten thousand planned trials are about 2 MB.
MAX_HEADER_BYTES = 64 * 1024 * 1024

_Line = TypeVar("_Line", Trial, Event)


class RunFolder:
    """A run folder open for writing."""

    def __init__(self, path: Path) -> None:
        """Refer to a folder that exists; see ``create`` and ``reopen``."""
        self.path = path

    @classmethod
    def create(cls, path: Path, header: RunHeader) -> RunFolder:
        """Make a new run folder.

        Raises:
            RunFolderError: Something is there already, or it cannot be written.
        """
        check_free(path)
        try:
            path.mkdir(parents=True)
            folder = cls(path)
            (path / TRIALS).touch()
            (path / EVENTS).touch()
            folder.write_header(header)
        except OSError as error:
            raise RunFolderError(
                f"The run folder {path} cannot be written: {error.strerror}.",
                remedy="Name another folder with --out.",
            ) from error
        return folder

    @classmethod
    def reopen(cls, path: Path) -> RunFolder:
        """Open a run folder to go on with it.

        Raises:
            RunFolderError: It is no run folder.
        """
        load_header(path)
        return cls(path)

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Keep other writers out, and cut off a half-written last line.

        The system releases the lock when the process ends, however it ends.

        Yields:
            How many lines were cut.

        Raises:
            RunFolderError: Another process writes, or the folder cannot be written.
        """
        try:
            with (self.path / TRIALS).open("ab") as held, (self.path / EVENTS).open("ab"):
                _lock(held, self.path)
                torn = sum(_cut_torn_line(self.path / name) for name in (TRIALS, EVENTS))
                yield torn
        except OSError as error:
            raise RunFolderError(
                f"The run folder {self.path} cannot be written: {error.strerror}.",
                remedy="Make it writable, or free some space; finished trials are kept.",
            ) from error

    def write_header(self, header: RunHeader) -> None:
        """Replace ``run.json`` in one step, so that a crash leaves the old or the new one."""
        content = msgspec.json.format(msgspec.json.encode(header), indent=2)
        replace_file(self.path / HEADER, content + b"\n")

    def append_trial(self, trial: Trial) -> None:
        """Write a finished trial through to the disk."""
        _append(self.path / TRIALS, trial)

    def append_event(self, event: Event) -> None:
        """Write an event through to the disk."""
        _append(self.path / EVENTS, event)


def check_free(path: Path) -> None:
    """Refuse a path where something is already, before anything is measured.

    Raises:
        RunFolderError: The path exists.
    """
    try:
        taken = path.exists() or path.is_symlink()
    except OSError as error:
        raise RunFolderError(
            f"{path} cannot be looked up: {error.strerror}.", remedy="Name another folder."
        ) from error
    if taken:
        remedy = (
            f"Go on with it by --resume {path}, or name another folder with --out."
            if (path / HEADER).is_file()
            else "Name another folder with --out."
        )
        raise RunFolderError(f"{path} exists already; nothing was overwritten.", remedy=remedy)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that a crash leaves either the old content or the new one, never half."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def is_run_folder(path: Path) -> bool:
    """Return whether a path looks like a run folder."""
    return (path / HEADER).is_file()


def load_header(path: Path) -> RunHeader:
    """Read ``run.json``.

    Raises:
        RunFolderError: There is none, it is damaged, or its schema is newer than this package.
    """
    file = path / HEADER
    try:
        if file.stat().st_size > MAX_HEADER_BYTES:
            raise RunFolderError(f"{file} is too large to be a header.", remedy=_NOT_OURS)
        content = file.read_bytes()
        table: Any = msgspec.json.decode(content)
    except OSError as error:
        raise RunFolderError(
            f"{path} is no run folder: {HEADER}: {error.strerror}.", remedy=_NOT_OURS
        ) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise RunFolderError(f"{file} is damaged: {error}.", remedy=_NOT_OURS) from error
    _check_version(table, file)
    try:
        return msgspec.json.decode(content, type=RunHeader)
    except msgspec.ValidationError as error:
        raise RunFolderError(f"{file} is damaged: {error}.", remedy=_NOT_OURS) from error


_NOT_OURS = "Name a folder that `regimescope scan` has written."


def _check_version(table: Any, file: Path) -> None:
    """Refuse a header without a schema version or with one from the future."""
    version = table.get("schema_version") if isinstance(table, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise RunFolderError(f"{file} has no schema version.", remedy=_NOT_OURS)
    if version > SCHEMA_VERSION:
        raise RunFolderError(
            f"{file} has schema version {version}; this regimescope reads up to {SCHEMA_VERSION}.",
            remedy="Upgrade regimescope: pip install --upgrade regimescope.",
        )


def load_run(path: str | Path) -> Run:
    """Read a whole run folder.

    A half-written last line, which a crash leaves behind, is passed over and counted.

    Raises:
        RunFolderError: It is no run folder, damaged, or newer than this package.
    """
    folder = Path(path)
    header = load_header(folder)
    trials, torn_trials = _read_lines(folder / TRIALS, Trial)
    events: list[Event] = []
    torn_events = 0
    if (folder / EVENTS).exists():  # events explain a run; without them it is still a run
        events, torn_events = _read_lines(folder / EVENTS, Event)
    return Run(
        header=header,
        trials=tuple(trials),
        events=tuple(events),
        torn_lines=torn_trials + torn_events,
    )


def _read_lines(file: Path, kind: type[_Line]) -> tuple[list[_Line], int]:
    """Return the records of a file and the number of torn lines (0 or 1)."""
    decoder = msgspec.json.Decoder(kind)
    records: list[_Line] = []
    number = 0
    try:
        for line in _lines(file):
            number += 1
            if not line.endswith(b"\n"):
                return records, 1
            records.append(decoder.decode(line))
    except OSError as error:
        raise RunFolderError(
            f"{file} cannot be read: {error.strerror}.", remedy=_NOT_OURS
        ) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise RunFolderError(
            f"{file}, line {number}: {error}.",
            remedy="The line is damaged; restore the file, or delete that line.",
        ) from error
    return records, 0


def _lines(file: Path) -> Iterator[bytes]:
    """Yield the lines of a file, line ends kept."""
    with file.open("rb") as lines:
        yield from lines


def _append(file: Path, record: Trial | Event) -> None:
    """Append one line and wait until it is on the disk."""
    with file.open("ab") as lines:
        lines.write(msgspec.json.encode(record) + b"\n")
        lines.flush()
        os.fsync(lines.fileno())


def _lock(file: IO[bytes], path: Path) -> None:
    """Lock an open file against other processes, where the system knows such locks."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover - Windows, where two writers are not kept apart
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RunFolderError(
            f"Another process is writing to {path}.",
            remedy="Wait until it is done, or end it first.",
        ) from error


def _cut_torn_line(file: Path) -> bool:
    """Cut off what follows the last line end; return whether anything did."""
    content = file.read_bytes()
    if not content or content.endswith(b"\n"):
        return False
    with file.open("r+b") as lines:
        lines.truncate(content.rfind(b"\n") + 1)
    return True
