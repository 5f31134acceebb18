"""The engine mlx: models of mlx-lm in this process. Layer: ``engines``.

Runs on the GPU of Apple silicon, and on the processor where the backend for it is installed. Split
by concern: ``mlx_request`` (what is asked for), ``mlx_load`` (names, shapes, weights),
``mlx_decode`` (the loops, the caches), ``mlx_memory`` (counters); here the two protocols.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from regimescope.engines import mlx_load, mlx_memory, mlx_request
from regimescope.engines.base import Capabilities, EngineRequest, MonotonicClock, Step
from regimescope.engines.mlx_decode import (
    CACHE_KINDS,
    Cache,
    Decoder,
    MlxOptions,
    Tokens,
)
from regimescope.errors import CapabilityError, EngineError
from regimescope.records import Cell, ModelFacts

# What MLX and mlx-lm raise inside a generation.
_FAILURES = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, MemoryError)
_STEP = Step()


class _Fill(NamedTuple):
    """A cache that holds positions before the prompt, for one generation."""

    depth: int
    batch: int
    cache: Cache


class MlxSession:
    """A model of mlx-lm with its weights in memory."""

    clock = MonotonicClock()

    def __init__(self, model: Any, options: MlxOptions, facts: ModelFacts) -> None:
        """Take over a loaded model, and wire its memory where the library would."""
        self._decoder: Decoder | None = Decoder(model, options)
        self._options = options
        self._facts = facts
        self._output: list[list[list[int]]] = []
        self._fill: _Fill | None = None
        self._wired = ExitStack()
        # On Apple silicon mlx-lm lets a model stay resident while it generates. Here that spans
        # the session, so that no generation begins by wiring memory.
        self._wired.enter_context(mlx_load.import_mlx_lm("generate").wired_limit(model))

    def facts(self) -> ModelFacts:
        """Return what was really loaded."""
        return self._facts

    def generate(
        self, prompt_ids: Sequence[int], cell: Cell, *, stamped: bool = True
    ) -> Iterator[Step]:
        """Yield once per token, greedily and past any end-of-sequence token.

        Without stamps the steps after the first are queued one after the other and waited for
        once, at the end. The prompt is the same for all sequences of a batch.

        Raises:
            CapabilityError: The cell asks for more than the model or the options allow.
            EngineError: The engine failed or is closed; the session stays usable after a failure.
        """
        if self._decoder is None:
            raise EngineError("the session is closed")
        fill, self._fill = self._fill, None
        self._check(prompt_ids, cell, fill)
        cache = fill.cache if fill is not None else None
        if self._options.loop == "mlx_lm":
            _check_library_loop(cell, stamped)
            return self._library_steps(self._decoder, list(prompt_ids), cell, cache)
        tokens = self._tokens(self._decoder, prompt_ids, cell, cache)
        return self._steps(tokens) if stamped else self._first_and_rest(tokens)

    def fill(self, depth: int, cell: Cell | None = None) -> None:
        """Put random keys and values of ``depth`` positions in place for the next generation.

        Args:
            depth: KV positions held before the prompt, 0 or more; 0 takes a fill away.
            cell: What will be generated behind it; without it a single sequence.

        Raises:
            CapabilityError: The model has no room for them, or no cache that could be filled.
            EngineError: The engine failed, for want of memory for example.
        """
        if self._decoder is None:
            raise EngineError("the session is closed")
        self._fill = None
        if depth < 0:
            raise EngineError("a depth is 0 or more positions")
        positions = self._facts.positions
        if positions is not None and depth >= positions:
            raise CapabilityError(
                f"Depth {depth:,} leaves no room: the model has {positions:,} positions.",
                remedy="Use a smaller depth.",
            )
        if depth == 0:
            return
        batch = (cell.batch if cell is not None else None) or 1
        try:
            cache = self._decoder.filled_cache(depth, batch)
        except _FAILURES as error:
            raise EngineError(f"{type(error).__name__}: {error}") from error
        self._fill = _Fill(depth, batch, cache)

    def output_ids(self) -> list[list[int]]:
        """Return the token ids of the latest generation so far, one row per sequence."""
        return [[token for (token,) in row] for row in zip(*self._output, strict=True)]

    def counters(self) -> dict[str, int]:
        """Return memory in bytes by kind; see ``mlx_memory.memory_readings``."""
        return mlx_memory.memory_readings()

    def wait(self) -> None:
        """Wait until the device has done everything it was given."""
        mlx_load.import_mlx().synchronize()

    def close(self) -> None:
        """Release the model and give its memory back; safe to call twice."""
        self._decoder = None
        self._fill = None
        self._wired.close()
        gc.collect()
        mlx_load.import_mlx().clear_cache()

    def _check(self, prompt_ids: Sequence[int], cell: Cell, fill: _Fill | None) -> None:
        """Refuse what the model cannot do: MLX reads beyond a table without a word."""
        budget, length, depth = cell.budget or 0, len(prompt_ids), cell.depth or 0
        if budget < 1 or length < 1:
            raise EngineError("a generation needs a prompt and a budget of 1 token or more")
        if cell.capacity:
            raise CapabilityError(
                "The caches of mlx-lm grow; their capacity cannot be chosen.",
                remedy="Leave capacity unset.",
            )
        _check_fill(cell, fill)
        # The last token is produced but not read again, so it takes no position; the loop of the
        # library does read it.
        longest = depth + length + budget - (self._options.loop == "plain")
        positions = self._facts.positions
        if positions is not None and longest > positions:
            raise CapabilityError(
                f"Depth {depth}, prompt {length} and budget {budget} need {longest:,} positions, "
                f"the model has {positions:,}.",
                remedy="Use a smaller budget, a shorter prompt or less depth.",
            )
        if not 0 <= min(prompt_ids) <= max(prompt_ids) < self._facts.vocabulary:
            raise EngineError(f"token ids lie outside 0 to {self._facts.vocabulary - 1}")

    def _tokens(
        self, decoder: Decoder, prompt_ids: Sequence[int], cell: Cell, cache: Cache | None
    ) -> Tokens:
        """Return the tokens of a generation, still to be computed."""
        prompt, budget = [list(prompt_ids)] * (cell.batch or 1), cell.budget or 0
        if cell.kv_cache == "off":
            return decoder.without_cache(prompt, budget)
        return decoder.with_cache(prompt, budget, cache or decoder.new_cache())

    def _steps(self, tokens: Tokens) -> Iterator[Step]:
        """Bring each token to the host and yield a step for it."""
        self._output = []
        keep = self._output.append
        try:
            for of_step in tokens:
                keep(of_step.tolist())
                yield _STEP
        except _FAILURES as error:
            raise EngineError(f"{type(error).__name__}: {error}") from error

    def _first_and_rest(self, tokens: Tokens) -> Iterator[Step]:
        """Yield the first token, then all others together."""
        queue, rest = mlx_load.import_mlx().async_eval, []
        try:
            self._output = [next(tokens).tolist()]
            yield _STEP
            for of_step in tokens:
                queue(of_step)
                rest.append(of_step)
            if rest:
                rest[-1].tolist()
                yield Step(tokens=len(rest))
            self._output += [of_step.tolist() for of_step in rest]
        except _FAILURES as error:
            raise EngineError(f"{type(error).__name__}: {error}") from error

    def _library_steps(
        self, decoder: Decoder, prompt: list[int], cell: Cell, cache: Cache | None
    ) -> Iterator[Step]:
        """Yield a step for each token of the library's own loop."""
        self._output = []
        try:
            cache = cache or decoder.new_cache()
            for token in decoder.library_loop(prompt, cell.budget or 0, cache):
                self._output.append([[token]])
                yield _STEP
        except _FAILURES as error:
            raise EngineError(f"{type(error).__name__}: {error}") from error


def _check_fill(cell: Cell, fill: _Fill | None) -> None:
    """Refuse a cell for which something else was put in place."""
    depth, filled = cell.depth or 0, fill.depth if fill is not None else 0
    if depth != filled:
        raise EngineError(f"depth {depth} is asked for, {filled} positions were put in place")
    if fill is not None and fill.batch != (cell.batch or 1):
        raise EngineError(f"batch {cell.batch or 1} is asked for, {fill.batch} was put in place")
    if depth and cell.kv_cache == "off":
        raise CapabilityError(
            "Without a KV cache there is nothing to fill.", remedy="Leave depth unset."
        )


def _check_library_loop(cell: Cell, stamped: bool) -> None:
    """Refuse what the library's own loop does not offer."""
    if cell.kv_cache == "off" or (cell.batch or 1) > 1 or not stamped:
        raise CapabilityError(
            "The loop of mlx-lm decodes one sequence, with a KV cache, token by token.",
            remedy="Set the option loop to plain.",
        )


class MlxEngine:
    """Measures models of mlx-lm."""

    name = "mlx"
    Options = MlxOptions

    def capabilities(self) -> Capabilities:
        """Return what this engine can do on some device."""
        return Capabilities(
            devices=mlx_request.DEVICES,
            dtypes=mlx_request.DTYPES,
            kv_cache=("on", "off"),
            synthetic_depth=True,
            cache_kinds=CACHE_KINDS,
            reserved_memory_counter=True,
            batch=True,
            unstamped=True,
        )

    def inspect(self, request: EngineRequest) -> ModelFacts:
        """Check a request and return the facts of the model, without loading weights.

        Raises:
            UserError: The model, device, dtype or an option is unknown or absent.
        """
        resolved, found = mlx_request.resolve(request), None
        if resolved.source.folder is not None:
            found = mlx_request.measure(mlx_load.open_folder(resolved.source, resolved.dtype))
        return mlx_request.facts(resolved, found)

    def open(self, request: EngineRequest) -> MlxSession:
        """Load a model.

        Raises:
            UserError: As ``inspect``.
            EngineError: Loading failed, for want of memory for example.
        """
        resolved = mlx_request.resolve(request)
        mx = mlx_load.import_mlx()
        mx.set_default_device(getattr(mx, resolved.device))
        try:
            model = mlx_load.load_model(resolved.source, resolved.dtype, request.seed)
        except (RuntimeError, MemoryError) as error:
            raise EngineError(f"loading {request.model} failed: {error}") from error
        return MlxSession(
            model, resolved.options, mlx_request.facts(resolved, mlx_request.measure(model))
        )
