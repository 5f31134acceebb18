"""A model of transformers at work. Layer: ``engines``."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from regimescope.engines import hf_compile, hf_device, hf_memory
from regimescope.engines.base import MonotonicClock, Step
from regimescope.engines.hf_attention import BACKENDS, Attention
from regimescope.engines.hf_cache import CacheKind, CacheMaker, Need, Quantizer, check_loop
from regimescope.engines.hf_decode import Asked, Decoder, Tokens
from regimescope.engines.hf_generate import GenerateLoop
from regimescope.errors import CapabilityError, EngineError
from regimescope.records import Cell, ModelFacts
from regimescope.spec import KvCache

# What torch, transformers and the drivers under them raise inside a generation.
_FAILURES = (RuntimeError, ValueError, TypeError, LookupError, AssertionError, MemoryError)
_STEP = Step()


class Way(NamedTuple):
    """How a session decodes.

    Attributes:
        cache: Kind of KV cache.
        attention: Implementation or kernel.
        quantizer: Of a quantized cache.
        is_compiled: Whether steps run compiled.
        uses_generate: Whether ``generate`` of transformers is the loop.
    """

    cache: CacheKind = "dynamic"
    attention: Attention = "auto"
    quantizer: Quantizer = "auto"
    is_compiled: bool = False
    uses_generate: bool = False


class _Loop(Protocol):
    """A way from prompt to tokens."""

    def tokens(self, asked: Asked) -> Tokens:
        """Yield tokens."""
        ...

    def close(self) -> None:
        """Let go of the model."""
        ...


class HfSession:
    """A model of transformers on its device."""

    clock = MonotonicClock()

    def __init__(self, model: Any, facts: ModelFacts, way: Way | None = None) -> None:
        """Take over a loaded model.

        Raises:
            CapabilityError: Its family and its kind of cache do not go with the loop.
        """
        self._facts, self._way = facts, way or Way()
        kind = str(getattr(model.config, "model_type", ""))
        check_loop(kind, self._way.cache, uses_generate=self._way.uses_generate)
        if self._way.is_compiled:
            hf_compile.compile_steps(model, facts.device)
        caches = CacheMaker(model, self._way.cache, self._way.quantizer)
        loop = GenerateLoop if self._way.uses_generate else Decoder
        self._loop: _Loop | None = loop(model, caches, self._way.attention)
        self._caches = caches
        self._filled: tuple[Need, Any] | None = None
        self._output: list[list[list[int]]] = []

    def facts(self) -> ModelFacts:
        """Return what was really loaded."""
        return self._facts

    def fill(self, depth: int, cell: Cell | None = None) -> None:
        """Put a synthetic KV cache in place for the next generation; see ``base.Fills``.

        Every layer gets random keys and values. With a cell of the same batch and capacity as the
        generation nothing is left to do inside its time.

        Raises:
            CapabilityError: The depth exceeds the positions of the model, the cell keeps no cache,
                or the layers keep something else than keys and values.
            EngineError: The engine failed or is closed.
        """
        self._filled = None
        if self._loop is None:
            raise EngineError("the session is closed")
        if depth < 0:
            raise EngineError("a depth is 0 or more")
        cell = cell or Cell(budget=1, prompt_tokens=1)
        if depth == 0:
            return
        length = depth + (cell.prompt_tokens or 1) + (cell.budget or 1) - 1
        self._check_length(length, f"Depth {depth}, prompt and budget")
        self._check_cache(cell, depth, length)
        need = Need(cell.batch or 1, depth, cell.capacity or length)
        self._filled = (need, self._fill(need))

    def generate(
        self, prompt_ids: Sequence[int], cell: Cell, *, stamped: bool = True
    ) -> Iterator[Step]:
        """Yield once per token, greedily and past any end-of-sequence token.

        Without stamps the steps after the first are queued on the device one after the other and
        waited for once, at the end.

        The prompt is the same for all sequences of a batch and stands behind what ``fill`` has put
        in place. An abandoned generation keeps its cache until the iterator is closed.

        Raises:
            CapabilityError: Depth, prompt and budget exceed the positions of the model or the
                capacity, or the kind of cache does not go with the cell.
            EngineError: The engine failed or is closed, or the cell has a depth and nothing was
                filled in; the session stays usable after a failure.
        """
        if self._loop is None:
            raise EngineError("the session is closed")
        asked = self._checked(prompt_ids, cell)._replace(stamped=stamped)
        tokens = self._loop.tokens(asked)
        return self._steps(tokens) if stamped else self._first_and_rest(tokens)

    def output_ids(self) -> list[list[int]]:
        """Return the token ids of the latest generation so far, one row per sequence."""
        return [[token for (token,) in row] for row in zip(*self._output, strict=True)]

    def counters(self) -> dict[str, int]:
        """Return memory in bytes by kind, and counts.

        See ``hf_memory.memory_readings`` and, where steps are compiled,
        ``hf_compile.compile_readings``.
        """
        readings = hf_memory.memory_readings(self._facts.device)
        return readings | hf_compile.compile_readings() if self._way.is_compiled else readings

    def device_id(self) -> str | None:
        """Return the UUID or PCI address of a GPU, for finding its counters."""
        return hf_device.device_id(self._facts.device)

    def wait(self) -> None:
        """Wait until the device has done everything it was given."""
        hf_memory.wait(self._facts.device)

    def try_kernel(self) -> None:
        """Try a forced attention kernel in the model itself: a prompt of two tokens and one step.

        Its grouped heads, its masks and its kind of cache decide as well, which trying the kernel
        alone cannot show.

        Raises:
            CapabilityError: The model cannot run with it; the session is closed then.
        """
        if self._way.attention not in BACKENDS:
            return
        try:
            kept: KvCache = "on" if self._caches.is_taken else "off"
            list(self.generate([0, 0], Cell(budget=2, prompt_tokens=2, kv_cache=kept)))
        except (EngineError, CapabilityError) as error:
            self.close()
            reason = str(error).splitlines()[0]
            raise CapabilityError(
                f"The model cannot run with the attention kernel {self._way.attention!r} and a "
                f"{self._way.cache} cache: {reason}",
                remedy="Use attention sdpa, which takes another kernel where it must, or eager.",
            ) from error

    def close(self) -> None:
        """Release the model and give its memory back; safe to call twice."""
        if self._loop is not None:
            self._loop.close()
        self._loop = self._filled = None
        gc.collect()
        hf_device.release_memory(self._facts.device)

    def _checked(self, prompt_ids: Sequence[int], cell: Cell) -> Asked:
        """Refuse what the model cannot do, before the device would fail in words of its own."""
        budget = cell.budget or 0
        if budget < 1 or len(prompt_ids) < 1:
            raise EngineError("a generation needs a prompt and a budget of 1 token or more")
        if not 0 <= min(prompt_ids) <= max(prompt_ids) < self._facts.vocabulary:
            raise EngineError(f"token ids lie outside 0 to {self._facts.vocabulary - 1}")
        depth = self._filled[0].depth if self._filled else 0
        if cell.depth is not None and cell.depth != depth:
            raise EngineError(f"the cell has depth {cell.depth}, but {depth} positions are filled")
        # The last token is produced but not read again, so it takes no position.
        length = depth + len(prompt_ids) + budget - 1
        behind = f"Depth {depth}, prompt" if depth else "Prompt"
        self._check_length(length, f"{behind} {len(prompt_ids)} and budget {budget}")
        self._check_cache(cell, depth, length)
        need = Need(cell.batch or 1, depth, cell.capacity or length)
        return Asked(
            prompt=[list(prompt_ids)] * need.batch,
            budget=budget,
            need=need,
            cached=cell.kv_cache != "off",
            filled=self._take_filled(need),
        )

    def _check_length(self, length: int, what: str) -> None:
        """Refuse what does not fit into the positions of the model."""
        positions = self._facts.positions
        if positions is not None and length > positions:
            raise CapabilityError(
                f"{what} need {length:,} positions, the model has {positions:,}.",
                remedy="Use a smaller budget, a shorter prompt or less depth.",
            )

    def _check_cache(self, cell: Cell, depth: int, length: int) -> None:
        """Refuse what does not go with the kind of cache."""
        kind = self._way.cache
        if cell.kv_cache == "off" and (depth or cell.capacity or kind != "dynamic"):
            raise CapabilityError(
                "Without a KV cache there is no depth, no capacity and no kind of cache.",
                remedy="Leave them unset, or switch the KV cache on.",
            )
        if cell.capacity is None:
            return
        if kind != "static":
            raise CapabilityError(
                f"The cache is {kind} and grows, so that its capacity cannot be chosen.",
                remedy="Give the option cache=static, or leave the capacity unset.",
            )
        if length > cell.capacity:
            raise CapabilityError(
                f"Depth, prompt and budget need {length:,} positions, "
                f"the capacity is {cell.capacity:,}.",
                remedy="Use a larger capacity, or a smaller budget, prompt or depth.",
            )

    def _fill(self, need: Need) -> Any:
        """Return a filled cache."""
        torch = hf_device.import_torch()
        try:
            with torch.inference_mode():
                cache = self._caches.filled(need)
            self.wait()
        except _FAILURES as error:
            raise _failed(error) from error
        return cache

    def _take_filled(self, need: Need) -> Any:
        """Return the cache that was put in place, once; ``None`` for an empty one."""
        if self._filled is None:
            return None
        (filled_for, cache), self._filled = self._filled, None
        # Filled for another batch or length; what is left to do falls into the first token.
        return cache if filled_for == need else self._fill(need)

    def _steps(self, tokens: Tokens) -> Iterator[Step]:
        """Bring each token to the host and yield a step for it."""
        self._output = []
        keep = self._output.append
        try:
            for of_step in tokens:
                keep(of_step.tolist())
                yield _STEP
        except _FAILURES as error:
            raise _failed(error) from error

    def _first_and_rest(self, tokens: Tokens) -> Iterator[Step]:
        """Yield the first token, then all others together."""
        try:
            self._output = [next(tokens).tolist()]
            yield _STEP
            rest = list(tokens)
            # The last token exists when all do; the others are fetched after the time is taken.
            if rest:
                rest[-1].tolist()
                yield Step(tokens=len(rest))
            self._output += [of_step.tolist() for of_step in rest]
        except _FAILURES as error:
            raise _failed(error) from error


def _failed(error: BaseException) -> EngineError | CapabilityError:
    """Return the error for a failure of the libraries."""
    said = f"{type(error).__name__}: {error}"
    # What PyTorch says where a forced kernel cannot compute a shape. On CUDA cuDNN reads no single
    # position, and flash no prompt of several tokens behind filled ones (seen with torch 2.11).
    if "available kernel" in str(error) or "viable backend" in str(error):
        return CapabilityError(
            f"{said} The forced attention kernel cannot compute this shape.",
            remedy="Use attention sdpa, which takes another kernel where it must, or another "
            "length of the prompt: 1 behind a depth, 2 or more without one.",
        )
    return EngineError(said)
