"""Step time by context length, from the gaps of long generations. Layer: ``analysis``.

Source: method, section 10.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from regimescope.analysis.reading import STRUCTURAL_PERIODS, Levels, read
from regimescope.errors import InputError
from regimescope.reasons import Reason
from regimescope.records import Trial
from regimescope.results import Estimate, Grade, Regime, Verdict
from regimescope.stats.estimate import summarize_repeats
from regimescope.stats.position import (
    BLOCK_STEPS,
    DROPPED_STEPS,
    block_medians,
    coarse_block,
    periodic_spikes,
)

# Three blocks are the least that has a middle (method, section 15).
LEAST_STEPS = 24
# Where positions are side evidence, this many blocks tell enough in a tenth of a second.
COARSE_BLOCKS = 64
# A step that recurs shows in a few long generations; more of them only cost time.
MOST_TRACES = 31
MOST_PERIODIC_STEPS = 16_384
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
        blocks = block_medians(itl_s, block=block_steps)
        first = _first_context(trial) + DROPPED_STEPS
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


def slow_positions(trials: Sequence[Trial], *, cached: bool) -> tuple[Regime, ...]:
    """Return what is slow by context length: intervals, and single steps of a known period.

    Args:
        trials: Trials that no slow budget lifts as a whole.
        cached: Whether a KV cache was kept, so that step time is a line in context length.
    """
    stamped = [t for t in trials if has_trace(t)]
    if not stamped or max(len(t.itl_s or ()) for t in stamped) < LEAST_TRACE:
        return ()
    longest = max(len(t.itl_s or ()) for t in stamped)
    levels = position_levels(stamped, block_steps=coarse_block(longest, most=COARSE_BLOCKS))
    found = read(levels, degree=1 if cached else 2)
    intervals = tuple(r for r in found.regimes if r.verdict is Verdict.SPIKE)
    return (*intervals, *periodic_steps(stamped))


def periodic_steps(trials: Sequence[Trial]) -> tuple[Regime, ...]:
    """Return single slow steps that recur with a known period, as a SAWTOOTH without edges.

    Block medians hide them: one step in sixteen or more does not move a median of eight.

    Args:
        trials: Generations with their gaps; of one prompt length.
    """
    traces = sorted((t for t in trials if has_trace(t)), key=lambda t: -len(t.itl_s or ()))
    traces = traces[:MOST_TRACES]
    lengths = [min(len(t.itl_s or ()), MOST_PERIODIC_STEPS) for t in traces]
    if not traces or lengths[0] < LEAST_TRACE:
        return ()
    table = np.full((len(traces), lengths[0]), np.inf)
    for row, (trial, length) in enumerate(zip(traces, lengths, strict=True)):
        table[row, :length] = np.log((trial.itl_s or [])[:length])
    # Missing steps sort last, so that the median of each step is in the middle of those it has.
    table.sort(axis=0)
    reached = np.isfinite(table).sum(axis=0)
    columns = np.arange(lengths[0])
    middle = (table[(reached - 1) // 2, columns] + table[reached // 2, columns]) / 2
    context = _first_context(traces[0]) + columns
    found = periodic_spikes(
        context[DROPPED_STEPS:],
        middle[DROPPED_STEPS:],
        periods=[int(period) for period in STRUCTURAL_PERIODS],
    )
    if found is None:
        return ()
    estimate = Estimate(value=math.exp(found.log_effect), n=found.cycles)
    return (
        Regime(verdict=Verdict.SAWTOOTH, grade=Grade.C, period=found.period, slowdown=estimate),
    )


def _first_context(trial: Trial) -> int:
    """Return the positions held at the first gap, which ends at the token after the first one."""
    return (trial.cell.depth or 0) + (trial.cell.prompt_tokens or 0) + 1
