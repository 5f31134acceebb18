"""Attention of transformers models: which implementation, which kernel. Layer: ``engines``.

``sdpa`` leaves the choice of a kernel to PyTorch, which depends on device, element type and shape.
A forced one takes the choice away; what the device refuses then is an error, never another kernel.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, get_args

from regimescope.engines.hf_device import import_torch
from regimescope.errors import CapabilityError
from regimescope.units import listing

Attention = Literal["auto", "sdpa", "eager", "math", "flash", "efficient", "cudnn"]

# Names in ``torch.nn.attention.SDPBackend``, all present from torch 2.5 on.
BACKENDS = {
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}


def implementation(attention: Attention) -> str:
    """Return the implementation of transformers for a choice; ``auto`` is left as it is."""
    return "sdpa" if attention in BACKENDS else attention


def forced(attention: Attention) -> AbstractContextManager[Any]:
    """Return a context in which only the chosen kernel computes; an empty one for other choices.

    The setting belongs to the process and not to a model, so it is made around each generation.
    """
    if attention not in BACKENDS:
        return nullcontext()
    import_torch()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    context: AbstractContextManager[Any] = sdpa_kernel([getattr(SDPBackend, BACKENDS[attention])])
    return context


def check_kernel(attention: Attention, device: str, dtype: str, head_dim: int | None) -> None:
    """Try a forced kernel with the head size, the element type and the device of a model.

    What works depends on the device, its driver and the PyTorch version alike, so it is tried and
    not looked up. Both shapes of a generation are tried: the prompt, which is causal, and a step,
    which reads a longer past.

    Args:
        attention: The choice; one that forces no kernel passes.
        device: A resolved device.
        dtype: A resolved element type.
        head_dim: Elements per head; 64 where the model does not tell.

    Raises:
        CapabilityError: The device refuses it; the remedy lists the kernels that work.
    """
    if attention not in BACKENDS:
        return
    refusal = _refusal(attention, device, dtype, head_dim or 64)
    if refusal is None:
        return
    works = [
        name
        for name in get_args(Attention)
        if name in BACKENDS and _refusal(name, device, dtype, head_dim or 64) is None
    ]
    raise CapabilityError(
        f"Device {device!r} refuses the attention kernel {attention!r} for {dtype} with "
        f"{head_dim or 64} elements per head: {refusal}",
        remedy=f"Use attention {listing([*works, 'sdpa', 'eager'])}.",
    )


def _refusal(attention: Attention, device: str, dtype: str, head_dim: int) -> str | None:
    """Return what the device says against a kernel; ``None`` where it computes."""
    torch = import_torch()
    attend = torch.nn.functional.scaled_dot_product_attention
    past = torch.ones((1, 1, 8, head_dim), dtype=getattr(torch, dtype), device=device)
    try:
        # The refused kernels each say why as a warning, of which the error is the summary.
        with _quiet(), forced(attention):
            attend(past, past, past, is_causal=True).sum().tolist()
            attend(past[:, :, :1], past, past).sum().tolist()
    except RuntimeError as error:
        return _first_line(error)
    return None


@contextmanager
def _quiet() -> Iterator[None]:
    """Drop warnings meanwhile."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _first_line(error: Exception) -> str:
    """Return the first line of a message, with a full stop."""
    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return line if line.endswith(".") else f"{line}."
