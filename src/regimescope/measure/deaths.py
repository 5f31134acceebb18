"""How a measured process was lost, told from what it left behind. Layer: ``measure``.

Nothing here runs while a trial is timed: the kernel's counters are read before a process starts and
after it is gone.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from regimescope.errors import DeathCause

# What last words tell, in lower case, the more special first. C++ says bad_alloc, the dynamic
# linker "error while loading shared libraries", torch "CUDA out of memory" or, on Metal, "MPS
# backend out of memory".
_LAST_WORDS: tuple[tuple[str, DeathCause], ...] = (
    ("outofmemoryerror", DeathCause.DEVICE_MEMORY),
    ("out of memory", DeathCause.DEVICE_MEMORY),
    ("cuda_error_out_of_memory", DeathCause.DEVICE_MEMORY),
    ("memoryerror", DeathCause.HOST_MEMORY),
    ("bad_alloc", DeathCause.HOST_MEMORY),
    ("cannot allocate memory", DeathCause.HOST_MEMORY),
    ("can't allocate memory", DeathCause.HOST_MEMORY),
    ("modulenotfounderror", DeathCause.IMPORT_FAILURE),
    ("importerror", DeathCause.IMPORT_FAILURE),
    ("error while loading shared libraries", DeathCause.IMPORT_FAILURE),
)
_REMEDIES = {
    DeathCause.IMPORT_FAILURE: "reinstall what is missing in the environment of regimescope",
    DeathCause.KERNEL_KILLER: "use a smaller model or budget, or free memory",
}


class Death(NamedTuple):
    """How a process was lost, and one line that says so."""

    cause: DeathCause
    message: str


def of_process(status: int, last_lines: Sequence[str], killed_by_kernel: bool) -> Death:
    """Return how a process that is gone was lost.

    Args:
        status: Its exit status; negative for the signal that ended it.
        last_lines: The last lines of its standard error.
        killed_by_kernel: Whether the kernel ended a process for want of memory meanwhile.
    """
    words = next((line for line in reversed(last_lines) if line.strip()), "")
    if status < 0:
        names = {number.value: number.name for number in signal.Signals}
        how = f"the measured process was ended by signal {names.get(-status, -status)}"
        if -status == signal.SIGKILL and killed_by_kernel:
            how += "; the kernel ended a process for want of memory meanwhile"
            return _death(DeathCause.KERNEL_KILLER, how, "")
        cause = of_text(" ".join(last_lines)) if -status == signal.SIGABRT else None
        return _death(cause or DeathCause.SIGNAL, how, words)
    cause = of_text(words) if status else None
    return _death(
        cause or DeathCause.EXIT, f"the measured process ended with status {status}", words
    )


def _death(cause: DeathCause, how: str, words: str) -> Death:
    """Put the last words and the remedy behind how it happened."""
    message = f"{how}: {words}" if words else how
    remedy = _REMEDIES.get(cause)
    return Death(cause, f"{message} ({remedy})" if remedy else message)


def of_error(error: BaseException) -> DeathCause:
    """Return what an error inside a living process means, from its chain of causes."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, MemoryError):
            return DeathCause.HOST_MEMORY
        cause = of_text(f"{type(seen).__name__}: {seen}")
        if cause is not None:
            return cause
        seen = seen.__cause__
    return DeathCause.ENGINE_FAILURE


def of_text(text: str) -> DeathCause | None:
    """Return the cause that an error text names, if it names one."""
    lowered = text.lower()
    return next((cause for words, cause in _LAST_WORDS if words in lowered), None)


def kernel_kills() -> int:
    """Return how many processes the kernel has ended for want of memory, 0 where it is not told.

    Read from the counters of the control group, where a limit of a container would act, and from
    those of the whole system.
    """
    return sum(
        _counter(file, name)
        for file, name in ((_memory_events(), "oom_kill"), (_VMSTAT, "oom_kill"))
    )


_VMSTAT = Path("/proc/vmstat")


def _memory_events() -> Path:
    """Return the file in which version 2 of control groups counts what this group suffered."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        lines = []
    group = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")
    return Path("/sys/fs/cgroup") / group.lstrip("/") / "memory.events"


def _counter(file: Path, name: str) -> int:
    """Return a counter of a file of lines ``name value``, 0 where it cannot be read."""
    try:
        lines = file.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    for line in lines:
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdigit():
            return int(value)
    return 0
