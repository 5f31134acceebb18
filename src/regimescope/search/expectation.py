"""What a normal step takes, from the first trials of a search. Layer: ``search``.

A probe may end a slow trial early once its steps have shown that it is slow (method, section 11);
for that it needs to know what they should take.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls

from regimescope.records import Expectation, Trial
from regimescope.search.evidence import FloatArray
from regimescope.stats.position import BLOCK_STEPS, DROPPED_STEPS

# A calibration that is slower than the fastest one by more is no reference for what is normal.
EQUAL = math.log(1.25)


def expect_steps(trials: Sequence[Trial]) -> Expectation | None:
    """Return step time as a line in context length, from trials that ran at the normal speed.

    Of generations that share context lengths the fastest sets the standard; one that is slower
    there, such as a calibration that happens to lie in a slow interval, is left out.

    Args:
        trials: Stamped, finished trials.

    Returns:
        ``None`` where no trial is long enough.
    """
    traces = [blocks for blocks in map(_blocks, trials) if blocks.size]
    if not traces:
        return None
    shared = min(len(blocks) for blocks in traces)
    levels = np.array([float(np.median(blocks[:shared, 1])) for blocks in traces])
    normal = [
        blocks
        for blocks, level in zip(traces, levels, strict=True)
        if level <= levels.min() + EQUAL
    ]
    context, log_step = np.concatenate(normal).T
    step_s = np.exp(log_step)
    # Relative errors count: a step twice as long scatters twice as much.
    design = np.column_stack([np.ones_like(context), context]) / step_s[:, None]
    (base_s, slope_s), _ = nnls(design, np.ones_like(step_s))
    return Expectation(base_s=float(base_s), slope_s=float(slope_s))


def _blocks(trial: Trial) -> FloatArray:
    """Return mean context length and median log step time of blocks of steps, shape (blocks, 2)."""
    gaps = np.asarray(trial.itl_s or (), dtype=np.float64)
    count = max(gaps.size - DROPPED_STEPS, 0) // BLOCK_STEPS
    if trial.status != "ok" or count == 0 or not (gaps > 0).all():
        return np.empty((0, 2))
    held = (trial.cell.depth or 0) + (trial.cell.prompt_tokens or 0)
    kept = gaps[DROPPED_STEPS : DROPPED_STEPS + count * BLOCK_STEPS]
    steps = np.median(np.log(kept).reshape(count, BLOCK_STEPS), axis=1)
    first = held + 1 + DROPPED_STEPS
    middle = first + BLOCK_STEPS * np.arange(count) + (BLOCK_STEPS - 1) / 2
    return np.column_stack([middle, steps])
