"""What is made of readings: growth, levels, reasons; the catalogue and its page."""

import importlib.util
import types
from pathlib import Path

import pytest

from regimescope import api
from regimescope.host import catalogue, facts, nvml
from regimescope.host.background import Use, shares
from regimescope.host.counters import HostCounters, Reader, changes
from regimescope.spec import ScanSpec

ROOT = Path(__file__).parents[3]


def test_totals_become_growth_and_levels_stay():
    before = {"steal_s": 2.0, "temperature_c": 40.0}
    after = {"steal_s": 2.5, "temperature_c": 50.0}
    assert changes(before, after) == {"steal_s": 0.5, "temperature_c": 50.0}


def test_a_total_that_fell_or_was_not_there_before_is_left_out():
    before = {"cpu_energy_j": 9.0}
    assert changes(before, {"cpu_energy_j": 1.0, "steal_s": 3.0}) == {}


def test_a_reader_that_fails_later_is_absent_from_that_reading_only():
    answers = [{"load_average_count": 1.0}] * 6 + [OSError(5, "gone"), {"load_average_count": 2.0}]

    def read():
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    counters = HostCounters([Reader(catalogue.LOADAVG, read)])
    assert [counters.read(), counters.read()] == [{}, {"load_average_count": 2.0}]


def test_only_cheap_sources_are_read_between_steps():
    readers = [
        Reader(catalogue.LOADAVG, lambda: {"load_average_count": 1.0}),
        Reader(catalogue.MEMORY_PRESSURE, lambda: {"memory_stall_s": 1.0}),
    ]
    assert HostCounters(readers).read(cheap=True) == {"memory_stall_s": 1.0}


def test_a_name_stands_for_one_kind_and_bears_a_unit():
    kinds = {}
    for source in catalogue.SOURCES:
        for counter in source.counters:
            assert kinds.setdefault(counter.name, counter.kind) == counter.kind
            assert counter.name.rsplit("_", 1)[1] in {
                *("bytes", "count", "s", "hz", "c", "j", "w", "level", "flag", "mask")
            }


def test_the_page_of_counters_is_current():
    path = ROOT / "scripts" / "counters_table.py"
    spec = importlib.util.spec_from_file_location("counters_table", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.PAGE.read_text(encoding="utf-8")
    assert module.with_table(page) == page


def test_shares_are_of_one_core_and_small_ones_are_left_out():
    before = {1: Use("a", 1.0), 2: Use("b", 0.0), 3: Use("c", 5.0)}
    after = {1: Use("a", 2.0), 2: Use("b", 4.0), 3: Use("c", 5.01), 4: Use("new", 9.0)}
    assert shares(before, after, 2.0) == (("b", 2.0), ("a", 0.5))


class NvmlError(Exception):
    pass


def refuse(*_):
    raise NvmlError("Not Supported")


def library(**changed):
    running = [types.SimpleNamespace(pid=-1), types.SimpleNamespace(pid=nvml.os.getpid())]
    functions = {
        "NVMLError": NvmlError,
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByIndex": lambda index: ("index", index),
        "nvmlDeviceGetHandleByUUID": lambda uuid: ("uuid", uuid),
        "nvmlDeviceGetClockInfo": lambda gpu, kind: 1000 * kind,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: 4,
        "nvmlDeviceGetPowerUsage": lambda gpu: 250_000,
        "nvmlDeviceGetTotalEnergyConsumption": refuse,
        "nvmlDeviceGetTemperature": lambda gpu, kind: 60,
        "nvmlDeviceGetMemoryInfo": lambda gpu: types.SimpleNamespace(used=123),
        "nvmlDeviceGetComputeRunningProcesses": lambda gpu: running,
    }
    return types.SimpleNamespace(**functions | changed)


def test_nvml_is_read_in_base_units_and_leaves_out_what_a_gpu_does_not_report():
    assert nvml.NvmlReader(library).read() == {
        "gpu_clock_hz": 1e9,
        "gpu_memory_clock_hz": 2e9,
        "gpu_event_reasons_mask": 4,
        "gpu_power_w": 250,
        "gpu_temperature_c": 60,
        "gpu_memory_used_bytes": 123,
        "gpu_other_processes_count": 1,
    }


def test_nvml_without_a_driver_is_absent_with_the_reason():
    reader = Reader(catalogue.NVML, nvml.NvmlReader(lambda: library(nvmlInit=refuse)).read)
    assert "Not Supported" in HostCounters([reader]).absent["gpu_power_w"]


@pytest.mark.parametrize(
    ("visible", "handle"), [("", ("index", 0)), ("3,1", ("index", 3)), ("GPU-a", ("uuid", "GPU-a"))]
)
def test_the_gpu_is_the_first_that_cuda_sees(visible, handle):
    assert nvml.visible_gpu(library(), visible) == handle


def test_a_home_folder_is_written_as_tilde_and_others_are_left(monkeypatch):
    monkeypatch.setattr(facts.Path, "home", lambda: Path("/home/eve"))
    given = {"model": "/home/eve/m", "list": ["/home/evelyn/m", 3], "x": "at /home/eve"}
    told = {"model": "~/m", "list": ["/home/evelyn/m", 3], "x": "at ~"}
    assert facts.without_home(given) == told


def test_the_name_of_a_run_folder_does_not_tell_the_home_folder(monkeypatch):
    monkeypatch.setattr(facts.Path, "home", lambda: Path("/home/eve"))
    model = "/home/eve/models/small"
    assert "eve" not in api.default_folder(ScanSpec(model=model)).name
    assert "eve" in api.default_folder(ScanSpec(model=model, identify=True)).name


def test_host_and_user_are_told_on_request_only():
    named = {"host_name", "user_name"}
    assert not named & facts.host_facts().keys()
    assert named <= facts.host_facts(identify=True).keys()
