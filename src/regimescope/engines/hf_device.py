"""Devices and element types of PyTorch: what is asked, what is there. Layer: ``engines``."""

from __future__ import annotations

import os
import platform
import re
from typing import Any

from regimescope.chip import processor_name
from regimescope.errors import CapabilityError, MissingDependencyError, SpecError
from regimescope.units import listing

# From the most to the least specialized; ``auto`` takes the first that is present.
DEVICES = ("cuda", "mps", "xpu", "cpu")
DTYPES = ("float32", "float16", "bfloat16")
DTYPE_ALIASES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}

INSTALL = "Install it: pip install 'regimescope[hf]'"


def import_torch() -> Any:
    """Import PyTorch.

    Raises:
        MissingDependencyError: It is not installed, or its own libraries cannot be loaded.
    """
    try:
        import torch
    except (ImportError, OSError) as error:
        # OSError is what a wheel says whose shared libraries do not fit this machine.
        raise MissingDependencyError(
            f"PyTorch cannot be imported: {error}.", remedy=INSTALL
        ) from error
    return torch


def resolve_device(name: str) -> str:
    """Return the device to use, such as ``cpu`` or ``cuda:1``; the first one goes without number.

    Args:
        name: One of ``DEVICES``, with a number where there are several, or ``auto``.

    Raises:
        SpecError: There is no such kind of device.
        CapabilityError: The device is not present.
    """
    kind, _, number = name.partition(":")
    if name != "auto" and (kind not in DEVICES or not re.fullmatch(r"[a-z]+(:\d{1,3})?", name)):
        raise SpecError(
            f"Device {name!r} is unknown.",
            remedy=f"Known devices: auto, {listing(DEVICES)}, and numbered ones such as cuda:1.",
        )
    counts = present_devices()
    if name == "auto":
        return next(iter(counts))
    if int(number or 0) >= counts.get(kind, 0):
        raise CapabilityError(
            f"Device {name!r} is not present on this machine.",
            remedy=f"Present: {listing(_numbered(counts))}. Use one of them, or auto.",
        )
    return f"{kind}:{int(number)}" if int(number or 0) else kind


def present_devices() -> dict[str, int]:
    """Return how many devices of each kind PyTorch can use here, the preferred kind first."""
    torch = import_torch()
    counts = {
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
        "xpu": torch.xpu.device_count() if torch.xpu.is_available() else 0,
        "cpu": 1,
    }
    return {kind: counts[kind] for kind in DEVICES if counts[kind]}


def resolve_dtype(name: str) -> str:
    """Return the full name of an element type.

    Raises:
        SpecError: It is unknown.
    """
    dtype = DTYPE_ALIASES.get(name, name)
    if dtype not in DTYPES:
        raise SpecError(
            f"Element type {name!r} is unknown.",
            remedy=f"Known types: {listing([*DTYPES, *DTYPE_ALIASES])}.",
        )
    return dtype


def check_dtype(device: str, dtype: str) -> None:
    """Try a multiplication in an element type on a device.

    What works depends on the device, the operating system and the PyTorch version alike, so it is
    tried and not looked up.

    Raises:
        CapabilityError: The device cannot compute in this type.
    """
    torch = import_torch()
    try:
        sample = torch.ones(2, 2, dtype=getattr(torch, dtype), device=device)
        (sample @ sample).tolist()
    except (RuntimeError, TypeError) as error:
        raise CapabilityError(
            f"Device {device!r} cannot compute in {dtype}: {str(error).splitlines()[0]}.",
            remedy="Use float32.",
        ) from error


def device_name(device: str) -> str:
    """Return the name of a device for people."""
    torch = import_torch()
    kind = device.partition(":")[0]
    if kind == "cuda":
        return str(torch.cuda.get_device_name(device))
    if kind == "xpu":
        return str(torch.xpu.get_device_name(device))
    # On Apple silicon processor and GPU are one chip. PyTorch tells its name only of late (2.13).
    chip_name = getattr(torch.backends.mps, "get_name", None)
    if chip_name is not None and torch.backends.mps.is_available():
        return str(chip_name())
    return processor_name() or platform.machine()


def device_id(device: str) -> str | None:
    """Return the UUID of a GPU, else its PCI address, as NVML knows it; ``None`` for others."""
    torch = import_torch()
    kind, _, number = device.partition(":")
    if kind != "cuda" or torch.version.hip is not None:
        return None
    found = torch.cuda.get_device_properties(int(number or 0))
    if getattr(found, "uuid", None) is not None:
        return f"GPU-{found.uuid}"
    places = [getattr(found, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    if any(place is None for place in places):
        return None
    domain, bus, slot = places
    return f"{domain:08X}:{bus:02X}:{slot:02X}.0"


def device_settings(device: str) -> dict[str, Any]:
    """Return what else about a device decides the timing; absent where it does not apply."""
    torch = import_torch()
    kind = device.partition(":")[0]
    if kind == "cuda":
        cudnn = torch.backends.cudnn.version()
        found = {
            "cuda": torch.version.cuda,
            "hip": torch.version.hip,
            "cudnn": None if cudnn is None else str(cudnn),
            "compute_capability": ".".join(map(str, torch.cuda.get_device_capability(device))),
        }
        return {name: value for name, value in found.items() if value is not None}
    if kind == "cpu":
        settings = {"vector_instructions": torch.backends.cpu.get_cpu_capability()}
        # Whether idle threads spin or sleep. On cores shared with other work, spinning ones make a
        # step several times slower.
        if "OMP_WAIT_POLICY" in os.environ:
            settings["omp_wait_policy"] = os.environ["OMP_WAIT_POLICY"].lower()
        return settings
    return {}


def release_memory(device: str) -> None:
    """Give memory that the allocator of a device holds and nobody uses back to the system."""
    kind = device.partition(":")[0]
    if kind != "cpu":
        getattr(import_torch(), kind).empty_cache()


def _numbered(counts: dict[str, int]) -> list[str]:
    """Return the name of every device, with a number where there are several of a kind."""
    return [
        f"{kind}:{number}" if count > 1 else kind
        for kind, count in counts.items()
        for number in range(count)
    ]
