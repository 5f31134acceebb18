"""Counters of NVIDIA GPUs: the right one of several, in base units."""

from __future__ import annotations

import types
from typing import Any

import pytest

from regimescope.host import catalogue, nvml
from regimescope.host.counters import HostCounters, Reader, host_readers

FIRST, SECOND = "GPU-8932f937-d72c", "GPU-417ad9b2-0000"


class NvmlError(Exception):
    """What the library raises."""


def refuse(*_: Any) -> Any:
    raise NvmlError("Not Supported")


def library(**changed: Any) -> types.SimpleNamespace:
    running = [types.SimpleNamespace(pid=-1), types.SimpleNamespace(pid=nvml.os.getpid())]
    functions = {
        "NVMLError": NvmlError,
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetUUID": lambda gpu: (FIRST, SECOND)[gpu[1]],
        "nvmlDeviceGetHandleByIndex": lambda index: ("index", index),
        "nvmlDeviceGetHandleByUUID": lambda uuid: ("uuid", uuid),
        "nvmlDeviceGetHandleByPciBusId": lambda address: ("pci", address),
        "nvmlDeviceGetClockInfo": lambda gpu, kind: 1000 * kind,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: 4,
        "nvmlDeviceGetPowerUsage": lambda gpu: 250_000,
        "nvmlDeviceGetTotalEnergyConsumption": refuse,
        "nvmlDeviceGetTemperature": lambda gpu, kind: 60,
        "nvmlDeviceGetMemoryInfo": lambda gpu: types.SimpleNamespace(used=123),
        "nvmlDeviceGetComputeRunningProcesses": lambda gpu: running,
    }
    return types.SimpleNamespace(**functions | changed)


def test_nvml_is_read_in_base_units_and_leaves_out_what_a_gpu_does_not_report() -> None:
    assert nvml.NvmlReader(library, nvml.Gpu()).read() == {
        "gpu_clock_hz": 1e9,
        "gpu_memory_clock_hz": 2e9,
        "gpu_event_reasons_mask": 4,
        "gpu_power_w": 250,
        "gpu_temperature_c": 60,
        "gpu_memory_used_bytes": 123,
        "gpu_other_processes_count": 1,
    }


@pytest.mark.parametrize("failing", ["nvmlInit", "nvmlDeviceGetHandleByIndex"])
def test_nvml_without_a_driver_or_the_gpu_is_absent_with_the_reason(failing: str) -> None:
    read = nvml.NvmlReader(lambda: library(**{failing: refuse}), nvml.Gpu(7)).read
    counters = HostCounters([Reader(catalogue.NVML, read)])
    assert "Not Supported" in counters.absent["gpu_power_w"]


@pytest.mark.parametrize(
    ("gpu", "visible", "handle"),
    [
        (nvml.Gpu(), "", ("index", 0)),
        (nvml.Gpu(1), "", ("index", 1)),
        (nvml.Gpu(), "3,1", ("index", 3)),
        (nvml.Gpu(1), "3, 1", ("index", 1)),
        (nvml.Gpu(1), f"{FIRST},{SECOND}", ("uuid", SECOND)),
        (nvml.Gpu(1), "GPU-8932,GPU-417", ("uuid", SECOND)),
        (nvml.Gpu(0), "MIG-1", ("uuid", "MIG-1")),
        (nvml.Gpu(1, SECOND), "0,0", ("uuid", SECOND)),
        (nvml.Gpu(1, "00000000:3B:00.0"), "", ("pci", "00000000:3B:00.0")),
    ],
)
def test_the_gpu_is_the_one_that_is_measured(
    gpu: nvml.Gpu, visible: str, handle: tuple[str, Any]
) -> None:
    assert nvml.find(library(), gpu, visible) == handle


def test_a_uuid_in_bytes_as_older_libraries_give_it_is_matched() -> None:
    old = library(nvmlDeviceGetUUID=lambda gpu: (FIRST, SECOND)[gpu[1]].encode())
    assert nvml.find(old, nvml.Gpu(), "GPU-417") == ("uuid", SECOND)


@pytest.mark.parametrize(("device", "read"), [("cuda", True), ("cuda:1", True), ("cpu", False)])
def test_gpus_are_read_where_one_is_measured(device: str, read: bool) -> None:
    assert (catalogue.NVML in [reader.source for reader in host_readers(device)]) == read
