"""Counters of Linux: pure parsers of kernel files, and thin readers. Layer: ``host``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from regimescope.host import catalogue
from regimescope.host.counters import Reader, Values

_ROOT = Path("/")
_KIB = 1024


def parse_status(text: str) -> Values:
    """Read ``/proc/self/status``; its kB are units of 1024 bytes."""
    found = dict(re.findall(r"^(VmRSS|VmSwap):\s+(\d+) kB$", text, re.MULTILINE))
    names = {"VmRSS": "process_resident_bytes", "VmSwap": "process_swap_bytes"}
    return {name: float(found[key]) * _KIB for key, name in names.items() if key in found}


def parse_vmstat(text: str, page_bytes: int) -> Values:
    """Read ``/proc/vmstat``, which counts swapping in pages."""
    found = dict(re.findall(r"^(pswpin|pswpout|pgmajfault) (\d+)$", text, re.MULTILINE))
    names = {
        "pswpin": ("swapped_in_bytes", page_bytes),
        "pswpout": ("swapped_out_bytes", page_bytes),
        "pgmajfault": ("major_faults_count", 1),
    }
    return {name: float(found[key]) * by for key, (name, by) in names.items() if key in found}


def parse_pressure(text: str) -> float:
    """Return the seconds that some task was stalled, from a file of ``/proc/pressure``.

    Raises:
        ValueError: There is no such line.
    """
    match = re.search(r"^some .*\btotal=(\d+)", text, re.MULTILINE)
    if match is None:
        raise ValueError("no total of stalled time")
    return int(match[1]) / 1e6


def parse_schedstat(texts: Iterable[str]) -> float:
    """Return the seconds that threads waited for a core: field 2 of each file, in nanoseconds."""
    return sum(int(text.split()[1]) for text in texts) / 1e9


def parse_steal(text: str, ticks_per_s: int) -> float:
    """Return the stolen seconds of all cores: field 8 of the line ``cpu`` of ``/proc/stat``."""
    return int(text.splitlines()[0].split()[8]) / ticks_per_s


def parse_keys(text: str) -> dict[str, int]:
    """Read a flat file of a control group: a key and a number a line."""
    rows = (line.split() for line in text.splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def cgroup_folder(text: str, controller: str, mount: Path) -> Path:
    """Return the folder of a controller: version 2 where it is mounted so, else version 1.

    Args:
        text: Content of ``/proc/self/cgroup``.
        controller: Such as ``memory``.
        mount: Where control groups are mounted. A container sees its own group there as the root.
    """
    paths: dict[str, str] = {}
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        paths |= dict.fromkeys(names.split(","), path.lstrip("/"))
    unified = (mount / "cgroup.controllers").exists()
    top = mount if unified else mount / controller
    own = top / paths.get("" if unified else controller, "")
    return own if own.is_dir() else top


class LinuxFiles:
    """Reads the files below a root, which tests choose."""

    def __init__(self, root: Path = _ROOT) -> None:
        """Look up what stays the same while a process lives."""
        self._root = root
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")

    def readers(self) -> tuple[Reader, ...]:
        """Return a reader for every source of Linux."""
        known = catalogue
        return (
            Reader(known.STATUS, lambda: parse_status(self._text("proc/self/status"))),
            Reader(known.VMSTAT, lambda: parse_vmstat(self._text("proc/vmstat"), self._page_bytes)),
            Reader(known.MEMORY_PRESSURE, lambda: {"memory_stall_s": self._pressure("memory")}),
            Reader(known.CPU_PRESSURE, lambda: {"cpu_stall_s": self._pressure("cpu")}),
            Reader(known.CGROUP_MEMORY, self._cgroup_memory),
            Reader(known.CGROUP_CPU, self._cgroup_cpu),
            Reader(known.SCHEDSTAT, self._schedstat),
            Reader(known.STAT, self._steal),
            Reader(known.CPUFREQ, self._frequency),
            Reader(known.THERMAL_ZONES, self._temperature),
            Reader(known.POWERCAP, self._energy),
            Reader(known.LOADAVG, self._load),
        )

    def _text(self, path: str) -> str:
        """Return the content of a file."""
        return (self._root / path).read_text(encoding="ascii", errors="replace")

    def _pressure(self, kind: str) -> float:
        """Return the stalled seconds of one resource."""
        return parse_pressure(self._text(f"proc/pressure/{kind}"))

    def _group(self, controller: str) -> Path:
        """Return the folder of a controller."""
        mount = self._root / "sys/fs/cgroup"
        return cgroup_folder(self._text("proc/self/cgroup"), controller, mount)

    def _cgroup_memory(self) -> Values:
        """Read the memory of the control group, by the names of either version."""
        folder, found = self._group("memory"), {}
        for name in ("memory.current", "memory.usage_in_bytes"):
            if (folder / name).exists():
                found["cgroup_memory_bytes"] = float((folder / name).read_text())
        for name in ("memory.events", "memory.oom_control"):
            if (folder / name).exists():
                kills = parse_keys((folder / name).read_text()).get("oom_kill")
                if kills is not None:
                    found["cgroup_oom_kills_count"] = float(kills)
        return found

    def _cgroup_cpu(self) -> Values:
        """Read how long the control group was throttled, in the units of either version."""
        found = parse_keys((self._group("cpu") / "cpu.stat").read_text())
        for key, per_s in (("throttled_usec", 1e6), ("throttled_time", 1e9)):
            if key in found:
                return {"cgroup_throttled_s": found[key] / per_s}
        return {}

    def _schedstat(self) -> Values:
        """Add up all threads of this process; one that ends meanwhile is left out."""
        texts = []
        for file in (self._root / "proc/self/task").glob("*/schedstat"):
            try:
                texts.append(file.read_text())
            except (FileNotFoundError, ProcessLookupError):
                continue
        if not texts:
            raise ValueError("the kernel keeps no scheduling statistics")
        return {"run_queue_wait_s": parse_schedstat(texts)}

    def _steal(self) -> Values:
        """Read the stolen time."""
        return {"steal_s": parse_steal(self._text("proc/stat"), self._ticks_per_s)}

    def _frequency(self) -> Values:
        """Return the mean clock of the cores; the file counts in kHz."""
        values = self._numbers("sys/devices/system/cpu", "cpu[0-9]*/cpufreq/scaling_cur_freq")
        return {"cpu_frequency_hz": 1e3 * sum(values) / len(values)}

    def _temperature(self) -> Values:
        """Return the hottest zone; the file counts in thousandths of a degree."""
        return {
            "temperature_c": max(self._numbers("sys/class/thermal", "thermal_zone*/temp")) / 1e3
        }

    def _energy(self) -> Values:
        """Add up the packages; the file counts in microjoules, and most systems need root."""
        return {
            "cpu_energy_j": sum(self._numbers("sys/class/powercap", "*-rapl:[0-9]/energy_uj")) / 1e6
        }

    def _load(self) -> Values:
        """Return the load average of a minute."""
        return {"load_average_count": float(self._text("proc/loadavg").split()[0])}

    def _numbers(self, folder: str, pattern: str) -> list[float]:
        """Return the numbers in all files that match.

        Raises:
            ValueError: There is none.
        """
        files = sorted((self._root / folder).glob(pattern))
        if not files:
            raise ValueError("not offered by this machine")
        return [float(file.read_text()) for file in files]


def readers() -> tuple[Reader, ...]:
    """Return a reader for every source of Linux."""
    return LinuxFiles().readers()
