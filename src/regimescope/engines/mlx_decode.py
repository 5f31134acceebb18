"""The decode loop for MLX and the caches it can use. Layer: ``engines``.

MLX computes nothing until a value is asked for. The loops below hand out tokens that are still to
be computed; whoever takes them decides when to wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec

from regimescope.engines.architectures import MOST_POSITIONS
from regimescope.engines.mlx_load import import_mlx, import_mlx_lm
from regimescope.errors import CapabilityError, SpecError

CacheKind = Literal["dynamic", "rotating", "quantized", "concatenated"]
CACHE_KINDS: tuple[CacheKind, ...] = ("dynamic", "rotating", "quantized", "concatenated")
# What mlx-lm keeps of the beginning when it rotates (models.cache.make_prompt_cache).
ROTATING_KEEP = 4
DEFAULT_BITS, DEFAULT_GROUP = 8, 64

_Positive = Annotated[int, msgspec.Meta(ge=1)]
Tokens = Iterator[Any]
Cache = list[Any]


class MlxOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the engine mlx.

    Attributes:
        cache: ``dynamic`` (by 256 positions at a time, what mlx-lm does by itself), ``rotating``
            (the oldest positions are overwritten), ``quantized``, or ``concatenated`` (by one
            position at each step).
        cache_size: Positions that ``rotating`` keeps.
        cache_bits: Bits of each element for ``quantized``; 8 by default.
        cache_group: Elements that share a scale for ``quantized``; 64 by default.
        cache_step: Positions by which ``dynamic`` and ``quantized`` grow; the library's by default.
        prefill_step: Prompt tokens computed at a time, as in mlx-lm.
        clear_cache_every: Tokens after which freed memory is given back, as mlx-lm does it; 0 for
            never.
        loop: ``plain``: each step begins when the token before it is on the host. ``mlx_lm``: the
            library's own loop, which queues a step before it waits for the token before.
        positions: Longest context to build random weights for; by default the published one.
    """

    cache: CacheKind = "dynamic"
    cache_size: Annotated[int, msgspec.Meta(ge=ROTATING_KEEP + 1)] | None = None
    cache_bits: Literal[2, 3, 4, 6, 8] | None = None
    cache_group: Literal[32, 64, 128] | None = None
    cache_step: _Positive | None = None
    prefill_step: _Positive = 2048
    clear_cache_every: Annotated[int, msgspec.Meta(ge=0)] = 256
    loop: Literal["plain", "mlx_lm"] = "plain"
    positions: Annotated[int, msgspec.Meta(ge=1, le=MOST_POSITIONS)] | None = None


def check_options(options: MlxOptions, head_dim: int | None) -> None:
    """Refuse options that contradict each other, or that do not go with a model.

    Raises:
        SpecError: A setting belongs to another kind of cache, or is lacking.
        CapabilityError: The heads of the model cannot be quantized in such groups.
    """
    owners: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("cache_size", ("rotating",)),
        ("cache_bits", ("quantized",)),
        ("cache_group", ("quantized",)),
        ("cache_step", ("dynamic", "quantized")),
    )
    for name, kinds in owners:
        if getattr(options, name) is not None and options.cache not in kinds:
            raise SpecError(
                f"Option {name} of the engine mlx is of no use to the cache {options.cache!r}.",
                remedy=f"Leave it out, or set cache to {' or '.join(kinds)}.",
            )
    if options.cache == "rotating" and options.cache_size is None:
        raise SpecError(
            "A rotating cache needs to know how many positions it keeps.",
            remedy="Set the option cache_size.",
        )
    group = options.cache_group or DEFAULT_GROUP
    if options.cache == "quantized" and head_dim is not None and head_dim % group:
        raise CapabilityError(
            f"Heads of {head_dim} elements cannot be quantized in groups of {group}.",
            remedy="Set cache_group to a divisor of the head size, or use another model.",
        )


class Decoder:
    """A model together with the caches that its options ask for."""

    def __init__(self, model: Any, options: MlxOptions) -> None:
        """Look up what every generation needs."""
        self._mx = import_mlx()
        self._model = model
        self._options = options
        self._caches = import_mlx_lm("models.cache")
        self._layers: list[tuple[int, int, int, Any]] | None = None

    def new_cache(self) -> Cache:
        """Return an empty cache, one entry for each layer.

        Raises:
            CapabilityError: The model brings its own caches, or mlx-lm is too old for this kind.
        """
        kind, step = self._options.cache, self._options.cache_step
        cache: Cache = self._caches.make_prompt_cache(self._model)
        if kind != "dynamic" or step is not None:
            self._check_exchangeable(cache)
        if kind != "dynamic":
            cache = [self._entry(kind) for _ in cache]
        if step is not None:
            for entry in cache:
                entry.step = step
        return cache

    def filled_cache(self, depth: int, batch: int) -> Cache:
        """Return a cache that holds ``depth`` positions of random keys and values, in memory.

        Raises:
            CapabilityError: The caches of the model are not made of keys and values alone.
        """
        mx, cache = self._mx, self.new_cache()
        if depth:
            shapes = self._layer_shapes()
            # Of unit size, as keys and values of trained models are, so that no sum overflows.
            seeds = iter(mx.random.split(mx.random.key(depth), 2 * len(shapes)))
            for entry, (heads, key_dim, value_dim, dtype) in zip(cache, shapes, strict=True):
                of_keys, of_values = (
                    (batch, heads, depth, key_dim),
                    (batch, heads, depth, value_dim),
                )
                keys = mx.random.normal(of_keys, dtype=dtype, key=next(seeds))
                values = mx.random.normal(of_values, dtype=dtype, key=next(seeds))
                entry.update_and_fetch(keys, values)
                mx.eval(entry.state)
        return cache

    def with_cache(self, prompt: Sequence[Sequence[int]], budget: int, cache: Cache) -> Tokens:
        """Yield ``budget`` tokens per sequence, keeping keys and values between steps.

        All of the prompt but its last token is computed first, in pieces, as mlx-lm does it.

        Args:
            prompt: Token ids, one row of equal length per sequence.
            budget: Tokens to produce per sequence, 1 or more.
            cache: Where keys and values go; the prompt is appended to what it holds.

        Yields:
            An array of shape (sequences, 1), not yet computed.
        """
        mx, model, every = self._mx, self._model, self._options.clear_cache_every
        tokens = mx.array(prompt)
        last = tokens.shape[1] - 1
        for start in range(0, last, self._options.prefill_step):
            model(tokens[:, start : min(start + self._options.prefill_step, last)], cache=cache)
            mx.eval([entry.state for entry in cache])
            mx.clear_cache()
        tokens = tokens[:, last:]
        for produced in range(budget):
            logits = model(tokens, cache=cache)
            tokens = mx.argmax(logits[:, -1, :], axis=-1, keepdims=True)
            yield tokens
            if every and produced % every == 0:
                mx.clear_cache()

    def without_cache(self, prompt: Sequence[Sequence[int]], budget: int) -> Tokens:
        """Yield ``budget`` tokens per sequence, computing every position again at each step.

        The models of mlx-lm compute the logits of every position, not only of the last.
        """
        mx, model, every = self._mx, self._model, self._options.clear_cache_every
        context = mx.array(prompt)
        for produced in range(budget):
            logits = model(context)
            tokens = mx.argmax(logits[:, -1, :], axis=-1, keepdims=True)
            yield tokens
            context = mx.concatenate([context, tokens.astype(context.dtype)], axis=1)
            if every and produced % every == 0:
                mx.clear_cache()

    def library_loop(self, prompt: Sequence[int], budget: int, cache: Cache) -> Iterator[int]:
        """Yield the token ids of mlx-lm's own loop, each of them on the host.

        It computes one step more than it hands out, so one position more is needed.
        """
        generate = import_mlx_lm("generate").generate_step
        steps = generate(
            self._mx.array(list(prompt)),
            self._model,
            max_tokens=budget,
            prompt_cache=cache,
            prefill_step_size=self._options.prefill_step,
        )
        for token, _ in steps:
            yield int(token)

    def _check_exchangeable(self, cache: Cache) -> None:
        """Refuse to exchange the caches of a model that needs other ones than the usual.

        Raises:
            CapabilityError: Some layer keeps a window, or something else than keys and values.
        """
        if any(type(entry) is not self._caches.KVCache for entry in cache):
            raise CapabilityError(
                "This model brings its own kinds of cache, which cannot be exchanged.",
                remedy="Leave the options cache and cache_step out.",
            )

    def _entry(self, kind: CacheKind) -> Any:
        """Return the empty cache of one layer."""
        options, caches = self._options, self._caches
        if kind == "rotating":
            return caches.RotatingKVCache(max_size=options.cache_size, keep=ROTATING_KEEP)
        if kind == "quantized":
            return caches.QuantizedKVCache(
                group_size=options.cache_group or DEFAULT_GROUP,
                bits=options.cache_bits or DEFAULT_BITS,
            )
        concatenating = getattr(caches, "ConcatenateKVCache", None)
        if concatenating is None:
            raise CapabilityError(
                "This release of mlx-lm has no concatenating cache.",
                remedy="Update it: pip install -U mlx-lm",
            )
        return concatenating()

    def _layer_shapes(self) -> list[tuple[int, int, int, Any]]:
        """Return heads, key and value elements per head, and element type of every layer.

        Read off the cache of one token, since configurations spell them in many ways.

        Raises:
            CapabilityError: A layer keeps something else than keys and values.
        """
        if self._layers is None:
            mx = self._mx
            probe: Cache = self._caches.make_prompt_cache(self._model)
            mx.eval(self._model(mx.array([[0]]), cache=probe))
            pairs: list[tuple[Any, Any]] = [
                (getattr(entry, "keys", None), getattr(entry, "values", None)) for entry in probe
            ]
            if any(getattr(array, "ndim", 0) != 4 for pair in pairs for array in pair):
                raise CapabilityError(
                    "This model keeps something else than keys and values between steps, so no "
                    "context can be put in place for it.",
                    remedy="Search budget or prompt.",
                )
            self._layers = [
                (keys.shape[1], keys.shape[3], values.shape[3], keys.dtype)
                for keys, values in pairs
            ]
        return self._layers
