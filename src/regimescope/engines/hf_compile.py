"""Compiled steps for transformers models, and what the compiler did. Layer: ``engines``."""

from __future__ import annotations

import functools
import shutil
import sys
from typing import Any

from regimescope.engines.hf_device import import_torch
from regimescope.errors import CapabilityError


def compile_steps(model: Any, device: str) -> None:
    """Let a model run its single steps compiled, and its prompts as they are.

    A prompt has another length each time and would only fill the cache of compiled code; its
    library compiles steps alone too (transformers, ``generate`` with a static cache). Without a KV
    cache a step reads the whole context, and every pass is a step. Lengths are left to the
    compiler: the first is compiled as a constant, and the second makes it a variable.

    Raises:
        CapabilityError: There is no compiler for this device.
    """
    check_compiler(device)
    plain = model.forward
    compiled = import_torch().compile(plain, dynamic=None)

    # The signature is kept, since callers ask it which arguments there are.
    @functools.wraps(plain)
    def forward(input_ids: Any = None, *args: Any, **keywords: Any) -> Any:
        is_step = input_ids.shape[-1] == 1 or keywords.get("use_cache") is False
        return (compiled if is_step else plain)(input_ids, *args, **keywords)

    model.forward = forward


def check_compiler(device: str) -> None:
    """Refuse a device for which nothing here makes machine code.

    Raises:
        CapabilityError: Naming what to install.
    """
    if device == "cpu" and not any(map(shutil.which, ("g++", "clang++", "c++", "cl"))):
        raise CapabilityError(
            "Compiling for the CPU needs a C++ compiler, and there is none on the path.",
            remedy="Install g++ or clang++, or leave the option compile out.",
        )
    if device.startswith(("cuda", "xpu")):
        try:
            import triton  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
        except ImportError as error:
            raise CapabilityError(
                f"Compiling for {device} needs Triton, which cannot be imported.",
                remedy="Install it: pip install triton. Or leave the option compile out.",
            ) from error


def compile_readings() -> dict[str, int]:
    """Return what the compiler of PyTorch did since this process began; empty if never asked.

    ``compiles_count``: attempts to compile a function. ``recompiles_count``: those for a function
    compiled before, whose assumptions no longer held. ``graph_breaks_count``: places left to
    Python. ``compile_fallbacks_count``: functions that run uncompiled because compiling failed or
    its limit was reached. These are names inside ``torch._dynamo`` (2.7 to 2.13); one that a
    release lacks is absent here.
    """
    frames = sys.modules.get("torch._dynamo.convert_frame")
    metrics = sys.modules.get("torch._dynamo.utils")
    attempts = getattr(frames, "FRAME_COMPILE_COUNTER", None)
    counters = getattr(metrics, "counters", None)
    readings: dict[str, int] = {}
    if attempts is not None:
        readings["compiles_count"] = sum(attempts.values())
        readings["recompiles_count"] = sum(count - 1 for count in attempts.values())
    if counters is not None:
        readings["graph_breaks_count"] = sum(counters["graph_break"].values())
        of_frames = counters["frames"]
        readings["compile_fallbacks_count"] = of_frames["total"] - of_frames["ok"]
    return readings
