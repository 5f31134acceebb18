"""KV caches of transformers: which kind, how long, and filled without decoding. Layer: ``engines``.

Every kind is filled the way a forward pass fills it, through ``Cache.update``, so that what follows
finds the memory, the strides and the quantized blocks that a decoded cache would have.
"""

from __future__ import annotations

import inspect
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, get_args

from regimescope.engines.hf_device import import_torch
from regimescope.errors import CapabilityError, EngineError, MissingDependencyError

CacheKind = Literal["dynamic", "static", "quantized", "offloaded"]
CACHE_KINDS: tuple[CacheKind, ...] = get_args(CacheKind)
Quantizer = Literal["auto", "fp8", "quanto", "hqq"]

# The cache argument of ``forward``: renamed in transformers 5.24, where the old name warns.
CACHE_KEYWORDS = ("cache", "past_key_values")

# Transformers 5.17 lacks the quantizer that needs no other library, 5.24 has it.
_WITH_FP8 = "'transformers>=5.24'"
# What each quantizer imports, and the package that holds it.
_PACKAGES = {"quanto": ("optimum.quanto", "optimum-quanto"), "hqq": ("hqq", "hqq")}
# Layers of random weights hold keys and values of this order; the time of a step does not depend on
# them as long as none is infinite or denormal.
FILL_SPREAD = 0.1
FILL_SEED = 0


class LayerShape(NamedTuple):
    """What one layer keeps for each position."""

    kv_heads: int
    key_dim: int
    value_dim: int
    dtype: Any


class Need(NamedTuple):
    """What a cache must hold.

    Attributes:
        batch: Sequences.
        depth: Positions held before the prompt.
        length: Positions at the end, the depth included.
    """

    batch: int
    depth: int
    length: int


class CacheMaker:
    """Makes the caches of one model."""

    def __init__(self, model: Any, kind: CacheKind, quantizer: Quantizer = "auto") -> None:
        """Remember the kind; nothing is allocated."""
        self._model, self._kind = model, kind
        self._quantizer = quantizer
        names = inspect.signature(model.forward).parameters
        self._keyword = next((name for name in CACHE_KEYWORDS if name in names), None)
        self._layers: list[LayerShape | None] | None = None
        self._kept: tuple[int, int, Any] | None = None

    @property
    def is_taken(self) -> bool:
        """Whether the model takes a cache at all."""
        return self._keyword is not None

    @property
    def keyword(self) -> str:
        """The argument of ``forward`` that takes the cache.

        Raises:
            CapabilityError: The model takes no cache.
        """
        if self._keyword is None:
            raise CapabilityError(
                f"{type(self._model).__name__} takes no KV cache.",
                remedy="Measure it with kv_cache 'off'.",
            )
        return self._keyword

    def empty(self, need: Need) -> Any:
        """Return an empty cache for one generation; call it in inference mode.

        A static cache of the same length and batch is emptied and used again, as a server does it:
        its addresses stay, which recorded graphs of compiled code depend on.

        Raises:
            CapabilityError: The model takes no cache or cannot have one of this kind.
        """
        _ = self.keyword
        if self._kind != "static":
            return self._new()
        if self._kept is not None and self._kept[:2] == (need.batch, need.length):
            cache = self._kept[2]
            cache.reset()
            return cache
        self._kept = None  # The old one goes before the new one comes.
        cache = _static(self._model.config, need.length)
        self._kept = (need.batch, need.length, cache)
        return cache

    def filled(self, need: Need) -> Any:
        """Return a cache with ``need.depth`` random positions; call it in inference mode.

        One layer's worth of random numbers is drawn and written into all layers.

        Raises:
            CapabilityError: Layers of this model keep something else than keys and values.
        """
        torch = import_torch()
        shapes = self._layer_shapes()
        cache = self.empty(need)
        device = self._model.device
        generator = torch.Generator(device=device).manual_seed(FILL_SEED)
        positions = {"cache_position": torch.arange(need.depth, device=device)}
        drawn: dict[tuple[int, ...], Any] = {}
        for index, shape in enumerate(shapes):
            if shape is None:
                continue
            key, value = (
                _drawn(drawn, (need.batch, shape.kv_heads, need.depth, dim), shape, generator)
                for dim in (shape.key_dim, shape.value_dim)
            )
            cache.update(key, value, index, positions)
        return cache

    def release(self) -> None:
        """Let go of what is kept between generations."""
        self._kept = None

    def _new(self) -> Any:
        """Return an empty cache that grows."""
        import transformers

        config = self._model.config
        if self._kind == "offloaded":
            return transformers.DynamicCache(config=config, offloading=True)
        if self._kind == "quantized":
            return transformers.QuantizedCache(resolve_quantizer(self._quantizer), config)
        return transformers.DynamicCache(config=config)

    def _layer_shapes(self) -> list[LayerShape | None]:
        """Return what each layer keeps; ``None`` for one that reads what another layer keeps.

        Found out by one token and read from the model at work, since heads, head sizes and shared
        layers differ between families in ways that their configurations spell differently.
        """
        if self._layers is None:
            import transformers

            torch, model = import_torch(), self._model
            cache = transformers.DynamicCache(config=model.config)
            tokens = torch.zeros((1, 1), dtype=torch.int64, device=model.device)
            model(tokens, **{self.keyword: cache}, use_cache=True)
            self._layers = [_layer_shape(layer) for layer in cache.layers]
            if not any(self._layers):
                raise CapabilityError(
                    f"{type(model).__name__} keeps no keys and values that could be filled in.",
                    remedy="Leave the depth unset, or give a longer prompt.",
                )
        return self._layers


def check_kind(kind: CacheKind, quantizer: Quantizer, device: str) -> None:
    """Refuse a kind of cache that the device or an absent library rules out.

    Raises:
        CapabilityError: Caches are offloaded from CUDA devices only.
        MissingDependencyError: The quantizer is not installed; or transformers is too old for it.
    """
    if kind == "offloaded" and not device.startswith("cuda"):
        raise CapabilityError(
            f"An offloaded cache moves layers from a CUDA device to the host; this is {device!r}.",
            remedy="Use a CUDA device, or the cache dynamic, static or quantized.",
        )
    if kind == "quantized":
        resolve_quantizer(quantizer)


def check_loop(model_type: str, kind: CacheKind, *, uses_generate: bool) -> None:
    """Refuse a static cache that the loop of this package cannot give to a model.

    Before transformers 5 BLOOM builds its position biases as long as a mask that only ``generate``
    makes as long as a static cache.

    Raises:
        CapabilityError: Naming the loop that can.
    """
    installed = version("transformers")
    if (
        int(installed.split(".")[0]) < 5
        and model_type == "bloom"
        and kind == "static"
        and not uses_generate
    ):
        raise CapabilityError(
            f"transformers {installed} gives BLOOM a static cache in its own loop alone.",
            remedy="Add --engine-option loop=generate, use the cache dynamic, or install "
            "transformers 5.",
        )


def resolve_quantizer(quantizer: Quantizer) -> str:
    """Return the quantizer to use; ``auto`` takes fp8 where transformers has it.

    That one needs no other library.

    Raises:
        MissingDependencyError: It is not installed.
    """
    if quantizer == "auto":
        found = [name for name in ("fp8", "quanto", "hqq") if _has_quantizer(name)]
        if found:
            return found[0]
        raise MissingDependencyError(
            "This transformers quantizes a KV cache only with the help of another library.",
            remedy="Install one: pip install optimum-quanto. Or a transformers that has fp8: "
            f"pip install {_WITH_FP8}",
        )
    if not _has_quantizer(quantizer):
        package = _PACKAGES[quantizer][1] if quantizer in _PACKAGES else _WITH_FP8
        raise MissingDependencyError(
            f"The quantizer {quantizer!r} of KV caches is not installed.",
            remedy=f"Install it: pip install {package}",
        )
    return quantizer


def _has_quantizer(name: str) -> bool:
    """Return whether a quantizer can be used."""
    if name == "fp8":
        from transformers import cache_utils

        return hasattr(cache_utils, "Fp8QuantizedLayer")
    package = _PACKAGES[name][0]
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # Its parent is absent.
        return False


def _static(config: Any, length: int) -> Any:
    """Return a static cache; transformers refuses models it has none for in words of its own."""
    import transformers

    try:
        return transformers.StaticCache(config=config, max_cache_len=length)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise CapabilityError(
            f"transformers has no static cache for this model: {type(error).__name__}: {error}",
            remedy="Use the cache dynamic.",
        ) from error


def _layer_shape(layer: Any) -> LayerShape | None:
    """Return what a layer keeps for each position; ``None`` where it reads that of another layer.

    Raises:
        CapabilityError: It keeps a state that is not made of positions.
    """
    if not hasattr(layer, "keys"):
        raise CapabilityError(
            f"A layer of this model keeps a {type(layer).__name__}, which has no positions.",
            remedy="Leave the depth unset, or give a longer prompt.",
        )
    if layer.keys is None:
        return None
    return LayerShape(
        kv_heads=layer.keys.shape[1],
        key_dim=layer.keys.shape[-1],
        value_dim=layer.values.shape[-1],
        dtype=layer.keys.dtype,
    )


def _drawn(
    drawn: dict[tuple[int, ...], Any], size: tuple[int, ...], shape: LayerShape, generator: Any
) -> Any:
    """Return random numbers of a size, drawn once."""
    if size not in drawn:
        torch = import_torch()
        try:
            block = torch.empty(size, dtype=shape.dtype, device=generator.device)
            drawn[size] = block.normal_(0.0, FILL_SPREAD, generator=generator)
        except (RuntimeError, MemoryError) as error:
            raise EngineError(f"no memory for a KV cache of {size[2]:,} positions") from error
    return drawn[size]
