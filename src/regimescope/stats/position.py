"""Step time by context length, from inter-token gaps (method section 10).

Nothing loops over tokens: gaps are cut into blocks and each array operation sees a whole trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from regimescope.stats.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    finite_vector,
    finite_vector_like,
    sorted_series,
)
from regimescope.stats.epidemic import EpidemicFit, EpidemicOptions, detect
from regimescope.stats.estimate import summarize_repeats

DROPPED_STEPS = 8  # the first steps after prefill differ in nature
BLOCK_STEPS = 8  # medians of eight shed single slow steps and still place an edge well
MOST_BLOCKS = 8192  # blocks that the detector takes a second or two for
LEAST_CYCLES = 3  # fewer repetitions are no period
PERIOD_ALPHA = 0.001
LEAST_SPIKE = float(np.log(1.1))  # as for a step: smaller periodic effects are not mentioned
ELEVATED_SHARE = 0.8  # of the cycles; half of them would speak for twice the period
EXACT_CYCLES = 256  # rank sums of more cycles are normal to a part in ten thousand
ROUNDING = 1e-15  # error of a counted probability; no p value is claimed below it
CHUNK_GAPS = 1 << 20  # gaps sorted at a time, 8 MB, so that memory does not follow the trace


class Profile(NamedTuple):
    """Typical step time by context length.

    Attributes:
        context: context length at the first step of each block, ascending, shape (n,).
        log_itl: median over runs of the log block medians, shape (n,).
        runs: runs that reach each block, shape (n,).
        sigma: scale of one run's block around that median; NaN with too few runs.
    """

    context: FloatArray
    log_itl: FloatArray
    runs: IntArray
    sigma: float


class PeriodicSpikes(NamedTuple):
    """Slow steps at one phase of a known period.

    Attributes:
        period: steps per cycle.
        phase: context length modulo the period at which steps are slow.
        p_value: exact, adjusted for the phases and periods tried.
        log_effect: median log ratio of a slow step to the other steps of its cycle.
        cycles: complete cycles seen.
    """

    period: int
    phase: int
    p_value: float
    log_effect: float
    cycles: int


def block_medians(
    itl_s: ArrayLike, *, block: int = BLOCK_STEPS, dropped: int = DROPPED_STEPS
) -> FloatArray:
    """Log median gap of each complete block of steps.

    Args:
        itl_s: gaps of one generation in seconds, all positive, shape (steps,).
        block: steps of a block, >= 1.
        dropped: first steps left out, >= 0.

    Returns:
        Shape ((steps - dropped) // block,); empty for a short trace.

    Raises:
        ValueError: gaps that are not positive and finite, or sizes out of range.
    """
    if block < 1 or dropped < 0:
        raise ValueError(f"need block >= 1 and dropped >= 0, got {block} and {dropped}")
    gaps = finite_vector(itl_s, "itl_s")
    if gaps.size and gaps.min() <= 0:
        raise ValueError("gaps must be positive")
    count = max(gaps.size - dropped, 0) // block
    table = gaps[dropped : dropped + count * block].reshape(count, block)
    medians = np.empty(count)
    rows = max(1, CHUNK_GAPS // block)
    low, high = (block - 1) // 2, block // 2
    for start in range(0, count, rows):
        ordered = np.sort(table[start : start + rows], axis=1)
        # The logarithm keeps the order, so only the middle of each block needs it.
        middle = np.log(ordered[:, low]) + np.log(ordered[:, high])
        medians[start : start + rows] = middle / 2
    return medians


def coarse_block(longest: int, *, most: int = MOST_BLOCKS) -> int:
    """Block size, a multiple of eight, at which the longest trace has at most ``most`` blocks.

    Args:
        longest: steps of the longest trace.
        most: blocks allowed, >= 1.

    Raises:
        ValueError: a negative length or no blocks allowed.
    """
    if longest < 0 or most < 1:
        raise ValueError(f"need longest >= 0 and most >= 1, got {longest} and {most}")
    return BLOCK_STEPS * max(1, -(-longest // (BLOCK_STEPS * most)))


def position_profile(
    traces: Iterable[ArrayLike],
    first_context: Iterable[int],
    *,
    block: int = BLOCK_STEPS,
) -> Profile:
    """Median over runs of the step time of each block of context lengths.

    Runs with other prompt lengths fall on other blocks unless these differ by whole blocks.

    Args:
        traces: gaps of each run in seconds, read one at a time.
        first_context: context length at the first gap of each run.
        block: steps of a block.

    Raises:
        ValueError: no run with a complete block, unequal numbers, or gaps not positive.
    """
    starts, levels = [], []
    for itl_s, first in zip(traces, first_context, strict=True):
        medians = block_medians(itl_s, block=block)
        levels.append(medians)
        starts.append(first + DROPPED_STEPS + block * np.arange(medians.size))
    if not any(part.size for part in levels):
        raise ValueError(f"no trace has {DROPPED_STEPS + block} steps")
    summary = summarize_repeats(np.concatenate(starts), np.concatenate(levels))
    return Profile(summary.steps, summary.median, summary.repeats, summary.sigma)


def slow_positions(
    profile: Profile, *, cached: bool = True, options: EpidemicOptions | None = None
) -> EpidemicFit:
    """Find slow stretches of context length; edges are known to one block.

    Args:
        profile: step time by context length.
        cached: whether a KV cache is kept: step time is then a line, else a parabola.
        options: settings of the detector.

    Raises:
        ValueError: malformed profile.
    """
    return detect(
        profile.context,
        profile.log_itl,
        repeats=profile.runs,
        sigma=profile.sigma,
        degree=1 if cached else 2,
        options=options,
    )


def run_labels(log_itl: ArrayLike, expected: ArrayLike, delta: float) -> BoolArray:
    """Say for each run whether it was slow in a stretch, by the midpoint rule.

    Args:
        log_itl: log block medians of the stretch, one row per run, shape (runs, n); NaN where a
            run has no value.
        expected: log of the expected step time of each block, shape (n,).
        delta: log slowdown of the stretch, above 0.

    Returns:
        True where the median excess is above half of delta; False for a run without values.
        Shape (runs,).

    Raises:
        ValueError: unequal lengths, infinity, or delta not positive.
    """
    table = np.asarray(log_itl, dtype=np.float64)
    if table.ndim != 2 or np.isinf(table).any():
        raise ValueError("log_itl needs one row per run and no infinity")
    if not delta > 0:
        raise ValueError(f"a label needs a positive log slowdown, got {delta}")
    excess = table - finite_vector_like(expected, table.shape[1], "expected")
    known = ~np.isnan(excess)
    # The median exceeds the midpoint when more than half of the known blocks do.
    above: IntArray = (excess > delta / 2).sum(axis=1)
    slow: BoolArray = above > known.sum(axis=1) / 2
    return slow


def periodic_spikes(
    context: ArrayLike,
    log_itl: ArrayLike,
    *,
    periods: Sequence[int],
    phase: int | None = None,
    alpha: float = PERIOD_ALPHA,
) -> PeriodicSpikes | None:
    """Look for steps that are slow at one phase of a known period.

    Growth with context length is removed first and steps are ranked within their own cycle, so
    that neither growth nor a slow stretch looks like a phase.
    If the phase does not matter, the rank of its step is uniform in each cycle; the law of the
    sum over cycles is counted exactly, beyond 256 cycles it is normal. Of several periods that
    pass the shortest is given: spikes at every 16 steps also stand at multiples of 32.

    Args:
        context: context length of each step, consecutive integers, shape (n,).
        log_itl: log gap of each step or its median over runs, shape (n,).
        periods: known structural periods, each >= 2.
        phase: context length modulo the period where spikes are expected; None tries them all
            and adjusts the p value.
        alpha: level over all periods and phases.

    Returns:
        None where no period with 3 cycles passes.

    Raises:
        ValueError: malformed series, gaps in the context lengths, or a period below 2.
    """
    series = sorted_series(context, log_itl)
    first = int(series.steps[0])
    _check_consecutive(series.steps, periods)
    resolved = [p for p in sorted(set(periods)) if series.steps.size // p >= LEAST_CYCLES]
    for period in resolved:
        found = _spikes_of(series.response, first, period, phase, len(resolved))
        if found is not None and found.p_value <= alpha:
            return found
    return None


def _check_consecutive(steps: FloatArray, periods: Sequence[int]) -> None:
    """Refuse what has no phase: context lengths with gaps, and periods of one step."""
    if (np.diff(steps) != 1).any():
        raise ValueError("periodic spikes need consecutive context lengths")
    if any(period < 2 for period in periods):
        raise ValueError(f"periods must be at least 2, got {list(periods)}")


def _spikes_of(
    values: FloatArray, first: int, period: int, phase: int | None, periods: int
) -> PeriodicSpikes | None:
    """Test the slowest phase of one period, or the given one."""
    cycles = values.size // period
    table = _level(values[: cycles * period].reshape(cycles, period))
    ranks = stats.rankdata(table, axis=1)
    column = int(np.argmax(ranks.sum(axis=0)))
    tried = period
    if phase is not None:
        column, tried = (phase - first) % period, 1
    others = np.median(np.delete(table, column, axis=1), axis=1)
    excess = table[:, column] - others
    effect = float(np.median(excess))
    if effect < LEAST_SPIKE or np.mean(excess > effect / 2) < ELEVATED_SHARE:
        return None
    # Mid-ranks of ties vary less than ranks, so the law without ties is on the safe side when
    # the sum is rounded down.
    p = _uniform_rank_tail(int(np.floor(ranks[:, column].sum())), cycles, period)
    adjusted = min(1.0, p * tried * periods)
    return PeriodicSpikes(period, (first + column) % period, adjusted, effect, cycles)


def _level(table: FloatArray) -> FloatArray:
    """Remove growth from a (cycles, period) table of log gaps.

    Step time grows in a straight line with context length, so the line through the medians of
    neighboring cycles is taken in seconds; a spike per cycle does not move a median.
    """
    cycles, period = table.shape
    center = np.median(table)
    medians = np.exp(np.median(table, axis=1) - center)
    middle = period * np.arange(cycles) + (period - 1) / 2
    x = np.arange(cycles * period, dtype=np.float64)
    trend = np.interp(x, middle, medians)
    for side, a, b in ((x < middle[0], 0, 1), (x > middle[-1], -1, -2)):
        slope = (medians[a] - medians[b]) / (middle[a] - middle[b])
        # Half a cycle beyond the last median; a line into the negative is no step time.
        extended = medians[a] + slope * (x[side] - middle[a])
        trend[side] = np.maximum(extended, medians[a] / 2)
    leveled: FloatArray = table - center - np.log(trend).reshape(cycles, period)
    return leveled


def _uniform_rank_tail(total: int, cycles: int, period: int) -> float:
    """Chance that ``cycles`` independent ranks, uniform on 1..period, sum to the total or more."""
    if cycles > EXACT_CYCLES:
        spread = float(np.sqrt(cycles * (period**2 - 1) / 12))
        return float(stats.norm.sf((total - 0.5 - cycles * (period + 1) / 2) / spread))
    law = np.ones(1)
    for _ in range(cycles):
        # Adding a uniform rank is a moving mean over the last ``period`` sums.
        summed = np.cumsum(np.concatenate([law, np.zeros(period - 1)]))
        law = (
            summed - np.concatenate([np.zeros(period), summed[:-period]])[: summed.size]
        ) / period
    # Index 0 is the least sum, one per cycle; rounding may leave a hair below zero.
    return float(np.clip(law[max(total - cycles, 0) :].sum(), 0.0, 1.0))
