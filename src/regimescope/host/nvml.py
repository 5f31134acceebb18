"""Counters of NVIDIA GPUs, through NVML; no root needed. Layer: ``host``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from regimescope.host import catalogue
from regimescope.host.counters import Reader, Values

INSTALL = "pip install 'regimescope[energy]'"


def readers() -> tuple[Reader, ...]:
    """Return the reader of the GPU that CUDA calls the first one."""
    return (Reader(catalogue.NVML, NvmlReader(_load).read),)


class NvmlReader:
    """Reads one GPU; NVML is loaded at the first reading and stays open with the process."""

    def __init__(self, load: Callable[[], Any]) -> None:
        """Take the function that imports the library."""
        self._load = load
        self._opened: tuple[Any, Any] | None = None

    def read(self) -> Values:
        """Read the GPU; a value that this model does not report is left out.

        Raises:
            OSError: The library is not installed, or there is no driver.
        """
        nvml, gpu = self._opened or self._open()
        values: Values = {}
        for name, read in _READINGS.items():
            try:
                values[name] = float(read(nvml, gpu))
            except (nvml.NVMLError, AttributeError):
                continue  # this GPU, driver or version of the library does not report it
        return values

    def _open(self) -> tuple[Any, Any]:
        """Start NVML and find the GPU."""
        nvml = self._load()
        try:
            nvml.nvmlInit()
            gpu = visible_gpu(nvml, os.environ.get("CUDA_VISIBLE_DEVICES", ""))
        except nvml.NVMLError as error:
            raise OSError(f"NVML: {error}") from error
        self._opened = nvml, gpu
        return nvml, gpu


def visible_gpu(nvml: Any, visible: str) -> Any:
    """Return the handle of the first GPU that CUDA sees.

    Args:
        nvml: The library.
        visible: Value of ``CUDA_VISIBLE_DEVICES``: numbers or UUIDs, or nothing.
    """
    first = visible.split(",")[0].strip()
    if first and not first.isdigit():
        return nvml.nvmlDeviceGetHandleByUUID(first)
    return nvml.nvmlDeviceGetHandleByIndex(int(first or 0))


def _load() -> Any:
    """Import the library.

    Raises:
        OSError: It is not installed.
    """
    try:
        import pynvml
    except ImportError as error:
        raise OSError(f"nvidia-ml-py is not installed: {INSTALL}") from error
    return pynvml


def _event_reasons(nvml: Any, gpu: Any) -> int:
    """Return the bits that say why the clock is low, under the new or the old name."""
    new = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    read = new or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
    return int(read(gpu))


def _other_processes(nvml: Any, gpu: Any) -> int:
    """Return how many processes other than this one compute on the GPU."""
    running = nvml.nvmlDeviceGetComputeRunningProcesses(gpu)
    return sum(process.pid != os.getpid() for process in running)


# NVML counts in MHz, milliwatts and millijoules.
_READINGS: dict[str, Callable[[Any, Any], float]] = {
    "gpu_clock_hz": lambda n, gpu: 1e6 * n.nvmlDeviceGetClockInfo(gpu, n.NVML_CLOCK_SM),
    "gpu_memory_clock_hz": lambda n, gpu: 1e6 * n.nvmlDeviceGetClockInfo(gpu, n.NVML_CLOCK_MEM),
    "gpu_event_reasons_mask": _event_reasons,
    "gpu_power_w": lambda n, gpu: n.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    "gpu_energy_j": lambda n, gpu: n.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3,
    "gpu_temperature_c": lambda n, gpu: n.nvmlDeviceGetTemperature(gpu, n.NVML_TEMPERATURE_GPU),
    "gpu_memory_used_bytes": lambda n, gpu: n.nvmlDeviceGetMemoryInfo(gpu).used,
    "gpu_other_processes_count": _other_processes,
}
