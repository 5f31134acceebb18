"""Whether a model and its largest generation fit, before anything is loaded. Layer: ``engines``.

The estimate is a lower bound: what must be there at the same time, without what kernels and
allocators take beside it. So a refusal is certain, and what passes may still fail.
"""

from __future__ import annotations

from typing import NamedTuple

from regimescope.engines.hf_load import Shape
from regimescope.engines.hf_memory import free_bytes
from regimescope.engines.memory_limits import host_free_bytes
from regimescope.errors import CapabilityError
from regimescope.metrics import kv_bytes_per_token
from regimescope.records import Cell
from regimescope.units import count, size

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
# The smallest that transformers packs a quantized cache to unless told otherwise is four bits.
QUANTIZED_BITS = 4
# Of an offloaded cache the device holds the layer at work and the one that is fetched ahead.
OFFLOADED_LAYERS = 2


class Setup(NamedTuple):
    """How a model is to be run.

    Attributes:
        model: Its name, for people.
        device: A resolved device.
        dtype: A resolved element type.
        cache: Kind of cache: dynamic, static, quantized or offloaded.
        attention: The attention asked for; ``math`` and ``eager`` write their scores out.
        is_file: The weights are read from files, and so pass through main memory.
    """

    model: str
    device: str
    dtype: str
    cache: str = "dynamic"
    attention: str = "auto"
    is_file: bool = False


class Need(NamedTuple):
    """Bytes that must be there at the same time.

    Attributes:
        weights: All parameters.
        cache: Keys and values of the whole context.
        cache_on_device: The part of them that the device holds.
        logits: Logits of one step.
        scores: Attention scores of one layer, where they are written out.
        positions: Positions of the longest context.
    """

    weights: int
    cache: int
    cache_on_device: int
    logits: int
    scores: int
    positions: int

    @property
    def on_device(self) -> int:
        """What the device must hold."""
        return self.weights + self.cache_on_device + self.logits + self.scores


def memory_need(shape: Shape, setup: Setup, cell: Cell) -> Need:
    """Return the memory that the weights and one generation need, as far as the shape tells.

    Args:
        shape: The measures of the model.
        setup: How it is to be run.
        cell: The largest generation; without a prompt and a budget one token of each.
    """
    item = ITEM_BYTES[setup.dtype]
    batch, prompt, depth = cell.batch or 1, cell.prompt_tokens or 1, cell.depth or 0
    # The last token is produced and never read again, so it takes no position.
    used = depth + prompt + (cell.budget or 1) - 1
    if shape.positions is not None:
        used = min(used, shape.positions)
    is_cached = cell.kv_cache != "off"
    positions = max(used, cell.capacity or 0)
    cache = batch * _cache_bytes(shape, positions, item) if is_cached else 0
    if setup.cache == "quantized":
        cache = cache * QUANTIZED_BITS // (8 * item)
    layers = shape.full_layers + shape.windowed_layers
    offloaded = setup.cache == "offloaded" and layers > OFFLOADED_LAYERS
    # Without a cache every step reads the whole context, as the prompt is read with one.
    rows, columns = (prompt, depth + prompt) if is_cached else (used, used)
    written = shape.attention == "eager" or setup.attention == "math"
    return Need(
        weights=shape.parameters * item,
        cache=cache,
        cache_on_device=cache * OFFLOADED_LAYERS // layers if offloaded else cache,
        logits=batch * (rows if shape.all_logits else 1) * shape.vocabulary * item,
        scores=batch * (shape.heads or 0) * rows * columns * item if written else 0,
        positions=positions,
    )


def check_memory(shape: Shape, setup: Setup, cell: Cell) -> None:
    """Refuse a model or a generation that the memory free now cannot hold.

    Raises:
        CapabilityError: With what is needed and what is free.
    """
    need = memory_need(shape, setup, cell)
    free = free_bytes(setup.device)
    if free is not None and need.on_device > free:
        raise CapabilityError(
            f"{setup.model} in {setup.dtype} needs {size(need.on_device)} on {setup.device}: "
            f"{_parts(need)}; {size(free)} are free.",
            remedy=_remedy(setup, need, free),
        )
    if setup.device == "cpu":
        return
    staged, free = _host_need(setup, need), host_free_bytes()
    if staged > free:
        raise CapabilityError(
            f"{setup.model} in {setup.dtype} on {setup.device} needs {size(staged)} of main "
            f"memory, for weights on their way or an offloaded cache; {size(free)} are free.",
            remedy=_remedy(setup, need, free),
        )


def _cache_bytes(shape: Shape, positions: int, item: int) -> int:
    """Return the bytes of keys and values of one sequence."""
    if shape.kv_heads is None or shape.head_dim is None:
        return 0
    kept = shape.full_layers * positions
    if shape.window is not None:
        kept += shape.windowed_layers * min(shape.window, positions)
    return kv_bytes_per_token(1, shape.kv_heads, shape.head_dim, item) * kept


def _host_need(setup: Setup, need: Need) -> int:
    """Return the main memory needed beside the device: weights come first, the cache later."""
    return max(need.weights if setup.is_file else 0, need.cache - need.cache_on_device)


def _parts(need: Need) -> str:
    """Return what the need is made of, without what is nothing."""
    parts = {
        "weights": need.weights,
        f"KV cache of {count(need.positions, 'position')}": need.cache_on_device,
        "logits": need.logits,
        "attention scores": need.scores,
    }
    return ", ".join(f"{name} {size(part)}" for name, part in parts.items() if part)


def _remedy(setup: Setup, need: Need, free: int) -> str:
    """Return what to do about it."""
    halves = setup.dtype == "float32" and need.on_device <= 2 * free
    half = ", --dtype bfloat16" if halves else ""
    smaller = "model" if need.weights > free else "range, prompt, depth, capacity or batch"
    return (
        f"Use a smaller {smaller}{half}, or free memory. To load it all the same: "
        "--engine-option check_memory=false."
    )
