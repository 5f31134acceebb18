"""One timed generation: prompt in, time stamps out. Layer: ``measure``."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from regimescope import metrics
from regimescope.engines.base import Session
from regimescope.measure.early_abort import SlowWatch
from regimescope.measure.sampling import Sampler
from regimescope.records import Cell
from regimescope.units import NS_PER_S


class Timing(NamedTuple):
    """The raw time stamps of one generation.

    Attributes:
        start_ns: Request start.
        stamps_ns: One stamp per step, taken when its token exists on the host.
        chunk_tokens: Tokens of each step.
    """

    start_ns: int
    stamps_ns: list[int]
    chunk_tokens: list[int]


class Latency(NamedTuple):
    """The durations of one generation, in seconds; ``None`` where there is no value."""

    ttft_s: float | None
    decode_s: float | None
    e2e_s: float | None
    itl_s: list[float] | None


def generate(
    session: Session,
    prompt_ids: Sequence[int],
    cell: Cell,
    *,
    stamped: bool = True,
    watch: SlowWatch | None = None,
    sampler: Sampler | None = None,
) -> Timing:
    """Run one generation and stamp every step.

    The garbage collector is off meanwhile: a collection in the middle of a step would look like a
    slow step of the engine.

    Args:
        session: The loaded model.
        prompt_ids: Token ids of the prompt.
        cell: What to generate.
        stamped: Whether every token is a step; see ``Session.generate``.
        watch: Ends the generation once it has proved slow; absent to measure it to its end.
        sampler: Reads counters between steps; the time that takes is in no stamp.

    Raises:
        EngineError: The engine failed; the stamps so far are lost with the trial.
    """
    now_ns = session.clock.now_ns
    stamps_ns: list[int] = []
    chunk_tokens: list[int] = []
    stamp, chunk = stamps_ns.append, chunk_tokens.append
    paused_ns = 0
    # Engines that stamp every step need not know the argument.
    how = {} if stamped else {"stamped": False}
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        start_ns = now_ns()
        for step in session.generate(prompt_ids, cell, **how):
            stamp(now_ns() - paused_ns)
            chunk(step.tokens)
            if watch is not None and watch.decides(stamps_ns):
                break
            if sampler is not None and len(stamps_ns) >= sampler.due:
                paused_ns += sampler.sample()
    finally:
        if was_enabled:
            gc.enable()
    return Timing(start_ns, stamps_ns, chunk_tokens)


def latency(timing: Timing) -> Latency:
    """Turn time stamps into the durations of the glossary."""
    if not timing.stamps_ns:
        return Latency(None, None, None, None)
    since_start = np.asarray(timing.stamps_ns, dtype=np.int64) - timing.start_ns
    ttft_s, e2e_s = float(since_start[0]) / NS_PER_S, float(since_start[-1]) / NS_PER_S
    itl_s = (np.diff(since_start) / NS_PER_S).tolist()
    decode_s = metrics.decode_s(ttft_s, e2e_s) if itl_s else None
    return Latency(ttft_s, decode_s, e2e_s, itl_s)


def prompt(seed: int, trial_id: str, length: int, vocabulary: int) -> list[int]:
    """Return the token ids of a trial's prompt: random, reproducible, different for each trial.

    Different prompts defeat any cache of prefixes (method, section 1.5).

    Args:
        seed: Seed of the scan.
        trial_id: Id of the trial; ASCII.
        length: Tokens wanted.
        vocabulary: Ids are drawn from ``[0, vocabulary)``.
    """
    random = np.random.default_rng([seed, *trial_id.encode()])
    prompt_ids: list[int] = random.integers(0, vocabulary, size=length).tolist()
    return prompt_ids
