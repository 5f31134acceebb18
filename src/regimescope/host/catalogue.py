"""Every counter of a machine that this package knows: name, unit, meaning. Layer: ``host``.

The set is closed: a reader gives no other name, and ``docs/counters.md`` is made from it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

# A level is what holds at the moment of reading; a total only grows, so that a trial has the
# difference of two readings.
Kind = Literal["level", "total"]
System = Literal["Linux", "macOS", "Windows", "NVIDIA"]
# ``cheap`` readings are also taken between steps; ``around`` ones only before and after a trial.
Cost = Literal["cheap", "around"]


class Counter(NamedTuple):
    """What one number of the machine means.

    Attributes:
        name: Name in records, with its unit as suffix.
        kind: Whether it is a level or a growing total.
        meaning: One phrase for people.
    """

    name: str
    kind: Kind
    meaning: str


class Source(NamedTuple):
    """A place that counters are read from.

    Attributes:
        name: The place as people know it: a file, a call, a command.
        system: The system that has it.
        cost: Whether it is read between steps too.
        counters: What it gives.
    """

    name: str
    system: System
    cost: Cost
    counters: tuple[Counter, ...]


RESIDENT = Counter("process_resident_bytes", "level", "this process in main memory")
LOAD = Counter("load_average_count", "level", "runnable threads, mean of a minute")
SWAPPED_IN = Counter("swapped_in_bytes", "total", "read back from swap, whole machine")
SWAPPED_OUT = Counter("swapped_out_bytes", "total", "written to swap, whole machine")
SWAP_USED = Counter("swap_used_bytes", "level", "swap in use, whole machine")

STATUS = Source(
    "/proc/self/status",
    "Linux",
    "cheap",
    (RESIDENT, Counter("process_swap_bytes", "level", "this process in swap")),
)
VMSTAT = Source(
    "/proc/vmstat",
    "Linux",
    "cheap",
    (
        SWAPPED_IN,
        SWAPPED_OUT,
        Counter("major_faults_count", "total", "page faults that read a disk, whole machine"),
    ),
)
MEMORY_PRESSURE = Source(
    "/proc/pressure/memory",
    "Linux",
    "cheap",
    (Counter("memory_stall_s", "total", "some task waited for memory"),),
)
CPU_PRESSURE = Source(
    "/proc/pressure/cpu",
    "Linux",
    "cheap",
    (Counter("cpu_stall_s", "total", "some task waited for a core"),),
)
CGROUP_MEMORY = Source(
    "cgroup memory.current, memory.events",
    "Linux",
    "around",
    (
        Counter("cgroup_memory_bytes", "level", "memory of the control group"),
        Counter("cgroup_oom_kills_count", "total", "processes killed for want of memory"),
    ),
)
CGROUP_CPU = Source(
    "cgroup cpu.stat",
    "Linux",
    "around",
    (Counter("cgroup_throttled_s", "total", "the control group was denied its cores"),),
)
SCHEDSTAT = Source(
    "/proc/self/task/*/schedstat",
    "Linux",
    "cheap",
    (Counter("run_queue_wait_s", "total", "ready to run without a core, all threads together"),),
)
STAT = Source(
    "/proc/stat",
    "Linux",
    "around",
    (Counter("steal_s", "total", "cores taken by other virtual machines"),),
)
CPUFREQ = Source(
    "cpufreq/scaling_cur_freq",
    "Linux",
    "around",
    (Counter("cpu_frequency_hz", "level", "clock of the cores, mean"),),
)
THERMAL_ZONES = Source(
    "/sys/class/thermal",
    "Linux",
    "around",
    (Counter("temperature_c", "level", "hottest thermal zone"),),
)
POWERCAP = Source(
    "/sys/class/powercap",
    "Linux",
    "around",
    (Counter("cpu_energy_j", "total", "energy of all processor packages"),),
)
LOADAVG = Source("/proc/loadavg", "Linux", "around", (LOAD,))

RUSAGE = Source(
    "proc_pid_rusage",
    "macOS",
    "cheap",
    (
        Counter("process_footprint_bytes", "level", "memory charged to this process"),
        Counter("process_footprint_peak_bytes", "level", "most memory ever charged to it"),
        Counter("process_pageins_count", "total", "pages read from disk for this process"),
    ),
)
VM_STAT = Source(
    "vm_stat",
    "macOS",
    "around",
    (
        Counter("pageins_count", "total", "pages read from disk, whole machine"),
        SWAPPED_IN,
        SWAPPED_OUT,
        Counter("compressions_count", "total", "pages compressed"),
        Counter("decompressions_count", "total", "pages decompressed"),
    ),
)
SWAPUSAGE = Source("sysctl vm.swapusage", "macOS", "around", (SWAP_USED,))
PRESSURE_LEVEL = Source(
    "sysctl kern.memorystatus_vm_pressure_level",
    "macOS",
    "around",
    (Counter("memory_pressure_level", "level", "1 normal, 2 warning, 4 critical"),),
)
THERMAL_LEVEL = Source(
    "notify com.apple.system.thermalpressurelevel",
    "macOS",
    "around",
    (Counter("thermal_pressure_level", "level", "0 nominal; higher is hotter"),),
)
PMSET = Source(
    "pmset -g batt",
    "macOS",
    "around",
    (Counter("on_battery_flag", "level", "1 on battery, 0 on mains"),),
)
PMSET_CUSTOM = Source(
    "pmset -g custom",
    "macOS",
    "around",
    (Counter("low_power_mode_flag", "level", "1 if some power source has low power mode on"),),
)
MAC_LOAD = Source("getloadavg", "macOS", "around", (LOAD,))

WINDOWS_PROCESS = Source(
    "psutil memory_info",
    "Windows",
    "cheap",
    (
        RESIDENT,
        Counter("process_commit_bytes", "level", "memory promised to this process"),
        Counter("process_faults_count", "total", "page faults of this process, soft ones too"),
    ),
)
WINDOWS_SWAP = Source("psutil swap_memory", "Windows", "around", (SWAP_USED,))

NVML = Source(
    "NVML",
    "NVIDIA",
    "around",
    (
        Counter("gpu_clock_hz", "level", "clock of the multiprocessors"),
        Counter("gpu_memory_clock_hz", "level", "clock of the memory"),
        Counter("gpu_event_reasons_mask", "level", "NVML bits: why the clock is below its maximum"),
        Counter("gpu_power_w", "level", "power drawn"),
        Counter("gpu_energy_j", "total", "energy since the driver was loaded"),
        Counter("gpu_temperature_c", "level", "temperature of the chip"),
        Counter("gpu_memory_used_bytes", "level", "memory in use by all processes"),
        Counter("gpu_other_processes_count", "level", "compute processes beside this one"),
    ),
)

SOURCES = (
    *(STATUS, VMSTAT, MEMORY_PRESSURE, CPU_PRESSURE, CGROUP_MEMORY, CGROUP_CPU, SCHEDSTAT, STAT),
    *(CPUFREQ, THERMAL_ZONES, POWERCAP, LOADAVG),
    *(RUSAGE, VM_STAT, SWAPUSAGE, PRESSURE_LEVEL, THERMAL_LEVEL, PMSET, PMSET_CUSTOM, MAC_LOAD),
    *(WINDOWS_PROCESS, WINDOWS_SWAP, NVML),
)
TOTALS = frozenset(c.name for source in SOURCES for c in source.counters if c.kind == "total")
