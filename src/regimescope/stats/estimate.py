"""Estimates with their intervals: repeat scale, slowdown, share (method sections 4, 7 and 8.4)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from regimescope.stats.arrays import (
    MAD_TO_SD,
    FloatArray,
    IntArray,
    finite_vector,
    finite_vector_like,
    split_by_label,
)

# 1 / (1.4826 median of the non-zero |x - median|) of m Gaussian values: what makes the pooled
# scale unbiased. Published for 2..7, simulated with 200 000 draws for 8 and more.
REPEAT_FACTORS = {
    2: 1.41, 3: 0.98, 4: 1.39, 5: 0.99, 6: 1.28, 7: 0.99, 8: 1.20, 9: 0.99,
    10: 1.15, 11: 0.99, 12: 1.12, 13: 0.99, 14: 1.10, 15: 0.99, 16: 1.08,
}  # fmt: skip
LEAST_SCALE_DF = 3  # residual degrees of freedom below which a pooled scale means nothing
PRIOR_DF = 4.0  # d0: weight of the prior spread, in budgets
PRIOR_SPREAD = 0.12  # s0: log spread of the slowdown between the budgets of one regime
MEDIAN_EFFICIENCY = 1.2533  # sqrt(pi / 2): standard error of a median in units of a mean's
LEVEL = 0.95


class RepeatSummary(NamedTuple):
    """Repeated responses by step.

    Attributes:
        steps: distinct axis values, ascending, shape (n,).
        median: median response of each step, shape (n,).
        repeats: responses of each step, shape (n,).
        sigma: pooled scale of one response; NaN with fewer than 3 residual degrees of freedom.
    """

    steps: FloatArray
    median: FloatArray
    repeats: IntArray
    sigma: float


class Estimate(NamedTuple):
    """A value with the ends of its interval.

    Attributes:
        value: the estimate.
        low: lower end.
        high: upper end.
    """

    value: float
    low: float
    high: float


class SlowdownEstimate(NamedTuple):
    """Slowdown of one regime.

    Attributes:
        slowdown: geometric mean over the core budgets, 95 % interval.
        peak: largest slowdown of a core budget, Bonferroni interval over all of them.
        peak_index: which of the given budgets that is.
        log_spread: moderated spread between budgets, log units.
        budgets: number of core budgets K.
    """

    slowdown: Estimate
    peak: Estimate
    peak_index: int
    log_spread: float
    budgets: int


def repeat_scale_factor(repeats: int) -> float:
    """Factor c_m that makes the pooled scale of m >= 2 repeats unbiased for Gaussian noise.

    Odd numbers lose their median, whose deviation is zero, and need almost none. Beyond 16 the
    factor is taken as 1; it is below 1.08 there.

    Raises:
        ValueError: fewer than 2 repeats.
    """
    if repeats < 2:
        raise ValueError(f"a scale needs at least 2 repeats, got {repeats}")
    return REPEAT_FACTORS.get(repeats, 1.0)


def summarize_repeats(axis: ArrayLike, response: ArrayLike) -> RepeatSummary:
    """Median, number and pooled scale of the responses at each step.

    Args:
        axis: step of each response, shape (N,), repeats allowed, any order.
        response: mostly log seconds, block effects removed, shape (N,).

    Raises:
        ValueError: empty, unequal lengths or not finite.
    """
    x = finite_vector(axis, "axis")
    y = finite_vector_like(response, x.size, "response")
    if x.size == 0:
        raise ValueError("no responses to summarize")
    steps, group = np.unique(x, return_inverse=True)
    counts = np.bincount(group).astype(np.int64)
    median = np.array([np.median(part) for part in split_by_label(y, group)])
    return RepeatSummary(steps, median, counts, pooled_repeat_scale(y, group))


def pooled_repeat_scale(response: ArrayLike, group: ArrayLike) -> float:
    """Scale of one response around the median of its group, pooled over groups.

    ``1.4826 median(c_m |y - median|)`` over the non-zero deviations, with c_m by group size.

    Args:
        response: one number per measurement, shape (N,).
        group: integer label of each response's group, shape (N,).

    Returns:
        The scale; 0 when all repeats agree; NaN with fewer than 3 residual degrees of freedom.

    Raises:
        ValueError: unequal lengths or not finite.
    """
    y = finite_vector(response, "response")
    labels = finite_vector_like(group, y.size, "group")
    _, index, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if int((counts - 1).sum()) < LEAST_SCALE_DF:
        return float("nan")
    deviations = []
    for part in split_by_label(y, index):
        if part.size > 1:
            deviation = np.abs(part - np.median(part))
            deviations.append(repeat_scale_factor(part.size) * deviation[deviation > 0])
    pooled = np.concatenate(deviations)
    return MAD_TO_SD * float(np.median(pooled)) if pooled.size else 0.0


def slowdown_interval(
    log_slowdown: ArrayLike, curve_error: ArrayLike, *, sigma: float, controls: int
) -> SlowdownEstimate:
    """Slowdown of a regime from its confirmation data, with a moderated 95 % interval.

    The spread between budgets is shrunk towards 0.12 with the weight of four budgets, because
    one to three budgets do not show their own; resampling them covers far too rarely.

    Args:
        log_slowdown: for each core budget the median over its trials of log latency minus log
            curve, less the median control residual, shape (K,), K >= 1.
        curve_error: standard error of the log curve at each core budget, shape (K,).
        sigma: scale of one control trial in log units; NaN counts as 0.
        controls: number of control trials, >= 1.

    Raises:
        ValueError: no budget, unequal lengths, not finite, a negative error or no control.
    """
    z = finite_vector(log_slowdown, "log_slowdown")
    error = finite_vector_like(curve_error, z.size, "curve_error")
    if z.size == 0 or controls < 1 or error.min() < 0 or sigma < 0:
        raise ValueError("a slowdown needs a budget, a control, and errors that are not negative")
    k = z.size
    noise = 0.0 if np.isnan(sigma) else (MEDIAN_EFFICIENCY * sigma) ** 2 / controls
    # Errors of the curve at budgets of one regime are almost fully correlated: no division by K.
    shared = float(np.mean(error)) ** 2 + noise
    df = PRIOR_DF + k - 1
    spread = (PRIOR_DF * PRIOR_SPREAD**2 + float(((z - z.mean()) ** 2).sum())) / df
    half = float(stats.t.ppf(0.5 + LEVEL / 2, df) * np.sqrt(spread / k + shared))
    top = int(np.argmax(z))
    peak_error = float(np.sqrt(spread + error[top] ** 2 + noise))
    peak_half = float(stats.t.ppf(1 - (1 - LEVEL) / (2 * k), df)) * peak_error
    return SlowdownEstimate(
        _ratio(float(z.mean()), half), _ratio(float(z[top]), peak_half), top,
        float(np.sqrt(spread)), k,
    )  # fmt: skip


def ratio_of_groups(before: ArrayLike, after: ArrayLike) -> Estimate:
    """Ratio of the levels of two groups with Welch's 95 % interval, variances not assumed equal.

    Simulated, it covers the truth in .92 to .98 of the draws with 2 to 8 levels in a group, least
    where two levels stand against many.

    Args:
        before: log levels, one per independent unit, shape (n,), n >= 2.
        after: the same of the other group, shape (m,), m >= 2.

    Returns:
        ``exp(mean(after) - mean(before))``; the interval has no width where both groups have no
        spread.

    Raises:
        ValueError: fewer than two levels in a group, or one that is not finite.
    """
    a, b = finite_vector(before, "before"), finite_vector(after, "after")
    if min(a.size, b.size) < 2:
        raise ValueError("an interval needs two levels in each group")
    value = float(b.mean() - a.mean())
    parts = np.array([a.var(ddof=1) / a.size, b.var(ddof=1) / b.size])
    if parts.sum() == 0:
        return _ratio(value, 0.0)
    df = parts.sum() ** 2 / (parts**2 / (np.array([a.size, b.size]) - 1)).sum()
    return _ratio(value, float(stats.t.ppf(0.5 + LEVEL / 2, df) * np.sqrt(parts.sum())))


def _ratio(log_value: float, half: float) -> Estimate:
    low, value, high = np.exp([log_value - half, log_value, log_value + half]).tolist()
    return Estimate(value, low, high)


def wilson_interval(successes: int, trials: int, *, level: float = LEVEL) -> Estimate:
    """Share of successes with Wilson's interval, which stays inside [0, 1] for small samples.

    Raises:
        ValueError: no trials, or successes outside 0..trials.
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(f"need 0 <= successes <= trials >= 1, got {successes} of {trials}")
    found = stats.binomtest(successes, trials).proportion_ci(level, method="wilson")
    return Estimate(successes / trials, float(found.low), float(found.high))
