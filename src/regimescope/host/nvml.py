"""Counters of NVIDIA GPUs, through NVML; no root needed. Layer: ``host``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from regimescope.host import catalogue
from regimescope.host.counters import Reader, Values

INSTALL = "pip install 'regimescope[energy]'"


class Gpu(NamedTuple):
    """Which GPU is meant.

    Attributes:
        ordinal: Number by which CUDA knows it, among those that this process may see.
        device_id: Its UUID (``GPU-...`` or ``MIG-...``) or its PCI address, where the engine
            knows one: CUDA and NVML do not always count in the same order.
    """

    ordinal: int = 0
    device_id: str | None = None


def readers(gpu: Gpu) -> tuple[Reader, ...]:
    """Return the reader of one GPU."""
    return (Reader(catalogue.NVML, NvmlReader(_load, gpu).read),)


class NvmlReader:
    """Reads one GPU; NVML is loaded at the first reading and stays open with the process."""

    def __init__(self, load: Callable[[], Any], gpu: Gpu) -> None:
        """Take the function that imports the library, and the GPU to read."""
        self._load, self._gpu = load, gpu
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
            gpu = find(nvml, self._gpu, os.environ.get("CUDA_VISIBLE_DEVICES", ""))
        except nvml.NVMLError as error:
            raise OSError(f"NVML: {error}") from error
        self._opened = nvml, gpu
        return nvml, gpu


def find(nvml: Any, gpu: Gpu, visible: str) -> Any:
    """Return the handle of a GPU.

    Args:
        nvml: The library.
        gpu: Which one.
        visible: Value of ``CUDA_VISIBLE_DEVICES``: numbers or UUIDs, or nothing.

    Raises:
        NVMLError: NVML knows no such GPU.
    """
    if gpu.device_id is not None:
        if ":" in gpu.device_id:
            return nvml.nvmlDeviceGetHandleByPciBusId(gpu.device_id)
        return nvml.nvmlDeviceGetHandleByUUID(gpu.device_id)
    names = [name.strip() for name in visible.split(",") if name.strip()]
    name = names[gpu.ordinal] if gpu.ordinal < len(names) else str(gpu.ordinal)
    if name.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(name))
    return nvml.nvmlDeviceGetHandleByUUID(_whole_uuid(nvml, name))


def _whole_uuid(nvml: Any, start: str) -> str:
    """Return the UUID that begins so: CUDA takes the first characters for it, NVML does not."""
    for number in range(nvml.nvmlDeviceGetCount()):
        uuid = nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(number))
        text = uuid.decode() if isinstance(uuid, bytes) else str(uuid)
        if text.startswith(start):
            return text
    return start


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
