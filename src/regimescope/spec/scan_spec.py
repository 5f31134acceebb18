"""What is asked for: frozen, without behavior, unknown keys refused. Layer: ``spec``."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

# The observer arm is planned by --observer, never asked for by name.
Arm = Literal["warm", "fresh", "observer"]
Axis = Literal["budget", "context", "prompt", "capacity", "batch", "time"]
Isolation = Literal["auto", "process", "inline"]
KvCache = Literal["on", "off"]
Mode = Literal["independent", "nested"]
Order = Literal["random", "ascending", "descending"]

DEFAULT_ENGINE = "hf"
DEFAULT_MODEL = "gpt2"
# The range on which the method was designed; it holds the published regimes (arXiv 2605.08913).
DEFAULT_LOW, DEFAULT_HIGH = 64, 1024
# The widest gap of a grid of 32 with its jitter (method, section 11).
DEFAULT_MIN_WIDTH = 40


class ScanSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One scan of one model on one device. Durations in seconds, lengths in tokens.

    Attributes:
        engine: Name of the engine.
        model: Built-in architecture, path, or hub id, as the engine understands it.
        device: Device name, or ``auto`` for the best one present.
        dtype: Element type of weights and cache.
        axis: The swept quantity; the others are recorded and held fixed.
        budgets: Decoding budgets of a fixed plan, each at least 2, strictly ascending; on another
            axis its values; empty for an adaptive search of the range from ``low`` to ``high``.
        low: First value of the range that is searched.
        high: Last value of it; absent for 1024, or what the model can hold.
        min_width: A slow interval at least this wide is met by the search.
        prevalence: Least share of processes that are slow inside a slow interval, above 0.
        budget: Tokens decoded by each trial where another axis than the budget is searched.
        certify: Whether to repeat the final check in six fresh processes instead of two.
        prompt_tokens: Tokens of the prompt, at least 1.
        depth: KV positions held before the prompt, filled in without decoding; absent for none.
        capacity: KV positions allocated; absent where the cache grows or the engine decides.
        kv_cache: Whether the engine keeps keys and values between steps.
        batch: Sequences decoded together.
        arms: ``warm``: a process per block; ``fresh``: a process per trial. Analyzed apart.
        mode: ``independent``: one generation per budget; ``nested``: one long generation,
            whose steps are analyzed by context length.
        order: Order of the budgets within a block; anything but random mixes budget and time.
        processes: Process runs of each arm; the unit of replication.
        repeats: Blocks per process run, each a visit to every budget in random order.
        seed: Seed of order, prompts and random weights.
        warm_up_s: Least wall time of the warm-up at the start of a process (method, 1.5).
        trial_timeout_s: Longest time one trial may take before its process is ended; less where
            the warm-up has shown how fast the model is.
        sentinel_every: Trials between two visits to the sentinel, a fixed small budget that shows
            when the machine changes its speed; 0 for none.
        observer: Whether to measure what stamping every token costs, at three budgets.
        max_seconds: Wall time after which no further trial is started; absent for no limit.
        max_tokens: Decoded tokens, warm-ups included, beyond which none is started.
        counters_every: Steps between two readings of the counters inside a trial, where they are
            cheap enough; 0 for readings around trials only.
        identify: Whether the run may hold host name, user name and home folder.
        isolation: ``process`` measures in a child process; ``inline`` in this one, which only
            engines with a virtual clock allow; ``auto`` picks.
        engine_options: Raw table for the engine, decoded by the engine itself.
    """

    engine: str = DEFAULT_ENGINE
    model: str = DEFAULT_MODEL
    device: str = "auto"
    dtype: str = "float32"
    axis: Axis = "budget"
    budgets: tuple[int, ...] = ()
    low: int = DEFAULT_LOW
    high: int | None = None
    min_width: int = DEFAULT_MIN_WIDTH
    prevalence: float = 1.0
    budget: int = 32
    certify: bool = False
    prompt_tokens: int = 65
    depth: int | None = None
    capacity: int | None = None
    kv_cache: KvCache = "on"
    batch: int = 1
    arms: tuple[Arm, ...] = ("warm",)
    mode: Mode = "independent"
    order: Order = "random"
    processes: int = 3
    repeats: int = 1
    seed: int = 0
    warm_up_s: float = 3.0
    trial_timeout_s: float = 3600.0
    sentinel_every: int = 5
    observer: bool = False
    max_seconds: float | None = None
    max_tokens: int | None = None
    counters_every: int = 64
    identify: bool = False
    isolation: Isolation = "auto"
    engine_options: dict[str, Any] = msgspec.field(default_factory=dict)
