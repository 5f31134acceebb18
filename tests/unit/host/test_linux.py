"""Counters of Linux from made-up kernel files."""

from pathlib import Path

import pytest

from regimescope.host import linux
from regimescope.host.counters import HostCounters

FILES = {
    "proc/self/status": "Name:\tx\nVmRSS:\t    2048 kB\nVmSwap:\t       4 kB\n",
    "proc/vmstat": "pswpin 3\npswpout 5\npgmajfault 7\npgmajfault_other 9\n",
    "proc/pressure/memory": "some avg10=0.00 avg60=0.00 total=1500000\nfull avg10=0 total=9\n",
    "proc/pressure/cpu": "some avg10=0.00 total=250000\n",
    "proc/self/cgroup": "0::/box\n",
    "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
    "sys/fs/cgroup/box/memory.current": "4096\n",
    "sys/fs/cgroup/box/memory.events": "low 0\noom 2\noom_kill 1\n",
    "sys/fs/cgroup/box/cpu.stat": "usage_usec 10\nthrottled_usec 2500000\n",
    "proc/self/task/1/schedstat": "100 2000000000 3\n",
    "proc/self/task/2/schedstat": "100 1000000000 3\n",
    "proc/stat": "cpu  1 2 3 4 5 6 7 800 9 10\ncpu0 1 2\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1000000\n",
    "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "3000000\n",
    "sys/class/thermal/thermal_zone0/temp": "41000\n",
    "sys/class/thermal/thermal_zone1/temp": "55500\n",
    "sys/class/powercap/intel-rapl:0/energy_uj": "1000000\n",
    "sys/class/powercap/intel-rapl:1/energy_uj": "500000\n",
    "proc/loadavg": "0.25 0.5 1.0 1/100 4242\n",
}


def host(root: Path, files: dict[str, str]) -> HostCounters:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return HostCounters(linux.LinuxFiles(root).readers())


def test_every_source_is_read_in_the_unit_of_its_name(tmp_path, monkeypatch):
    sysconf = {"SC_PAGE_SIZE": 4096, "SC_CLK_TCK": 100}
    monkeypatch.setattr(linux.os, "sysconf", sysconf.__getitem__)
    counters = host(tmp_path, FILES)
    assert counters.absent == {}
    assert counters.read() == {
        "process_resident_bytes": 2048 * 1024,
        "process_swap_bytes": 4096,
        "swapped_in_bytes": 3 * 4096,
        "swapped_out_bytes": 5 * 4096,
        "major_faults_count": 7,
        "memory_stall_s": 1.5,
        "cpu_stall_s": 0.25,
        "cgroup_memory_bytes": 4096,
        "cgroup_oom_kills_count": 1,
        "cgroup_throttled_s": 2.5,
        "run_queue_wait_s": 3.0,
        "steal_s": 8.0,
        "cpu_frequency_hz": 2e9,
        "temperature_c": 55.5,
        "cpu_energy_j": 1.5,
        "load_average_count": 0.25,
    }


def test_version_1_of_control_groups_is_read_too(tmp_path):
    files = {
        "proc/self/cgroup": "4:memory:/box\n3:cpu,cpuacct:/box\n",
        "sys/fs/cgroup/memory/box/memory.usage_in_bytes": "77\n",
        "sys/fs/cgroup/memory/box/memory.oom_control": "under_oom 0\noom_kill 4\n",
        "sys/fs/cgroup/cpu/cpu.stat": "throttled_time 3000000000\n",
    }
    assert host(tmp_path, files).read() == {
        "cgroup_memory_bytes": 77,
        "cgroup_oom_kills_count": 4,
        "cgroup_throttled_s": 3.0,
    }


def test_on_an_empty_machine_every_counter_is_absent_with_a_reason(tmp_path):
    counters = host(tmp_path, {})
    assert counters.read() == {}
    assert counters.absent["run_queue_wait_s"].endswith("the kernel keeps no scheduling statistics")
    assert counters.absent["process_swap_bytes"] == "/proc/self/status: no such file or directory"
    assert all(str(tmp_path) not in reason for reason in counters.absent.values())


@pytest.mark.parametrize("text", ["", "full avg10=0 total=9\n", "some avg10=0.1\n"])
def test_a_pressure_file_without_a_total_is_refused(text):
    with pytest.raises(ValueError, match="no total"):
        linux.parse_pressure(text)
