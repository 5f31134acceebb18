"""The transformers engine: PyTorch models in this process. Layer: ``engines``.

Split by concern: ``hf_device`` (devices, element types, memory), ``hf_load`` (names, shapes,
weights), ``hf_decode`` (the loop); here the two protocols put together.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from regimescope.engines import hf_device, hf_load, hf_memory
from regimescope.engines.base import Capabilities, EngineRequest, MonotonicClock, Step
from regimescope.engines.hf_decode import Decoder, Tokens
from regimescope.errors import CapabilityError, EngineError, SpecError
from regimescope.records import Cell, ModelFacts
from regimescope.units import listing

# What torch, transformers and the drivers under them raise inside a generation.
_FAILURES = (RuntimeError, ValueError, TypeError, LookupError, AssertionError, MemoryError)
_STEP = Step()


class HfOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the transformers engine.

    Attributes:
        threads: Threads of PyTorch on the CPU; by default its own choice.
        attention: ``sdpa`` (fused), ``eager`` (plain operations), or ``auto``: fused where the
            model has it.
    """

    threads: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = None
    attention: Literal["auto", "sdpa", "eager"] = "auto"


class HfSession:
    """A model of transformers on its device."""

    clock = MonotonicClock()

    def __init__(self, model: Any, facts: ModelFacts) -> None:
        """Take over a loaded model."""
        self._decoder: Decoder | None = Decoder(model)
        self._facts = facts
        self._output: list[list[list[int]]] = []

    def facts(self) -> ModelFacts:
        """Return what was really loaded."""
        return self._facts

    def generate(
        self, prompt_ids: Sequence[int], cell: Cell, *, stamped: bool = True
    ) -> Iterator[Step]:
        """Yield once per token, greedily and past any end-of-sequence token.

        Without stamps the steps after the first are queued on the device one after the other and
        waited for once, at the end.

        The prompt is the same for all sequences of a batch. An abandoned generation keeps its
        cache until the iterator is closed.

        Raises:
            CapabilityError: Prompt and budget exceed the positions of the model, or the cell asks
                for a depth or a capacity.
            EngineError: The engine failed or is closed; the session stays usable after a failure.
        """
        if self._decoder is None:
            raise EngineError("the session is closed")
        budget = cell.budget or 0
        self._check(prompt_ids, cell, budget)
        prompt = [list(prompt_ids)] * (cell.batch or 1)
        decode = self._decoder.without_cache if cell.kv_cache == "off" else self._decoder.with_cache
        tokens = decode(prompt, budget)
        return self._steps(tokens) if stamped else self._first_and_rest(tokens)

    def output_ids(self) -> list[list[int]]:
        """Return the token ids of the latest generation so far, one row per sequence."""
        return [[token for (token,) in row] for row in zip(*self._output, strict=True)]

    def counters(self) -> dict[str, int]:
        """Return memory in bytes by kind, and counts; see ``hf_memory.memory_readings``."""
        return hf_memory.memory_readings(self._facts.device)

    def wait(self) -> None:
        """Wait until the device has done everything it was given."""
        hf_memory.wait(self._facts.device)

    def close(self) -> None:
        """Release the model and give its memory back; safe to call twice."""
        self._decoder = None
        gc.collect()
        hf_device.release_memory(self._facts.device)

    def _check(self, prompt_ids: Sequence[int], cell: Cell, budget: int) -> None:
        """Refuse what the model cannot do, before the device would fail in words of its own."""
        if budget < 1 or len(prompt_ids) < 1:
            raise EngineError("a generation needs a prompt and a budget of 1 token or more")
        if cell.depth or cell.capacity:
            raise CapabilityError(
                "This engine cannot fill or reserve KV positions before a request.",
                remedy="Leave depth and capacity unset.",
            )
        # The last token is produced but not read again, so it takes no position.
        longest = len(prompt_ids) + budget - 1
        positions = self._facts.positions
        if positions is not None and longest > positions:
            raise CapabilityError(
                f"Prompt {len(prompt_ids)} and budget {budget} need {longest:,} positions, "
                f"the model has {positions:,}.",
                remedy="Use a smaller budget or a shorter prompt.",
            )
        if not 0 <= min(prompt_ids) <= max(prompt_ids) < self._facts.vocabulary:
            raise EngineError(f"token ids lie outside 0 to {self._facts.vocabulary - 1}")

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
            raise EngineError(f"{type(error).__name__}: {error}") from error


class _Resolved(NamedTuple):
    """A request with every name looked up."""

    options: HfOptions
    source: hf_load.Source
    device: str
    dtype: str


class HfEngine:
    """Measures models of transformers."""

    name = "hf"
    Options = HfOptions

    def capabilities(self) -> Capabilities:
        """Return what this engine can do on some device."""
        return Capabilities(
            devices=hf_device.DEVICES,
            dtypes=hf_device.DTYPES,
            kv_cache=("on", "off"),
            reserved_memory_counter=True,
            batch=True,
            unstamped=True,
        )

    def inspect(self, request: EngineRequest) -> ModelFacts:
        """Check a request and return the facts of the model, without loading weights.

        Raises:
            UserError: The model, device, dtype or an option is unknown or absent.
        """
        resolved = _resolve(request)
        shape = hf_load.read_shape(resolved.source, resolved.options.attention)
        return _facts(resolved, shape)

    def open(self, request: EngineRequest) -> HfSession:
        """Load a model.

        Raises:
            UserError: As ``inspect``.
            EngineError: Loading failed, for want of memory for example.
        """
        resolved = _resolve(request)
        if resolved.options.threads is not None:
            hf_device.import_torch().set_num_threads(resolved.options.threads)
        try:
            model = hf_load.load_model(
                resolved.source,
                device=resolved.device,
                dtype=resolved.dtype,
                attention=resolved.options.attention,
                seed=request.seed,
            )
        except (RuntimeError, MemoryError) as error:
            raise EngineError(f"loading {request.model} failed: {error}") from error
        return HfSession(model, _facts(resolved, hf_load.shape_of(model)))


def _resolve(request: EngineRequest) -> _Resolved:
    """Look up every name of a request, those first that need no library.

    Raises:
        UserError: The model, device, dtype or an option is unknown or absent.
    """
    options = _options(request)
    dtype = hf_device.resolve_dtype(request.dtype)
    source = hf_load.find_source(request.model)
    device = hf_device.resolve_device(request.device)
    hf_device.check_dtype(device, dtype)
    return _Resolved(options, source, device, dtype)


def _options(request: EngineRequest) -> HfOptions:
    """Decode the raw table of options.

    Raises:
        SpecError: An option is unknown or out of range.
    """
    try:
        return msgspec.convert(request.options, HfOptions, strict=False)
    except msgspec.ValidationError as error:
        raise SpecError(
            f"Options of the engine hf: {error}.",
            remedy=f"Known options: {listing(HfOptions.__struct_fields__)}.",
        ) from error


def _facts(resolved: _Resolved, shape: hf_load.Shape) -> ModelFacts:
    """Put the facts of a model together."""
    torch, device = hf_device.import_torch(), resolved.device
    return ModelFacts(
        device=device,
        dtype=resolved.dtype,
        weights="file" if resolved.source.architecture is None else "random",
        vocabulary=shape.vocabulary,
        positions=shape.positions,
        layers=shape.layers,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        weight_bytes=shape.parameters * getattr(torch, resolved.dtype).itemsize,
        description=hf_device.device_name(device),
        versions={
            "torch": str(torch.__version__),
            "transformers": metadata.version("transformers"),
        },
        settings={
            "threads": resolved.options.threads or torch.get_num_threads(),
            "attention": shape.attention,
            "parameters": shape.parameters,
            **hf_device.device_settings(device),
        },
    )
