"""Step time by context length, from the gaps of long generations. Layer: ``analysis``.

Source: method, section 10.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from regimescope.analysis.reading import Levels, read
from regimescope.analysis.sweep import FloatArray
from regimescope.errors import InputError
from regimescope.reasons import Reason
from regimescope.records import Trial
from regimescope.results import Regime, Verdict
from regimescope.stats.estimate import summarize_repeats

# The first steps after prefill differ in nature, and medians of eight steps shed single slow ones.
DROPPED_STEPS = 8
BLOCK_STEPS = 8
# Three blocks are the least that has a middle (method, section 15).
LEAST_STEPS = 24
# Where positions are side evidence, this many blocks tell enough in a tenth of a second.
COARSE_BLOCKS = 64
LEAST_TRACE = DROPPED_STEPS + LEAST_STEPS


def position_levels(trials: Sequence[Trial], *, block_steps: int = BLOCK_STEPS) -> Levels:
    """Return the typical step time of each block of context lengths, over all trials.

    The value of a block is the context length at its first step.

    Args:
        trials: Generations with their gaps; of one prompt length.
        block_steps: Steps of a block; edges are known to one block.

    Raises:
        InputError: No trial has gaps, or the traces are too short.
    """
    traces = [(trial, trial.itl_s or []) for trial in trials if has_trace(trial)]
    if not traces:
        raise InputError(
            Reason.NO_TRACES,
            "No trial has per-token times, so nothing can be said about context lengths.",
            remedy="Measure with an engine that yields single tokens.",
        )
    if max(len(itl_s) for _, itl_s in traces) < LEAST_TRACE:
        raise InputError(
            Reason.SHORT_TRACE,
            f"The longest generation has fewer than {LEAST_TRACE} steps.",
            remedy="Measure a larger budget.",
        )
    starts, log_itl = [], []
    for trial, itl_s in traces:
        blocks = block_medians(np.log(np.asarray(itl_s)), block_steps)
        # Gap j ends at the token that is read with depth + prompt + j + 1 positions held.
        first = (trial.cell.depth or 0) + (trial.cell.prompt_tokens or 0) + DROPPED_STEPS + 1
        starts.append(first + block_steps * np.arange(blocks.size))
        log_itl.append(blocks)
    x, y = np.concatenate(starts), np.concatenate(log_itl)
    summary = summarize_repeats(x.astype(float), y)
    order = np.argsort(x, kind="stable")
    edges = np.flatnonzero(np.diff(x[order])) + 1
    by_value = np.split(np.exp(y[order]), edges)
    return Levels(
        values=summary.steps.astype(np.int64),
        summary=summary,
        range_s=np.array([[s.min(), s.max()] for s in by_value]),
        phase="decode",
    )


def has_trace(trial: Trial) -> bool:
    """Return whether a trial has gaps, all of them positive as a monotonic clock gives them."""
    return bool(trial.itl_s) and min(trial.itl_s or [0.0]) > 0


def coarse_block(trials: Sequence[Trial]) -> int:
    """Return the block size, a multiple of eight, at which the longest trace has 64 blocks."""
    longest = max((len(trial.itl_s or ()) for trial in trials), default=0)
    return BLOCK_STEPS * max(1, math.ceil(longest / (BLOCK_STEPS * COARSE_BLOCKS)))


def block_medians(log_itl: FloatArray, block_steps: int = BLOCK_STEPS) -> FloatArray:
    """Return medians over blocks of steps, the first eight steps dropped.

    Args:
        log_itl: Log of the gaps of one generation, shape (steps,).
        block_steps: Steps of a block, 1 or more.

    Returns:
        One median per complete block, shape ((steps - 8) // block_steps,).
    """
    kept = log_itl[DROPPED_STEPS:]
    blocks = kept.size // block_steps
    medians: FloatArray = np.median(
        kept[: blocks * block_steps].reshape(blocks, block_steps), axis=1
    )
    return medians


def slow_positions(trials: Sequence[Trial], *, cached: bool) -> tuple[Regime, ...]:
    """Return slow intervals of context length in the steps of generations.

    Args:
        trials: Trials that no slow budget lifts as a whole.
        cached: Whether a KV cache was kept, so that step time is a line in context length.
    """
    stamped = [t for t in trials if has_trace(t)]
    if not stamped or max(len(t.itl_s or ()) for t in stamped) < LEAST_TRACE:
        return ()
    levels = position_levels(stamped, block_steps=coarse_block(stamped))
    found = read(levels, degree=1 if cached else 2)
    return tuple(r for r in found.regimes if r.verdict is Verdict.SPIKE)
