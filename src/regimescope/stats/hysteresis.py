"""What a slow interval follows: history, one of two factors, or an axis (sections 8.5 and 10)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from regimescope.stats.arrays import BoolArray, FloatArray, finite_vector

FACTOR_ALPHA = 0.01  # 2 effects and 1 interaction on a mechanism, not on the regime itself
LEAST_EFFECT = float(np.log(1.25))  # a main effect worth a name, as for a regime
EXACT_PAIRS = 16  # 65 536 sign patterns are enumerated; beyond, they are drawn
DRAWN_PATTERNS = 99_999  # resolves p to 1e-5
PATTERN_SEED = 20_260  # fixed, so that the same data give the same p value


class Effect(NamedTuple):
    """Effect of one factor.

    Attributes:
        log_effect: mean log ratio of the factor's levels.
        p_value: two-sided, over exchanges within blocks.
    """

    log_effect: float
    p_value: float


class FactorTest(NamedTuple):
    """Which of two factors makes the latency slow.

    Attributes:
        first: main effect of the first factor.
        second: main effect of the second factor.
        interaction: half the difference between the effects of one factor at the other's levels.
        factor: ``first`` or ``second`` when only that one matters; else None.
        blocks: complete blocks.
        codes: ``axis_mixed`` without an answer, ``too_few_processes`` when the blocks are too few
            for any p value at the level.
    """

    first: Effect
    second: Effect
    interaction: Effect
    factor: str | None
    blocks: int
    codes: tuple[str, ...]


class AxisRule(NamedTuple):
    """Which axes can explain one edge over several prompt lengths.

    Attributes:
        budget: all intervals on the budget axis overlap.
        context: all intervals on the context-length axis overlap.
    """

    budget: bool
    context: bool


class AxisAttribution(NamedTuple):
    """Which axis explains both edges.

    Attributes:
        onset: rule at the onset.
        recovery: rule at the recovery.
        axis: ``budget`` or ``context_length`` when exactly one explains both edges; else None.
        codes: ``axis_mixed`` without an answer.
    """

    onset: AxisRule
    recovery: AxisRule
    axis: str | None
    codes: tuple[str, ...]


def history_dependent(intervals: Sequence[tuple[float, float]]) -> bool:
    """Whether arms that visit values in different orders disagree about one edge.

    Args:
        intervals: the edge's interval (low, high] in each arm; one arm alone never disagrees.

    Raises:
        ValueError: an empty interval.
    """
    return _disjoint(intervals)


def attribute_axis(
    prompt_tokens: Sequence[int],
    onsets: Sequence[tuple[float, float]],
    recoveries: Sequence[tuple[float, float]],
) -> AxisAttribution:
    """Exclude axes by repeating a sweep with other prompt lengths.

    On the budget axis an edge stays where it is; on the axis of context length it moves by the
    prompt. An axis is excluded for an edge if two of its intervals are disjoint.

    Args:
        prompt_tokens: prompt length of each sweep, at least 2 sweeps. Shape (k,).
        onsets: interval (low, high] of the onset of each, on the budget axis.
        recoveries: the same for the recovery.

    Raises:
        ValueError: unequal lengths, fewer than 2 sweeps, or an empty interval.
    """
    if not len(prompt_tokens) == len(onsets) == len(recoveries) or len(onsets) < 2:
        raise ValueError("an axis needs two or more sweeps, each with a prompt and both edges")
    rules = []
    for intervals in (onsets, recoveries):
        moved = [(a + p, b + p) for p, (a, b) in zip(prompt_tokens, intervals, strict=True)]
        rules.append(AxisRule(not _disjoint(intervals), not _disjoint(moved)))
    budget = all(rule.budget for rule in rules)
    context = all(rule.context for rule in rules)
    axis = None
    if budget != context:
        axis = "budget" if budget else "context_length"
    return AxisAttribution(rules[0], rules[1], axis, () if axis else ("axis_mixed",))


def factor_test(
    log_latency: ArrayLike, first: ArrayLike, second: ArrayLike, block: ArrayLike
) -> FactorTest:
    """Test a 2 x 2 design of two factors (budget and capacity, inside and outside) in blocks.

    Under the hypothesis that a factor does nothing, its levels can be exchanged within a block at
    each level of the other factor. Incomplete blocks are left out; repeats are taken by their
    median. A factor alone is the cause if its main effect is at least log 1.25 with p <= .01,
    that of the other is smaller than half of it, and so is the interaction.

    Args:
        log_latency: one trial each, shape (N,).
        first: level of the first factor, shape (N,), bool.
        second: level of the second factor, shape (N,), bool.
        block: block of each trial (one process each), shape (N,).

    Raises:
        ValueError: unequal lengths, values that are not finite, or no complete block.
    """
    cells = _cells(log_latency, first, second, block)
    # Differences within a block at each level of the other factor, shape (2 * blocks,).
    by_first = (cells[:, 1, :] - cells[:, 0, :]).ravel()
    by_second = (cells[:, :, 1] - cells[:, :, 0]).ravel()
    crossed = (cells[:, 1, 1] - cells[:, 0, 1] - cells[:, 1, 0] + cells[:, 0, 0]) / 2
    main = [Effect(float(d.mean()), _sign_flip_p(d)) for d in (by_first, by_second)]
    interaction = Effect(float(crossed.mean()), _sign_flip_p(crossed))
    factor = _only_factor(main[0], main[1], interaction)
    few = 2.0 ** (1 - by_first.size) > FACTOR_ALPHA
    codes = {"axis_mixed": factor is None, "too_few_processes": few}
    return FactorTest(
        first=main[0],
        second=main[1],
        interaction=interaction,
        factor=factor,
        blocks=cells.shape[0],
        codes=tuple(code for code, holds in codes.items() if holds),
    )


def _only_factor(first: Effect, second: Effect, interaction: Effect) -> str | None:
    """Name the factor that alone is the cause; None where neither or both matter."""
    factor = None
    for name, own, other in (("first", first, second), ("second", second, first)):
        rest = max(abs(other.log_effect), abs(interaction.log_effect))
        if _matters(own) and rest < abs(own.log_effect) / 2:
            factor = name
    return factor


def _matters(effect: Effect) -> bool:
    return effect.p_value <= FACTOR_ALPHA and abs(effect.log_effect) >= LEAST_EFFECT


def _cells(
    log_latency: ArrayLike, first: ArrayLike, second: ArrayLike, block: ArrayLike
) -> FloatArray:
    """Median of each cell, shape (complete blocks, 2, 2)."""
    y = finite_vector(log_latency, "log_latency")
    a, b = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    numbers, index = np.unique(np.asarray(block), return_inverse=True)
    if not a.shape == b.shape == index.shape == y.shape:
        raise ValueError("a factor test needs one level of each factor and one block per trial")
    table = np.full((numbers.size, 2, 2), np.nan)
    for k in range(numbers.size):
        for i, j in np.ndindex(2, 2):
            here = y[_chosen(index == k, a == bool(i), b == bool(j))]
            if here.size:
                table[k, i, j] = np.median(here)
    complete: FloatArray = table[~np.isnan(table).any(axis=(1, 2))]
    if complete.shape[0] == 0:
        raise ValueError("a factor test needs a block with all four combinations")
    return complete


def _chosen(*masks: BoolArray) -> BoolArray:
    chosen: BoolArray = np.logical_and.reduce(masks)
    return chosen


def _sign_flip_p(difference: FloatArray) -> float:
    """Two-sided p of a mean of differences whose signs are fair coins."""
    n = difference.size
    pattern = _patterns(n)
    # The observed pattern counts as one of those drawn.
    drawn = int(n > EXACT_PAIRS)
    sums = np.abs(pattern @ difference)
    # Sums that agree but for rounding are equal.
    reached = sums >= abs(difference.sum()) * (1 - 1e-12) - 1e-12
    return float((reached.sum() + drawn) / (pattern.shape[0] + drawn))


@lru_cache(maxsize=4)
def _patterns(n: int) -> FloatArray:
    """All patterns of n signs, or many drawn ones; shape (patterns, n)."""
    if n <= EXACT_PAIRS:
        return (1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)).astype(np.float64)
    return np.random.default_rng(PATTERN_SEED).choice([-1.0, 1.0], (DRAWN_PATTERNS, n))


def _disjoint(intervals: Sequence[tuple[float, float]]) -> bool:
    """Whether two of the half-open intervals (low, high] share no value."""
    for low, high in intervals:
        if not low < high:
            raise ValueError(f"an edge lies in (low, high] with low < high, got ({low}, {high}]")
    return any(min(a[1], b[1]) <= max(a[0], b[0]) for a, b in combinations(intervals, 2))
