"""Reading the counters that this machine offers; why others are absent. Layer: ``host``."""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from regimescope.host.catalogue import TOTALS, Source

Values = dict[str, float]

# What a source says that does not exist, may not be read, or has another layout than expected.
UNREADABLE = (OSError, ValueError, LookupError, AttributeError, subprocess.SubprocessError)
# The median of five readings is steady against one interruption, and takes a millisecond or so.
COST_READINGS = 5
_LONGEST_REASON = 120


class Reader(NamedTuple):
    """A source and the function that reads it; the function raises one of ``UNREADABLE``."""

    source: Source
    read: Callable[[], Values]


class HostCounters:
    """The readers of a machine, each tried once.

    Attributes:
        costs_s: Seconds of one reading, by source, for the sources that could be read.
        absent: Why a counter cannot be read, by its name.
    """

    def __init__(
        self, readers: Sequence[Reader], now_ns: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        """Try every reader, and time those that work."""
        self.costs_s: dict[str, float] = {}
        self.absent: dict[str, str] = {}
        self._given: dict[str, tuple[str, ...]] = {}
        self._works: list[Reader] = []
        for reader in readers:
            self._try(reader, now_ns)

    def read(self, *, cheap: bool = False) -> Values:
        """Return a reading by counter name; what cannot be read just now is left out.

        Args:
            cheap: Only what may be read between two steps.
        """
        values: Values = {}
        for source, read in self._works:
            if cheap and source.cost != "cheap":
                continue
            try:
                values |= read()
            except UNREADABLE:
                continue  # absent from this reading, as a counter of a removed device is
        return values

    def given(self) -> dict[str, tuple[str, ...]]:
        """Return the names that each source gave when it was tried."""
        return dict(self._given)

    def _try(self, reader: Reader, now_ns: Callable[[], int]) -> None:
        """Read once and time it, or note why that fails."""
        source, names = reader.source, [counter.name for counter in reader.source.counters]
        try:
            found = reader.read()
        except UNREADABLE as error:
            self.absent |= dict.fromkeys(names, f"{source.name}: {_reason(error)}")
            return
        self.absent |= {
            name: f"{source.name}: not reported here" for name in names if name not in found
        }
        if not found:
            return
        self._works.append(reader)
        self._given[source.name] = tuple(found)
        self.costs_s[source.name] = _cost_s(reader, now_ns)


def changes(before: Mapping[str, float], after: Mapping[str, float]) -> Values:
    """Return what happened between two readings: growth of totals, and the later level of others.

    A total that fell was reset, by an overflow or because a thread ended, and is left out; so is
    one that stands in one reading only.
    """
    found: Values = {}
    for name, value in after.items():
        if name not in TOTALS:
            found[name] = value
        elif name in before and value >= before[name]:
            found[name] = value - before[name]
    return found


def host_readers(device: str, device_id: str | None = None) -> tuple[Reader, ...]:
    """Return the readers of this operating system, and of the GPU that is measured.

    Args:
        device: The measured device; NVML may know it if it is ``cuda``, or ``cuda:1`` and so on.
        device_id: Its UUID or PCI address, if the engine knows one.
    """
    from regimescope.host import linux, macos, nvml, windows

    readers = {"Linux": linux.readers, "Darwin": macos.readers, "Windows": windows.readers}
    of_system = readers.get(platform.system(), tuple)()
    kind, _, number = device.partition(":")
    if kind != "cuda":
        return of_system
    return (*of_system, *nvml.readers(nvml.Gpu(int(number or 0), device_id)))


def _reason(error: Exception) -> str:
    """Return why a source cannot be read, in a few words and without a path of this machine."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return " ".join(str(error).split())[:_LONGEST_REASON] or type(error).__name__


def _cost_s(reader: Reader, now_ns: Callable[[], int]) -> float:
    """Return the median seconds of a reading."""
    times = []
    for _ in range(COST_READINGS):
        start_ns = now_ns()
        try:
            reader.read()
        except UNREADABLE:
            continue
        times.append(now_ns() - start_ns)
    return median(times) / 1e9 if times else 0.0
