"""The seam between measurement and engines: two protocols and their data. Layer: ``engines``.

An adapter implements ``Engine`` and ``Session``; there is nothing to inherit. The contract in one
sentence: a step is yielded only when its token exists on the host; the adapter synchronizes, the
protocol takes the time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from regimescope.reasons import Reason
from regimescope.records import Cell, ModelFacts
from regimescope.spec import KvCache


class Clock(Protocol):
    """A source of time. Everything that measures or waits is given one, so no test has to wait."""

    def now_ns(self) -> int:
        """Return a time stamp in nanoseconds that never goes back."""
        ...

    def sleep(self, duration_s: float) -> None:
        """Let ``duration_s`` seconds pass on this clock."""
        ...


class MonotonicClock:
    """The real clock: the highest-resolution monotonic one of the platform."""

    # Bound directly, not wrapped: a wrapper would add its call to every gap.
    now_ns = staticmethod(time.perf_counter_ns)
    sleep = staticmethod(time.sleep)


class Step(NamedTuple):
    """What one decode step delivered, all of it present on the host.

    Attributes:
        tokens: Tokens per sequence that this step produced; 1 except for chunked streams.
    """

    tokens: int = 1


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine can do, as data; ``plan`` refuses impossible cells before anything runs.

    Attributes:
        devices: Device names it knows; absence of a device is found out by ``inspect``.
        dtypes: Element types it knows.
        kv_cache: Settings of the KV cache that can be chosen.
        modes: Modes it can be measured in.
        forced_length: The output has exactly the requested number of tokens.
        prompt_by_ids: The prompt can be given as token ids, so that its length is exact.
        prefill_observable: The first token can be timed apart.
        device_timer: The engine offers device-side times.
        synthetic_depth: ``fill`` can put a KV cache of any depth in place.
        capacity: The allocated KV length can be chosen.
        cache_kinds: Kinds of KV cache that an option of the engine chooses; empty for one kind.
        reserved_memory_counter: Reserved device memory can be read.
        batch: More than one sequence can be decoded together.
        unstamped: A generation can run without a synchronization at every step.
        virtual_clock: Time is simulated, so that a process of its own is not needed.
    """

    devices: tuple[str, ...]
    dtypes: tuple[str, ...]
    kv_cache: tuple[KvCache, ...] = ("on",)
    modes: tuple[str, ...] = ("independent", "nested")
    forced_length: bool = True
    prompt_by_ids: bool = True
    prefill_observable: bool = True
    device_timer: bool = False
    synthetic_depth: bool = False
    capacity: bool = False
    cache_kinds: tuple[str, ...] = ()
    reserved_memory_counter: bool = False
    batch: bool = False
    unstamped: bool = False
    virtual_clock: bool = False


class EngineRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine is asked to load.

    Attributes:
        model: Built-in architecture, path or id, as the engine understands it.
        device: Device name or ``auto``.
        dtype: Element type of weights and cache.
        seed: Seed of random weights.
        process_run: Ordinal of the process, for engines that simulate process effects.
        largest: The largest generation planned, so that an engine can refuse what its memory does
            not hold; absent where nobody knows.
        options: Raw table, decoded by the engine into its ``Options``.
    """

    model: str
    device: str
    dtype: str
    seed: int
    process_run: int = 0
    largest: Cell | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)


class Session(Protocol):
    """A loaded model, ready to generate. Used by one thread of one process."""

    @property
    def clock(self) -> Clock:
        """The clock on which this session's steps take their time."""
        ...

    def facts(self) -> ModelFacts:
        """Return what was really loaded."""
        ...

    def generate(
        self, prompt_ids: Sequence[int], cell: Cell, *, stamped: bool = True
    ) -> Iterator[Step]:
        """Yield once per decode step, the first time when the first output token exists.

        Args:
            prompt_ids: Token ids, ``cell.prompt_tokens`` of them.
            cell: What to generate; EOS is ignored and decoding is greedy.
            stamped: Otherwise only the first token is yielded by itself; the others follow as one
                step once the last of them exists, with no synchronization in between. Only asked
                of engines whose capabilities name it.

        Raises:
            EngineError: The engine failed; the session stays usable unless it says otherwise.
        """
        ...

    def counters(self) -> dict[str, int]:
        """Return memory in bytes by kind; a reading that is not available is absent.

        A name that ends in ``_count`` counts events since the process began. Called around trials
        and, where it is fast enough, between two steps of a generation.
        """
        ...

    def close(self) -> None:
        """Release the model and its memory."""
        ...


@runtime_checkable
class Waits(Protocol):
    """A session that can wait for its device by itself; ``doctor`` checks its steps by that."""

    def wait(self) -> None:
        """Wait until the device has done everything it was given."""
        ...


@runtime_checkable
class KnowsDevice(Protocol):
    """A session that knows its device by the name that the driver's own tools use."""

    def device_id(self) -> str | None:
        """Return a UUID or a PCI address, or ``None``; only for finding its counters, not kept."""
        ...


@runtime_checkable
class ReadsTokens(Protocol):
    """A session that keeps the tokens of its latest generation."""

    def output_ids(self) -> list[list[int]]:
        """Return the token ids, one row per sequence."""
        ...


class Generation(NamedTuple):
    """What a session knows of its latest generation beyond its steps.

    Attributes:
        cached_tokens: Prompt tokens that came from a cache instead of being computed; absent where
            the engine does not tell.
        readings: Other values, by name with the unit as suffix.
        reasons: Limits that hold for the trial.
    """

    cached_tokens: int | None = 0
    readings: Mapping[str, float] = {}
    reasons: tuple[Reason, ...] = ()


@runtime_checkable
class TellsGeneration(Protocol):
    """A session that knows more of a generation than its steps show, such as a cached prompt."""

    def last_generation(self) -> Generation:
        """Return what is known of the latest generation, also of one that failed."""
        ...


@runtime_checkable
class Fills(Protocol):
    """A session that can start a generation behind KV positions that were never decoded."""

    def fill(self, depth: int, cell: Cell | None = None) -> None:
        """Put a synthetic KV cache of ``depth`` positions in place for the next generation.

        Called right before ``generate`` and outside its time; the prompt is appended after it, so
        that positions used are depth + prompt + budget - 1. It is used up by one generation.

        Args:
            depth: KV positions held before the prompt, 0 or more; 0 takes a fill away.
            cell: What will be generated behind it, since the batch and the length of the cache
                must be known by now; without it a single sequence in a cache that grows.

        Raises:
            CapabilityError: The positions of the model or the memory do not suffice.
            EngineError: The engine failed.
        """
        ...


class Engine(Protocol):
    """A way to decode. Instances hold no model and cost nothing to make."""

    @property
    def name(self) -> str:
        """The name it is known by."""
        ...

    def capabilities(self) -> Capabilities:
        """Return what it can do, without loading anything."""
        ...

    def inspect(self, request: EngineRequest) -> ModelFacts:
        """Check a request and return the facts of the model, without loading weights.

        Raises:
            UserError: The model, device, dtype or an option is unknown or absent.
        """
        ...

    def open(self, request: EngineRequest) -> Session:
        """Load a model.

        Raises:
            UserError: As ``inspect``.
            EngineError: Loading failed.
        """
        ...
