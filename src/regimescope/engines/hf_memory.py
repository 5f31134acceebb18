"""Memory of PyTorch's devices, and waiting for them. Layer: ``engines``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import psutil

from regimescope.engines.hf_device import import_torch
from regimescope.engines.memory_limits import host_free_bytes

# Names in ``torch.cuda.memory_stats``, seen in torch 2.11 and 2.13 (mechanisms, section 4).
_CUDA_STATS = {
    "device_allocated": "allocated_bytes.all.current",
    "device_reserved": "reserved_bytes.all.current",
    "device_active": "active_bytes.all.current",
    "alloc_retries_count": "num_alloc_retries",
    "ooms_count": "num_ooms",
    "device_allocs_count": "num_device_alloc",
    "device_frees_count": "num_device_free",
}


class Call(NamedTuple):
    """A call of PyTorch that was tried.

    Attributes:
        name: The call.
        result: What it returned, or what it raised.
        works: Whether it returned.
    """

    name: str
    result: str
    works: bool


def memory_readings(device: str) -> dict[str, int]:
    """Return memory in bytes by kind, and counts; what cannot be read is absent.

    ``process_resident``: this process in main memory. ``device_allocated``: live tensors.
    ``device_active``: live tensors and what waits for another stream. ``device_reserved``: what the
    allocator holds of the device; on MPS what the Metal driver has given to this process, which
    also contains buffers outside the allocator. ``device_recommended_max``: what Metal advises not
    to exceed. Names that end in ``_count`` count what happened since the process began.
    """
    torch = import_torch()
    readings = {"process_resident": int(psutil.Process().memory_info().rss)}
    kind = device.partition(":")[0]
    if kind == "mps":
        readings |= _mps_readings(torch)
    elif kind == "cuda":
        stats = torch.cuda.memory_stats(device)
        readings |= {name: int(stats[key]) for name, key in _CUDA_STATS.items() if key in stats}
    elif kind == "xpu":
        readings["device_allocated"] = torch.xpu.memory_allocated(device)
        readings["device_reserved"] = torch.xpu.memory_reserved(device)
    return readings


def free_bytes(device: str) -> int | None:
    """Return the memory of a device that is free now, in bytes; ``None`` where nobody tells.

    Memory that the allocator of this process holds unused counts as taken. On MPS, which shares the
    main memory, it is what Metal advises to use at most, or what is free of the main memory.
    """
    kind = device.partition(":")[0]
    if kind == "cpu":
        return host_free_bytes()
    torch = import_torch()
    if kind == "mps":
        readings = _mps_readings(torch)
        advised = readings.get("device_recommended_max")
        host = host_free_bytes()
        return host if advised is None else max(min(host, advised - readings["device_reserved"]), 0)
    tells = getattr(getattr(torch, kind), "mem_get_info", None)
    if tells is None:  # xpu has it since torch 2.8
        return None
    return int(tells(device)[0])


def wait(device: str) -> None:
    """Wait until a device has done everything it was given."""
    kind = device.partition(":")[0]
    torch = import_torch()
    if kind == "mps":
        torch.mps.synchronize()
    elif kind in ("cuda", "xpu"):
        getattr(torch, kind).synchronize(device)


def try_mps_calls() -> tuple[Call, ...]:
    """Try every call of MPS that this package relies on, for a report to those who mend it."""
    torch = import_torch()

    def multiply() -> Any:
        sample = torch.ones(8, 8, device="mps")
        return (sample @ sample).argmax().tolist()

    calls: dict[str, Callable[[], Any]] = {
        "torch.__version__": lambda: torch.__version__,
        "torch.backends.mps.is_built()": lambda: torch.backends.mps.is_built(),
        "torch.backends.mps.is_available()": lambda: torch.backends.mps.is_available(),
        "torch.backends.mps.get_name()": lambda: torch.backends.mps.get_name(),
        "torch.mps.recommended_max_memory()": lambda: torch.mps.recommended_max_memory(),
        "torch.mps.current_allocated_memory()": lambda: torch.mps.current_allocated_memory(),
        "torch.mps.driver_allocated_memory()": lambda: torch.mps.driver_allocated_memory(),
        "multiply, argmax, tolist": multiply,
        "torch.mps.synchronize()": lambda: torch.mps.synchronize(),
        "torch.mps.empty_cache()": lambda: torch.mps.empty_cache(),
    }
    return tuple(_tried(name, call) for name, call in calls.items())


def _mps_readings(torch: Any) -> dict[str, int]:
    """Return the readings of MPS; the recommended maximum is not in every release."""
    readings = {
        "device_allocated": int(torch.mps.current_allocated_memory()),
        "device_reserved": int(torch.mps.driver_allocated_memory()),
    }
    recommended = getattr(torch.mps, "recommended_max_memory", None)
    if recommended is not None:
        readings["device_recommended_max"] = int(recommended())
    return readings


def _tried(name: str, call: Callable[[], Any]) -> Call:
    """Make one call and say what came of it."""
    try:
        return Call(name, str(call()), True)
    except (RuntimeError, AttributeError, TypeError, AssertionError) as error:
        text = " ".join(str(error).split())[:200]
        return Call(name, f"{type(error).__name__}: {text}", False)
