"""Counters of macOS: pure parsers of bytes and text, and thin readers. Layer: ``host``.

Layouts are those of Apple's headers ``sys/resource.h`` (``rusage_info_v4``) and of the tools
``vm_stat``, ``sysctl`` and ``pmset``. The calls stand behind ``MacCalls``, so that a recorded
interface can take their place.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
from typing import Any, Protocol

from regimescope.host import catalogue
from regimescope.host.counters import Reader, Values

RUSAGE_FLAVOR = 4
# More than the 296 bytes of version 4, so that a longer structure cannot write past the end.
RUSAGE_BYTES = 512
# A UUID of 16 bytes, then words of 8 bytes; numbers of the words that are read.
_HEAD, _WORD = 16, 8
_PAGEINS, _FOOTPRINT, _FOOTPRINT_PEAK = 4, 7, 28
_SIZES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_COMMAND_S = 10
THERMAL_NOTE = b"com.apple.system.thermalpressurelevel"


class MacCalls(Protocol):
    """What is asked of macOS."""

    def rusage(self) -> bytes:
        """Return the structure that ``proc_pid_rusage`` fills for this process."""
        ...

    def run(self, *command: str) -> str:
        """Return what a program prints."""
        ...

    def thermal_level(self) -> int:
        """Return the state of the thermal notification."""
        ...


def parse_rusage(content: bytes) -> Values:
    """Read ``rusage_info_v4``.

    Raises:
        ValueError: It is too short.
    """
    if len(content) < _HEAD + _WORD * (_FOOTPRINT_PEAK + 1):
        raise ValueError("the structure of proc_pid_rusage is too short")

    def word(number: int) -> float:
        return float(struct.unpack_from("<Q", content, _HEAD + _WORD * number)[0])

    return {
        "process_footprint_bytes": word(_FOOTPRINT),
        "process_footprint_peak_bytes": word(_FOOTPRINT_PEAK),
        "process_pageins_count": word(_PAGEINS),
    }


def parse_vm_stat(text: str) -> Values:
    """Read the output of ``vm_stat``; swapping is counted in pages of the size it names.

    Raises:
        ValueError: The page size is missing.
    """
    size = re.search(r"page size of (\d+) bytes", text)
    if size is None:
        raise ValueError("vm_stat names no page size")
    found = {
        name.strip('"').lower(): float(number)
        for name, number in re.findall(r'^("?[A-Za-z][\w -]*"?):\s+(\d+)\.?$', text, re.MULTILINE)
    }
    page_bytes = int(size[1])
    names = {
        "pageins": ("pageins_count", 1),
        "swapins": ("swapped_in_bytes", page_bytes),
        "swapouts": ("swapped_out_bytes", page_bytes),
        "compressions": ("compressions_count", 1),
        "decompressions": ("decompressions_count", 1),
    }
    return {name: found[key] * by for key, (name, by) in names.items() if key in found}


def parse_swapusage(text: str) -> Values:
    """Read ``vm.swapusage``; its letters are powers of 1024. A comma may separate decimals.

    Raises:
        ValueError: The part in use is missing.
    """
    match = re.search(r"used = (\d+)[.,](\d+)([KMGT])", text)
    if match is None:
        raise ValueError("sysctl names no swap in use")
    return {"swap_used_bytes": float(f"{match[1]}.{match[2]}") * _SIZES[match[3]]}


def parse_power_source(text: str) -> Values:
    """Read the first line of ``pmset -g batt``.

    Raises:
        ValueError: The source is not named.
    """
    match = re.search(r"Now drawing from '([^']+)'", text)
    if match is None:
        raise ValueError("pmset names no power source")
    return {"on_battery_flag": float(match[1] == "Battery Power")}


def parse_custom(text: str) -> Values:
    """Read ``pmset -g custom``: whether low power mode is on under any power source."""
    modes = re.findall(r"^\s*(?:lowpowermode|powermode)\s+(\d)", text, re.MULTILINE)
    if not modes:
        return {}
    # 0 automatic, 1 low power, 2 high power.
    return {"low_power_mode_flag": float("1" in modes)}


def mac_readers(calls: MacCalls) -> tuple[Reader, ...]:
    """Return a reader for every source of macOS."""
    known, sysctl = catalogue, "/usr/sbin/sysctl"
    pmset = "/usr/bin/pmset"
    return (
        Reader(known.RUSAGE, lambda: parse_rusage(calls.rusage())),
        Reader(known.VM_STAT, lambda: parse_vm_stat(calls.run("/usr/bin/vm_stat"))),
        Reader(known.SWAPUSAGE, lambda: parse_swapusage(calls.run(sysctl, "-n", "vm.swapusage"))),
        Reader(
            known.PRESSURE_LEVEL,
            lambda: {
                "memory_pressure_level": float(
                    calls.run(sysctl, "-n", "kern.memorystatus_vm_pressure_level")
                )
            },
        ),
        Reader(
            known.THERMAL_LEVEL, lambda: {"thermal_pressure_level": float(calls.thermal_level())}
        ),
        Reader(known.PMSET, lambda: parse_power_source(calls.run(pmset, "-g", "batt"))),
        Reader(known.PMSET_CUSTOM, lambda: parse_custom(calls.run(pmset, "-g", "custom"))),
        Reader(known.MAC_LOAD, lambda: {"load_average_count": os.getloadavg()[0]}),
    )


def readers() -> tuple[Reader, ...]:
    """Return a reader for every source of macOS."""
    return mac_readers(SystemCalls(ctypes.CDLL(None, use_errno=True)))


class SystemCalls:
    """The calls of a running macOS."""

    def __init__(self, library: Any) -> None:
        """Take ``libSystem``, which holds all of them."""
        self._library = library
        self._thermal_token: int | None = None

    def rusage(self) -> bytes:
        """Return the structure that ``proc_pid_rusage`` fills for this process.

        Raises:
            OSError: The call fails.
        """
        buffer = ctypes.create_string_buffer(RUSAGE_BYTES)
        if self._library.proc_pid_rusage(os.getpid(), RUSAGE_FLAVOR, buffer) != 0:
            raise OSError(ctypes.get_errno(), "proc_pid_rusage failed")
        return buffer.raw

    def run(self, *command: str) -> str:
        """Return what a program prints.

        Raises:
            OSError: It does not exist.
            subprocess.SubprocessError: It fails, or takes longer than 10 s.
        """
        return subprocess.run(
            list(command), capture_output=True, text=True, timeout=_COMMAND_S, check=True
        ).stdout

    def thermal_level(self) -> int:
        """Return the state of the thermal notification, registering for it the first time.

        Raises:
            OSError: The notification center refuses.
        """
        if self._thermal_token is None:
            token = ctypes.c_int()
            if self._library.notify_register_check(THERMAL_NOTE, ctypes.byref(token)) != 0:
                raise OSError("the notification cannot be registered")
            self._thermal_token = token.value
        state = ctypes.c_uint64()
        if self._library.notify_get_state(self._thermal_token, ctypes.byref(state)) != 0:
            raise OSError("the notification has no state")
        return state.value
