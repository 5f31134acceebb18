"""Files that are what they seem: opened without following links, written through to the disk.

Layer: ``store``.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from regimescope.errors import RunFolderError

# Zero where the system has no such flag (Windows); there ``_refuse_special`` does what it can.
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
# Opening a named pipe would wait for somebody at its other end.
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0)
NEW_FILE_MODE = 0o666


def open_regular(path: Path, flags: int) -> int:
    """Open a regular file and return its descriptor.

    Args:
        path: The file; the folders above it may be links, it must not.
        flags: As for ``os.open``.

    Raises:
        RunFolderError: It is a link, a folder, a pipe or a device.
        OSError: It cannot be opened.
    """
    if not flags & os.O_EXCL:
        _refuse_special(path)
    descriptor = os.open(
        path, flags | _NO_FOLLOW | _NO_WAIT | _BINARY | _CLOSE_ON_EXEC, NEW_FILE_MODE
    )
    # It may have been exchanged since it was looked at.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _special(path, "no regular file")
    return descriptor


def _refuse_special(path: Path) -> None:
    """Refuse what is there and is no regular file, in words of ours."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return  # opening it says so, or makes it
    if stat.S_ISLNK(mode):
        raise _special(path, "a link")
    if not stat.S_ISREG(mode):
        raise _special(path, "no regular file")


def _special(path: Path, what: str) -> RunFolderError:
    """Return the error for a file that is not what it seems."""
    return RunFolderError(
        f"{path} is {what}; nothing outside the run folder is read or written.",
        remedy="Put the file itself into the folder, or do not use a folder that you do not trust.",
    )


def append_line(path: Path, line: bytes) -> None:
    """Append a line and wait until it is on the disk; take it back if it does not fit.

    Raises:
        RunFolderError: It cannot be written; the file is as it was before, where the system lets.
    """
    try:
        descriptor = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    except OSError as error:
        raise unwritable(path.parent, error) from error
    try:
        before = os.fstat(descriptor).st_size
        try:
            _write_all(descriptor, line)
            os.fsync(descriptor)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, before)
            raise unwritable(path.parent, error) from error
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, content: bytes) -> None:
    """Write everything; a single call may write less."""
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that a crash leaves either the old content or the new one, never half.

    Raises:
        OSError: It cannot be written; the old content is still there.
    """
    # A new name that nobody can have put a link under.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        try:
            _write_all(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        # A temporary file is readable by its owner only; a run is as public as its folder.
        temporary.chmod(NEW_FILE_MODE & ~_umask())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system can be asked to."""
    if os.name == "nt":  # pragma: no cover - folders cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unwritable(folder: Path, error: OSError) -> RunFolderError:
    """Return the error for a run folder that takes nothing more."""
    return RunFolderError(
        f"The run folder {folder} cannot be written: {error.strerror}.",
        remedy="Make it writable, or free some space; finished trials are kept.",
    )


def _umask() -> int:
    """Return the mask of permissions that new files get; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
