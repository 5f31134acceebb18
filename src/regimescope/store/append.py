"""Writing run folders: one writer, every finished line on the disk at once. Layer: ``store``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from regimescope.errors import RunFolderError
from regimescope.records import SCHEMA_VERSION, Event, RunHeader, Trial
from regimescope.store.files import (
    append_line,
    open_regular,
    replace_file,
    sync_folder,
    unwritable,
)
from regimescope.store.limits import EVENTS, HEADER, MAX_LINE_BYTES, TRIALS, Allowance
from regimescope.store.load import load_header, read_header, read_lines

# A torn line is looked for from the end of the file, in pieces of a usual block of a disk.
PIECE_BYTES = 64 * 1024

# What a text, or all texts in a table, become before they are stored.
Told = Callable[[Any], Any]


def _as_it_is(value: Any) -> Any:
    """Return a message unchanged."""
    return value


class RunFolder:
    """A run folder open for writing."""

    def __init__(self, path: Path, told: Told = _as_it_is) -> None:
        """Refer to a folder that exists; see ``create`` and ``reopen``."""
        self.path, self._told = path, told
        self._allowances: dict[str, Allowance] = {}

    @classmethod
    def create(cls, path: Path, header: RunHeader, *, told: Told = _as_it_is) -> RunFolder:
        """Make a new run folder.

        Args:
            path: Where nothing is yet.
            header: What is known before the first trial.
            told: What a message becomes before it is stored.

        Raises:
            RunFolderError: Something is there already, or it cannot be written.
        """
        check_free(path)
        try:
            path.mkdir(parents=True)
            folder = cls(path, told)
            for name in (TRIALS, EVENTS):
                os.close(open_regular(path / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            folder.write_header(header)
            sync_folder(path.parent)
        except OSError as error:
            raise RunFolderError(
                f"The run folder {path} cannot be written: {error.strerror}.",
                remedy="Name another folder with --out.",
            ) from error
        return folder

    @classmethod
    def reopen(cls, path: Path, *, told: Told = _as_it_is) -> RunFolder:
        """Open a run folder to go on with it; ``told`` as for ``create``.

        Raises:
            RunFolderError: It is no run folder.
        """
        load_header(path)
        return cls(path, told)

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Keep other writers out, cut off a half-written last line, raise an older version.

        The system releases the lock when the process ends, however it ends.

        Yields:
            How many lines were cut.

        Raises:
            RunFolderError: Another process writes, or the folder cannot be written.
        """
        try:
            held = open_regular(self.path / TRIALS, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        except OSError as error:
            raise unwritable(self.path, error) from error
        try:
            try:
                _lock(held, self.path)
                torn = sum(_cut_torn_line(self.path / name) for name in (TRIALS, EVENTS))
                self._raise_version()
                self._allowances = {n: _allowance(self.path / n) for n in (TRIALS, EVENTS)}
            except OSError as error:
                raise unwritable(self.path, error) from error
            yield torn
        finally:
            os.close(held)

    def write_header(self, header: RunHeader) -> None:
        """Replace ``run.json`` in one step, so that a crash leaves the old or the new one."""
        content = msgspec.json.format(msgspec.json.encode(header), indent=2)
        replace_file(self.path / HEADER, content + b"\n")

    def append_trial(self, trial: Trial) -> None:
        """Write a finished trial through to the disk, whole.

        Raises:
            RunFolderError: It cannot be written, or the folder has reached a limit.
        """
        if trial.message is not None:
            trial = replace(trial, message=self._told(trial.message))
        self._append(TRIALS, trial)

    def append_event(self, event: Event) -> None:
        """Write an event through to the disk.

        Raises:
            RunFolderError: As ``append_trial``.
        """
        told = replace(event, message=self._told(event.message), facts=self._told(event.facts))
        self._append(EVENTS, told)

    def _append(self, name: str, record: Trial | Event) -> None:
        """Append one line."""
        file, line = self.path / name, msgspec.json.encode(record) + b"\n"
        if name not in self._allowances:
            self._allowances[name] = _allowance(file)
        self._allowances[name].take(line)
        append_line(file, line)

    def _raise_version(self) -> None:
        """Give a folder of an older version a header of the present one, before it is added to."""
        stored = read_header(self.path)
        if stored.version < SCHEMA_VERSION:
            self.write_header(stored.header)


def check_free(path: Path) -> None:
    """Refuse a path where something is already, before anything is measured.

    Raises:
        RunFolderError: The path exists.
    """
    try:
        path.lstat()
        taken = True
    except (FileNotFoundError, NotADirectoryError):
        taken = False
    except (OSError, ValueError) as error:  # a name that no system can hold is a ValueError
        why = getattr(error, "strerror", None) or str(error)
        raise RunFolderError(
            f"{path} cannot be looked up: {why}.", remedy="Name another folder."
        ) from error
    if taken:
        remedy = (
            f"Go on with it by --resume {path}, or name another folder with --out."
            if (path / HEADER).is_file()
            else "Name another folder with --out."
        )
        raise RunFolderError(f"{path} exists already; nothing was overwritten.", remedy=remedy)


def _allowance(file: Path) -> Allowance:
    """Return what may still be added to a file."""
    allowance = Allowance(file)
    if os.path.lexists(file):
        for line in read_lines(file):
            allowance.take(line)
    return allowance


def _lock(descriptor: int, path: Path) -> None:
    """Lock an open file against other processes, where the system knows such locks."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover - Windows, where two writers are not kept apart
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RunFolderError(
            f"Another process is writing to {path}.",
            remedy="Wait until it is done, or end it first.",
        ) from error


def _cut_torn_line(file: Path) -> bool:
    """Cut off what follows the last line end; return whether anything did."""
    descriptor = open_regular(file, os.O_RDWR | os.O_CREAT)
    try:
        size = os.fstat(descriptor).st_size
        kept = _after_last_line_end(descriptor, size, file)
        if kept < size:
            os.ftruncate(descriptor, kept)
            os.fsync(descriptor)
        return kept < size
    finally:
        os.close(descriptor)


def _after_last_line_end(descriptor: int, size: int, file: Path) -> int:
    """Return the position after the last line end of a file, 0 where there is none.

    Raises:
        RunFolderError: What follows it is longer than a line can be, so it was no crash of ours.
    """
    end = size
    while end > 0:
        start = max(0, end - PIECE_BYTES)
        os.lseek(descriptor, start, os.SEEK_SET)
        at = os.read(descriptor, end - start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        if size - start > MAX_LINE_BYTES:
            raise RunFolderError(
                f"{file} ends in a line longer than {MAX_LINE_BYTES:,} bytes.",
                remedy="The file is damaged; restore it.",
            )
        end = start
    return 0
