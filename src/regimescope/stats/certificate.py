"""Model-free certificate: a longer decode cannot be faster (method section 3); exact tests."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from regimescope.stats.arrays import FloatArray, IntArray, finite_vector, sorted_series

STEP_MARGIN = 1.1  # least slowdown of a step
TIED_SHARE = 0.10  # share of tied pairs above which a timer counts as coarse


class Certificate(NamedTuple):
    """Ratio of each latency to the least one of any longer decode; descriptive, not a test.

    A ratio above 1 bounds the slowdown from below without any curve. The minimum over noisy
    values is biased, so ratios up to 1.1 mean nothing.

    Attributes:
        steps: axis values, ascending, shape (n,).
        ratio: V of every step but the last, shape (n - 1,).
        witness: index of the longer step that gives the ratio, shape (n - 1,).
        value: largest ratio; None for a single step.
        peak_index: index of the step where it is reached; None for a single step.
    """

    steps: FloatArray
    ratio: FloatArray
    witness: IntArray
    value: float | None
    peak_index: int | None


class RankTest(NamedTuple):
    """An exact rank-sum test.

    Attributes:
        p_value: of the alternative asked for.
        tied: True when more than 10 % of the pairs are tied (a coarse timer).
        size: numbers of values on both sides.
    """

    p_value: float
    tied: bool
    size: tuple[int, int]


def certificate(steps: ArrayLike, log_latency: ArrayLike) -> Certificate:
    """Certificate of a sweep, ``V(B_i) = T_i / min over k > i of T_k``.

    Args:
        steps: distinct axis values, shape (n,), any order.
        log_latency: log of the median latency of each step, shape (n,).

    Raises:
        ValueError: malformed series.
    """
    series = sorted_series(steps, log_latency)
    y = series.response
    n = y.size
    if n == 1:
        return Certificate(series.steps, np.empty(0), np.empty(0, dtype=np.int64), None, None)
    backwards = y[:0:-1]
    least = np.minimum.accumulate(backwards)
    # The last position, seen from the end, at which the running minimum was lowered.
    lowered = np.concatenate([[True], backwards[1:] < least[:-1]])
    position = np.maximum.accumulate(np.where(lowered, np.arange(n - 1), 0))
    witness = (n - 1 - position)[::-1].astype(np.int64)
    ratio = np.exp(y[:-1] - y[witness])
    top = int(np.argmax(ratio))
    return Certificate(series.steps, ratio, witness, float(ratio[top]), top)


def fresh_certificate_test(slow: ArrayLike, longer: ArrayLike) -> RankTest:
    """Test on fresh trials that a budget is slower than a longer one; no curve and no margin.

    Args:
        slow: log latency of fresh trials at the last confirmed budget, plus infinity for one that
            timed out, shape (a,).
        longer: log latency of fresh trials at the right flanking control, the same, shape (b,).

    Raises:
        ValueError: an empty side, NaN or minus infinity.
    """
    return exact_rank_test(slow, longer, alternative="greater")


def fresh_step_test(
    at_step: ArrayLike, before: ArrayLike, *, steps: tuple[float, float], degree: int
) -> RankTest:
    """Test on fresh trials that latency jumps between two neighboring steps (method section 9).

    Values at the step are deflated by a slowdown of 1.1 and by the most that any curve of the
    degree can grow between the two steps, ``degree * log(S_k / S_{k-1})``.

    Args:
        at_step: log latency of fresh trials at the first slow step S_k, plus infinity for one
            that timed out, shape (a,).
        before: log latency of fresh trials at S_{k-1}, the same, shape (b,).
        steps: (S_{k-1}, S_k), ascending, positive.
        degree: degree of the expected curve.

    Raises:
        ValueError: an empty side, NaN, minus infinity, or steps that do not ascend.
    """
    low, high = steps
    if not 0 < low < high:
        raise ValueError(f"steps must be positive and ascending, got {steps}")
    growth = degree * np.log(high / low)
    deflated = np.asarray(at_step, dtype=np.float64) - np.log(STEP_MARGIN) - growth
    return exact_rank_test(deflated, before, alternative="greater")


def exact_rank_test(x: ArrayLike, y: ArrayLike, *, alternative: str = "two-sided") -> RankTest:
    """Exact Mann-Whitney test; with ties the exact permutation law of the mid-rank sum.

    Args:
        x: values of the first sample, shape (a,), a >= 1. Plus infinity is a trial that ran out
            of time: slower than every finite one, and all of them share the last rank.
        y: values of the second sample, the same, shape (b,), b >= 1.
        alternative: ``greater`` (x tends to be greater), ``less`` or ``two-sided``.

    Returns:
        The p value; 1 when all values are equal.

    Raises:
        ValueError: an empty side, NaN, minus infinity, or an unknown alternative.
    """
    first, second = _ranked_last(x, y)
    if first.size == 0 or second.size == 0:
        raise ValueError("a rank test needs values on both sides")
    if alternative not in {"greater", "less", "two-sided"}:
        raise ValueError(f"unknown alternative {alternative!r}")
    pairs = np.count_nonzero(first[:, None] == second[None, :]) / (first.size * second.size)
    # Doubled mid-ranks are integers, so the law of their sum can be counted exactly.
    ranks = np.rint(2 * stats.rankdata(np.concatenate([first, second]))).astype(np.int64)
    law = rank_sum_law(ranks, first.size)
    observed = int(ranks[: first.size].sum())
    greater = float(law[observed:].sum())
    less = float(law[: observed + 1].sum())
    p = {"greater": greater, "less": less, "two-sided": 2 * min(greater, less)}[alternative]
    return RankTest(min(1.0, p), bool(pairs > TIED_SHARE), (first.size, second.size))


def _ranked_last(x: ArrayLike, y: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return two samples with plus infinity replaced by a number above all finite ones."""
    sides = [np.asarray(side, dtype=np.float64) for side in (x, y)]
    both = np.concatenate([side.ravel() for side in sides])
    finite = both[np.isfinite(both)]
    last = float(finite.max()) + 1.0 if finite.size else 0.0
    first, second = (
        finite_vector(np.where(side == np.inf, last, side), name)
        for side, name in zip(sides, ("x", "y"), strict=True)
    )
    return first, second


def rank_sum_law(ranks: IntArray, size: int) -> FloatArray:
    """Probability of each sum of ``size`` of the ranks, drawn without replacement."""
    total = int(np.sort(ranks)[-size:].sum())
    law = np.zeros((size + 1, total + 1))
    law[0, 0] = 1.0
    for seen, rank in enumerate(ranks.tolist(), start=1):
        # Probability-scaled counting: subsets of k elements grow in the share k / seen, so that
        # numbers stay below 1 for any sample size.
        k = np.arange(1, min(seen, size) + 1)[:, None]
        drawn = np.zeros((k.size, total + 1))
        drawn[:, rank:] = law[: k.size, : total + 1 - rank]
        kept = law[1 : k.size + 1] * (seen - k) / seen
        law[1 : k.size + 1] = kept + drawn * k / seen
    chosen: FloatArray = law[size]
    return chosen
