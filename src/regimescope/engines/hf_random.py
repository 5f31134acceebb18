"""Random weights: drawn once, repeated, the same on every device. Layer: ``engines``."""

from __future__ import annotations

from typing import Any

from regimescope.engines.hf_device import import_torch

# The usual standard deviation of initial weights. With it the logits of every built-in stay finite
# in float16, so that the arithmetic is as fast as with trained weights.
WEIGHT_SPREAD = 0.02
# Random numbers are drawn once and repeated: drawing 1.2e9 of them takes 14 s on one core, copying
# 2 s. The length is the largest prime below 2**22, so that no two rows of a matrix are equal.
BLOCK_ELEMENTS = 4_194_301

# What constructors of torch and of transformers fill weights with.
_RANDOM_FILLS = frozenset({"normal_", "uniform_", "kaiming_uniform_"})


def fill_random(model: Any, seed: int) -> None:
    """Give a model random weights: normal matrices, norms of one, biases of zero.

    The same seed gives the same weights on every device, up to rounding to its element type.
    """
    torch = import_torch()
    block = torch.empty(BLOCK_ELEMENTS).normal_(
        0.0, WEIGHT_SPREAD, generator=torch.Generator().manual_seed(seed)
    )
    first = next(model.parameters())
    block = block.to(device=first.device, dtype=first.dtype)
    at = 0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim < 2:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
                continue
            at = _copy_block(parameter.view(-1), block, at)


def skip_random_fills(torch: Any) -> Any:
    """Return a context in which tensors are not filled with random numbers.

    Constructors fill every weight, some twice. That takes 30 ns per weight, four seconds for GPT-2,
    and ``fill_random`` overwrites it at once. Constant fills and the tables of rotary positions are
    computed as usual.
    """

    class SkipRandomFills(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            keywords = kwargs or {}
            # By name, since both methods of tensors and functions of torch.nn.init arrive here.
            if getattr(func, "__name__", None) in _RANDOM_FILLS:
                return args[0] if args else keywords["tensor"]
            return func(*args, **keywords)

    return SkipRandomFills()


def _copy_block(target: Any, block: Any, at: int) -> int:
    """Fill a flat tensor from a block used as a ring, from ``at`` on; return where it ended."""
    done = 0
    while done < target.numel():
        count = min(target.numel() - done, block.numel() - at)
        target[done : done + count].copy_(block[at : at + count])
        done += count
        at = (at + count) % block.numel()
    return at
