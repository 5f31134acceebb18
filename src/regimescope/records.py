"""What is stored: trials, events and the header of a run folder. Layer: above ``spec``.

The structs are the schema: their JSON is what ``trials.jsonl``, ``events.jsonl`` and ``run.json``
hold, and what travels on the pipe between parent and child. An absent value is left out, never
null, NaN or infinite. Changing a field means a new ``SCHEMA_VERSION`` and a migration in ``store``.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from regimescope.reasons import Reason
from regimescope.spec import Arm, Axis, KvCache, Mode, ScanSpec

SCHEMA_VERSION = 2

Status = Literal["ok", "aborted", "failed", "timeout"]
# What was timed. Trials of our own always separate the phases; imports often cannot.
Phase = Literal["decode", "prefill", "mixed", "kernel"]
# Phases of an adaptive plan (method, section 11); ``extend`` widens the range on request of P2.
Stage = Literal[
    "calibrate", "screen", "rerun", "extend", "confirm", "boundary", "final", "adjacency"
]
EventKind = Literal[
    "process_start",
    "process_end",
    "process_death",
    "skip",
    "timeout",
    "veto",
    "sampling_off",
    "phase",
    "torn_line",
    "resume",
    "stop",
    "done",
]


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of everything stored: immutable, named fields only, absent values left out."""


class Cell(Record, frozen=True, kw_only=True):
    """One point of the plan: what is requested in one generation. Lengths in tokens.

    A planned cell has a budget, a prompt and a batch; an import leaves out what it does not know.

    Attributes:
        budget: Tokens requested.
        prompt_tokens: Tokens of the prompt.
        kv_cache: Whether keys and values are kept between steps.
        batch: Sequences decoded together.
        depth: KV positions held before the request.
        capacity: KV positions allocated; absent where the cache grows.
    """

    budget: int | None = None
    prompt_tokens: int | None = None
    kv_cache: KvCache | None = None
    batch: int | None = None
    depth: int | None = None
    capacity: int | None = None


class Series(Record, frozen=True, kw_only=True):
    """What must agree before trials are pooled into one curve (method, section 15)."""

    engine: str
    model: str | None = None
    dtype: str | None = None
    device: str | None = None
    arm: Arm | None = None
    mode: Mode | None = None


class Trial(Record, frozen=True, kw_only=True):
    """One measured generation (method, section 1.3). One line of ``trials.jsonl``.

    Attributes:
        trial_id: Unique in its run folder.
        occasion: One invocation on one machine; never pooled silently.
        series: What must agree before trials are pooled.
        cell: What was requested.
        status: ``ok`` or why there is no latency.
        warmup: First visit of a new maximum; kept, marked, left out of the curve.
        phase: What the latency times; trials of our own always separate prefill and decode.
        process_run: Ordinal of the measured process; absent when unknown (imports).
        block: Ordinal of the visit to every budget this trial belongs to.
        repeat: Ordinal of this trial among those of its cell and process run.
        order_index: Ordinal in time within its process run.
        start_ns: Start on the monotonic clock of the measured process.
        start_utc: Start as ISO 8601 in UTC, for people.
        idle_before_s: Time since the last generation of the process ended.
        cached_tokens: Prompt tokens served from a prefix cache; must be 0.
        output_tokens: Tokens really produced, per sequence.
        decode_steps: Timed decode steps.
        ttft_s: First token minus request start.
        decode_s: Last token minus first token.
        e2e_s: Last token minus request start.
        itl_s: Gaps between consecutive tokens, ``output_tokens - 1`` of them; absent where tokens
            arrived several at a time.
        chunk_tokens: Tokens per chunk where a stream delivers chunks.
        sentinel: Visit to the fixed small budget that shows the machine's speed; kept, marked,
            left out of the curve.
        stage: Phase of the adaptive plan that asked for the trial; absent in a fixed plan.
        synced: Whether the device was synchronized, and a stamp taken, at every step.
        message: What went wrong, for people.
        timeout_s: The longest time that a trial which timed out was given: its latency is more.
        abort_at: Token at which an aborted trial was stopped.
        projected_s: Decode seconds that an aborted trial would have come to; never measured.
        memory_bytes: Memory readings after the trial, by kind.
        counters: Other readings, by name with the unit as suffix: growth of totals during the
            trial, levels after it.
        samples: Readings during the trial as columns of equal length; ``step`` is the number of
            tokens that existed, ``cost_s`` what the reading took, which is in no gap.
        env: What else an import knew.
        reasons: Limits that hold for this trial.
    """

    trial_id: str
    occasion: str
    series: Series
    cell: Cell
    status: Status
    warmup: bool
    phase: Phase
    process_run: int | None = None
    block: int | None = None
    repeat: int = 0
    order_index: int | None = None
    start_ns: int | None = None
    start_utc: str | None = None
    idle_before_s: float | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    decode_steps: int | None = None
    ttft_s: float | None = None
    decode_s: float | None = None
    e2e_s: float | None = None
    itl_s: list[float] | None = None
    chunk_tokens: list[int] | None = None
    sentinel: bool = False
    stage: Stage | None = None
    synced: bool | None = None
    message: str | None = None
    timeout_s: float | None = None
    abort_at: int | None = None
    projected_s: float | None = None
    memory_bytes: dict[str, int] | None = None
    counters: dict[str, float] | None = None
    samples: dict[str, list[float]] | None = None
    env: dict[str, Any] | None = None
    reasons: list[Reason] | None = None


class Event(Record, frozen=True, kw_only=True):
    """Something that happened during a run and is not a trial. One line of ``events.jsonl``.

    Attributes:
        kind: What happened, from a closed set.
        at_utc: When, as ISO 8601 in UTC.
        message: One line for people: what, why.
        trial_id: The trial concerned.
        process_run: The process concerned.
        occasion: The invocation concerned.
        reason: The reason code, where one applies.
        facts: Values that go with it, such as the engine's facts at a process start.
    """

    kind: EventKind
    at_utc: str
    message: str
    trial_id: str | None = None
    process_run: int | None = None
    occasion: str | None = None
    reason: Reason | None = None
    facts: dict[str, Any] | None = None


class Expectation(Record, frozen=True, kw_only=True):
    """What a normal step takes: ``base_s + slope_s * context_length`` seconds.

    Attributes:
        base_s: Seconds at context length zero.
        slope_s: Seconds for each token of context.
    """

    base_s: float
    slope_s: float


class PlannedTrial(Record, frozen=True, kw_only=True):
    """One generation to be measured.

    Attributes:
        trial_id: Unique in the plan.
        cell: What to request.
        block: Ordinal of the visit to every budget.
        repeat: Ordinal among the trials of this cell in this process.
        warmup: Full-length first generation of a process.
        sentinel: Visit to the fixed small budget.
        stamped: Whether to stamp every token; otherwise only the first and the last.
        stage: Phase of the adaptive plan that asks for it; absent in a fixed plan.
        expectation: What its steps should take; a trial that proves slower is ended early. Absent
            where the whole generation is wanted.
    """

    trial_id: str
    cell: Cell
    block: int
    repeat: int
    warmup: bool = False
    sentinel: bool = False
    stamped: bool = True
    stage: Stage | None = None
    expectation: Expectation | None = None

    @property
    def counts(self) -> bool:
        """Whether the trial is one of the measurements asked for."""
        return not self.warmup and not self.sentinel


class PlannedProcess(Record, frozen=True, kw_only=True):
    """The trials one process run measures, in their order, and the arm it belongs to."""

    arm: Arm
    trials: tuple[PlannedTrial, ...]


class Plan(Record, frozen=True, kw_only=True):
    """Everything a scan will measure, in order, and the seed that made it."""

    seed: int
    processes: tuple[PlannedProcess, ...]
    skipped: tuple[str, ...] = ()


class ModelFacts(Record, frozen=True, kw_only=True):
    """What an engine knows of a model before it measures.

    Attributes:
        device: The resolved device, never ``auto``.
        dtype: The resolved element type.
        weights: ``random``, ``file`` or ``server``.
        positions: Longest context the model can hold, in tokens; absent if unlimited or unknown.
        vocabulary: Number of token ids.
        layers: Transformer layers.
        kv_heads: Heads that keep keys and values.
        head_dim: Elements per head.
        weight_bytes: Bytes of all parameters in ``dtype``.
        description: Name of the device for people.
        versions: Library versions that decide the timing.
        settings: Other facts, such as threads.
    """

    device: str
    dtype: str
    weights: str
    vocabulary: int
    positions: int | None = None
    layers: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    weight_bytes: int | None = None
    description: str | None = None
    versions: dict[str, str] = {}
    settings: dict[str, Any] = {}


class RunHeader(Record, frozen=True, kw_only=True):
    """The content of ``run.json``.

    Attributes:
        schema_version: Version of every file in the folder.
        run: Name of the run.
        created_utc: When the run folder was made.
        axis: The swept quantity.
        source: ``scan``, or the importer that made the records.
        versions: Versions of this package, Python and the engine's libraries.
        command: The command line that reproduces the run.
        spec_given: The spec as the user gave it.
        spec: The spec as resolved.
        host: Facts of the machine.
        model: Facts of the model.
        plan: What will be measured.
    """

    schema_version: int
    run: str
    created_utc: str
    axis: Axis = "budget"
    source: str = "scan"
    versions: dict[str, str] = {}
    command: list[str] | None = None
    spec_given: dict[str, Any] | None = None
    spec: ScanSpec | None = None
    host: dict[str, Any] | None = None
    model: ModelFacts | None = None
    plan: Plan | None = None


class Run(Record, frozen=True, kw_only=True):
    """A run folder in memory.

    Attributes:
        header: The content of ``run.json``.
        trials: Every finished trial in the order written.
        events: Every event in the order written.
        torn_lines: Half-written last lines that were passed over while loading.
    """

    header: RunHeader
    trials: tuple[Trial, ...]
    events: tuple[Event, ...] = ()
    torn_lines: int = 0
