"""What else runs on this machine. Layer: ``host``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

import psutil

# Below this share of a core a program does not disturb a measurement.
LEAST_CORES = 0.05
MOST_PROGRAMS = 5


class Use(NamedTuple):
    """Seconds of processor time that a process has used, and the base name of its program."""

    name: str
    cpu_s: float


class Share(NamedTuple):
    """Base name of a program, the id of its process, and its share of one core."""

    name: str
    pid: int
    cores: float


def busy_programs(sleep: Callable[[float], None], span_s: float = 1.0) -> tuple[Share, ...]:
    """Return the programs that use the processor, with their share of one core, largest first."""
    before = _uses()
    sleep(span_s)
    return shares(before, _uses(), span_s)


def shares(before: Mapping[int, Use], after: Mapping[int, Use], span_s: float) -> tuple[Share, ...]:
    """Return the processes that ran between two looks, the busiest first."""
    used = [
        Share(use.name, pid, round((use.cpu_s - before[pid].cpu_s) / span_s, 3))
        for pid, use in after.items()
        if pid in before
    ]
    busy = sorted((row for row in used if row.cores >= LEAST_CORES), key=lambda row: -row.cores)
    return tuple(busy[:MOST_PROGRAMS])


def _uses() -> dict[int, Use]:
    """Return the processor time of every process but this one; what may not be read is left out."""
    found = {}
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            times = process.cpu_times()
            name = os.path.basename(process.name())  # noqa: PTH119 - a name, not a path
            found[process.pid] = Use(name, times.user + times.system)
        except psutil.Error:
            continue
    return found
