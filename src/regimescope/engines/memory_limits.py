"""Main memory that this process may still take. Layer: ``engines``.

In a container the system shows the memory of the whole machine, while the kernel ends whoever goes
past the limit of the control group. So both are asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

# Where Linux shows the groups of this process, and the groups.
OWN_GROUPS, GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


class _Files(NamedTuple):
    """Names of the files of a control group, and the count of what it can give back."""

    limit: str
    used: str
    reclaimable: str


_VERSION_1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = _Files("memory.max", "memory.current", "inactive_file")


def host_free_bytes(own: Path = OWN_GROUPS, groups: Path = GROUPS) -> int:
    """Return the main memory that is free now, in bytes.

    Memory that holds copies of files counts as free, since the system gives it away on demand.

    Args:
        own: The list of the control groups of this process.
        groups: The folder of all control groups.
    """
    free = [int(psutil.virtual_memory().available)]
    for folder, files in _memory_groups(own, groups):
        room = _room(folder, files)
        if room is not None:
            free.append(room)
    return max(min(free), 0)


def _memory_groups(own: Path, groups: Path) -> Iterator[tuple[Path, _Files]]:
    """Yield the control groups of this process that count memory, and all groups around them."""
    try:
        lines = own.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers not in ("", "memory"):
            continue
        files = _VERSION_1 if controllers else _VERSION_2
        root = groups / controllers
        # Inside a container the path may be that of the host; its own group is then the root.
        folder = root / path.lstrip("/")
        yield root, files
        while folder != root and root in folder.parents:
            yield folder, files
            folder = folder.parent


def _room(folder: Path, files: _Files) -> int | None:
    """Return the bytes a control group has left; ``None`` without a limit."""
    limit, used = _number(folder / files.limit), _number(folder / files.used)
    if limit is None or used is None:
        return None
    return limit - used + _statistic(folder / "memory.stat", files.reclaimable)


def _number(path: Path) -> int | None:
    """Return the number in a file; ``None`` where there is none."""
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None


def _statistic(path: Path, name: str) -> int:
    """Return a number out of a file of names and numbers; 0 where it is not there."""
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text(encoding="ascii").splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0
