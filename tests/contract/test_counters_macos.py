"""Counters of macOS against an interface made up after Apple's documented layouts."""

import ctypes
import struct

import pytest

from regimescope.host import macos
from regimescope.host.counters import HostCounters

VM_STAT = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                               12345.
"Translation faults":                 987654321.
Pages stored in compressor:              111111.
Decompressions:                             222.
Compressions:                               333.
Pageins:                                    444.
Pageouts:                                   555.
Swapins:                                      6.
Swapouts:                                     7.
"""
ANSWERS = {
    ("/usr/bin/vm_stat",): VM_STAT,
    ("/usr/sbin/sysctl", "-n", "vm.swapusage"): (
        "total = 2048.00M  used = 1024.50M  free = 1023.50M  (encrypted)\n"
    ),
    ("/usr/sbin/sysctl", "-n", "kern.memorystatus_vm_pressure_level"): "2\n",
    ("/usr/bin/pmset", "-g", "batt"): "Now drawing from 'Battery Power'\n -InternalBattery-0\n",
    ("/usr/bin/pmset", "-g", "custom"): "Battery Power:\n lowpowermode   1\n sleep  1\n",
}


def rusage():
    words = [0] * 36
    words[4], words[7], words[28] = 11, 22, 33
    return b"u" * 16 + struct.pack("<36Q", *words)


class Recorded:
    rusage = staticmethod(rusage)

    def run(self, *command):
        return ANSWERS[command]

    def thermal_level(self):
        return 1


def test_every_source_is_read_in_the_unit_of_its_name(monkeypatch):
    monkeypatch.setattr(macos.os, "getloadavg", lambda: (1.5, 0, 0))
    counters = HostCounters(macos.mac_readers(Recorded()))
    assert counters.absent == {}
    assert counters.read() == {
        "process_footprint_bytes": 22,
        "process_footprint_peak_bytes": 33,
        "process_pageins_count": 11,
        "pageins_count": 444,
        "swapped_in_bytes": 6 * 16384,
        "swapped_out_bytes": 7 * 16384,
        "compressions_count": 333,
        "decompressions_count": 222,
        "swap_used_bytes": 1024.5 * 2**20,
        "memory_pressure_level": 2,
        "thermal_pressure_level": 1,
        "on_battery_flag": 1,
        "low_power_mode_flag": 1,
        "load_average_count": 1.5,
    }


class Library:
    """The calls of libSystem, filling what they are given as the system does."""

    def __init__(self, status=0):
        self.status, self.registered = status, 0

    def proc_pid_rusage(self, pid, flavor, buffer):
        assert flavor == 4
        ctypes.memmove(buffer, rusage(), len(rusage()))
        return self.status

    def notify_register_check(self, name, token):
        assert name == b"com.apple.system.thermalpressurelevel"
        self.registered += 1
        token._obj.value = 9
        return self.status

    def notify_get_state(self, token, state):
        assert token == 9
        state._obj.value = 3
        return self.status


def test_calls_of_the_system_are_made_with_its_structures():
    library = Library()
    calls = macos.SystemCalls(library)
    assert macos.parse_rusage(calls.rusage())["process_footprint_bytes"] == 22
    assert [calls.thermal_level(), calls.thermal_level()] == [3, 3]
    assert library.registered == 1


def test_a_call_that_fails_is_an_error_of_the_system():
    calls = macos.SystemCalls(Library(status=-1))
    with pytest.raises(OSError, match="proc_pid_rusage"):
        calls.rusage()
    with pytest.raises(OSError, match="registered"):
        calls.thermal_level()


@pytest.mark.parametrize(
    ("parse", "content"),
    [
        (macos.parse_rusage, b"short"),
        (macos.parse_vm_stat, "nothing"),
        (macos.parse_swapusage, "total = 0"),
        (macos.parse_power_source, ""),
    ],
)
def test_another_layout_is_refused(parse, content):
    with pytest.raises(ValueError, match=r"too short|names no"):
        parse(content)


def test_a_decimal_comma_is_read():
    assert macos.parse_swapusage("used = 1,50G") == {"swap_used_bytes": 1.5 * 2**30}
