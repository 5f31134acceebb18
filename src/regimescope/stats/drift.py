"""Block effects, drift over time, warm-up, spread between processes (method section 8.1 to 8.3)."""

from __future__ import annotations

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
    split_by_label,
)
from regimescope.stats.estimate import Estimate, pooled_repeat_scale

POLISH_PASSES = 20  # sweeps over rows and columns; five settle ordinary tables
POLISH_SETTLED = 1e-6  # log units; a millionth of a latency is below any timer
LEAST_CELLS = 3  # shared budgets from which a block's median says something about the block
DRIFT_ALPHA = 0.01  # Kendall's test runs on every sweep
DRIFT_CHANGE = float(np.log(1.10))  # total change worth a flag: the sentinel's veto limit
DRIFT_POINTS = 2000  # most points for pairwise slopes: two million pairs, 16 MB
WARM_UP_ALPHA = 0.01  # two-sided; out of reach for fewer than 8 budgets
WARM_UP_LEVEL = 0.95
EXACT_SIGNED_RANKS = 200  # differences up to which the law is counted; beyond, it is normal


class Polish(NamedTuple):
    """Additive fit of a (budget x block) table by medians.

    Attributes:
        row: level of each budget, block effects removed, shape (rows,); NaN for an empty row.
        column: effect of each block, shape (columns,); its median over estimable blocks is 0.
        residual: what both leave, shape (rows, columns); NaN where the table has no value.
        estimable: blocks whose effect the table determines; the others have effect 0.
        settled: False when the last pass still changed something.
    """

    row: FloatArray
    column: FloatArray
    residual: FloatArray
    estimable: BoolArray
    settled: bool


def median_polish(table: ArrayLike) -> Polish:
    """Split a table of log latencies into budget levels and block effects.

    A block counts only through budgets that other blocks visited too: the single value of a
    budget visited once says nothing about its block. A block with fewer than 3 such budgets
    keeps effect 0, so that fresh processes with one trial each are not explained away.

    Args:
        table: log latency of each budget (row) in each block (column), NaN where not measured.

    Raises:
        ValueError: not two-dimensional, empty, or holding infinity.
    """
    values = np.array(table, dtype=np.float64)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"need a table of budgets by blocks, got shape {values.shape}")
    if np.isinf(values).any():
        raise ValueError("log latencies must not be infinite")
    present = ~np.isnan(values)
    shared = present & (present.sum(axis=1) >= 2)[:, None]
    estimable = shared.sum(axis=0) >= LEAST_CELLS
    column = np.zeros(values.shape[1])
    settled = False
    for _ in range(POLISH_PASSES):
        row = _medians(np.where(present, values - column, np.nan))
        left = np.where(shared, values - row[:, None], np.nan)
        updated = np.where(estimable, np.nan_to_num(_medians(left.T)), 0.0)
        if estimable.any():
            updated[estimable] -= np.median(updated[estimable])
        settled = bool(np.abs(updated - column).max() < POLISH_SETTLED)
        column = updated
        if settled:
            break
    row = _medians(np.where(present, values - column, np.nan))
    return Polish(row, column, values - row[:, None] - column, estimable, settled)


def _medians(table: FloatArray) -> FloatArray:
    """Median of each row over its values; NaN for a row without any."""
    counts = (~np.isnan(table)).sum(axis=1)
    ordered = np.sort(table, axis=1)  # NaN sorts last
    rows = np.arange(table.shape[0])
    low = np.maximum(counts - 1, 0) // 2
    high = np.minimum(counts // 2, table.shape[1] - 1)
    middle = 0.5 * (ordered[rows, low] + ordered[rows, high])
    return np.where(counts > 0, middle, np.nan)


class Drift(NamedTuple):
    """Change of the response with the order of measurement.

    Attributes:
        tau: Kendall's rank correlation with the order; None when it is not defined.
        p_value: of Kendall's test, two-sided; None likewise.
        change: log change from the first to the last measurement (Theil-Sen slope times the
            range of the order) with its 95 % interval; None likewise.
        flagged: p below .01 and a change of at least 10 %.
        size: number of measurements.
    """

    tau: float | None
    p_value: float | None
    change: Estimate | None
    flagged: bool
    size: int


def drift_test(order_index: ArrayLike, residual: ArrayLike) -> Drift:
    """Kendall test and Theil-Sen change of residuals against the order of measurement.

    Args:
        order_index: place of each measurement in time, shape (N,).
        residual: log latency less what its budget explains, shape (N,).

    Returns:
        The test; its numbers are None with fewer than 3 measurements or a constant side.

    Raises:
        ValueError: unequal lengths or not finite.
    """
    order = finite_vector(order_index, "order_index")
    values = finite_vector_like(residual, order.size, "residual")
    if order.size < 3 or np.ptp(order) == 0 or np.ptp(values) == 0:
        return Drift(None, None, None, False, order.size)
    tau = stats.kendalltau(order, values)
    x, y = _thinned(order, values)
    line = stats.theilslopes(y, x, alpha=0.95)
    span = float(np.ptp(order))
    change = Estimate(
        float(line.slope) * span, float(line.low_slope) * span, float(line.high_slope) * span
    )
    p = float(tau.pvalue)
    flagged = p < DRIFT_ALPHA and abs(change.value) >= DRIFT_CHANGE
    return Drift(float(tau.statistic), p, change, flagged, order.size)


def _thinned(order: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Medians of at most 2000 successive groups, for slopes over all pairs."""
    if order.size <= DRIFT_POINTS:
        return order, values
    sequence = np.argsort(order, kind="stable")
    groups = np.array_split(sequence, DRIFT_POINTS)
    x = np.array([np.median(order[g]) for g in groups])
    y = np.array([np.median(values[g]) for g in groups])
    return x, y


class WarmUp(NamedTuple):
    """How much slower first trials are than later ones of the same budget.

    Attributes:
        change: median log difference (Hodges-Lehmann) with its interval; None without data.
        level: level that the interval reaches; below .95 for fewer than 6 budgets, where it
            spans all differences.
        p_value: exact two-sided signed-rank test; 1 without any difference.
        suspected: p below .01.
        size: number of budgets.
    """

    change: Estimate | None
    level: float
    p_value: float
    suspected: bool
    size: int


def warm_up_test(difference: ArrayLike) -> WarmUp:
    """Wilcoxon test over budgets of first trial minus median of the later trials.

    Args:
        difference: one log difference per budget, shape (n,); budgets without a later trial are
            left out by the caller.

    Raises:
        ValueError: values that are not finite.
    """
    d = finite_vector(difference, "difference")
    if d.size == 0:
        return WarmUp(None, 0.0, 1.0, False, 0)
    first, second = np.triu_indices(d.size)
    walsh = np.sort((d[first] + d[second]) / 2)
    cut, level = _signed_rank_cut(d.size)
    change = Estimate(float(np.median(walsh)), float(walsh[cut]), float(walsh[-1 - cut]))
    p = _signed_rank_p(d[d != 0])
    return WarmUp(change, level, p, p < WARM_UP_ALPHA, d.size)


def _signed_rank_cut(n: int) -> tuple[int, float]:
    """Averages to leave out at each end for a 95 % interval, and the level that this gives."""
    lower = np.cumsum(_signed_rank_law(np.arange(1, n + 1)))
    cut = int(np.searchsorted(lower, (1 - WARM_UP_LEVEL) / 2, side="right"))
    cut = max(cut - 1, 0)
    return cut, float(1 - 2 * lower[cut])


def _signed_rank_p(d: FloatArray) -> float:
    if d.size == 0:
        return 1.0
    doubled = np.rint(2 * stats.rankdata(np.abs(d))).astype(np.int64)
    law = _signed_rank_law(doubled)
    positive = int(doubled[d > 0].sum())
    tails = law[positive:].sum(), law[: positive + 1].sum()
    return float(min(1.0, 2 * min(tails)))


def _signed_rank_law(ranks: IntArray) -> FloatArray:
    """Probability of each sum of ranks whose signs are fair coins, index 0..sum(ranks)."""
    total = int(ranks.sum())
    if ranks.size > EXACT_SIGNED_RANKS:
        spread = float(np.sqrt((ranks.astype(np.float64) ** 2).sum() / 4))
        edges = np.arange(total + 2) - 0.5
        law: FloatArray = np.diff(stats.norm.cdf((edges - total / 2) / spread))
        law /= law.sum()
        return law
    law = np.zeros(total + 1)
    law[0] = 1.0
    for rank in ranks.tolist():
        shifted = np.zeros_like(law)
        shifted[rank:] = law[: total + 1 - rank]
        law = (law + shifted) / 2
    return law


class VarianceComponents(NamedTuple):
    """Spread of log latency within and between processes.

    Attributes:
        budget: distinct budgets, ascending, shape (n,).
        between: standard deviation between processes at each budget, repeat noise removed;
            NaN where fewer than 2 processes or no repeats allow it. Shape (n,).
        medians_spread: standard deviation of the process medians at each budget, repeat noise
            included; NaN for fewer than 2 processes. Shape (n,).
        processes: processes that measured each budget, shape (n,).
        within_pooled: standard deviation of repeats in one process, over all budgets.
        between_pooled: root of the mean between-variance, weighted by processes less one.
    """

    budget: FloatArray
    between: FloatArray
    medians_spread: FloatArray
    processes: IntArray
    within_pooled: float
    between_pooled: float


def variance_components(
    log_latency: ArrayLike, budget: ArrayLike, process: ArrayLike
) -> VarianceComponents:
    """Components of variance within and between processes, per budget and pooled.

    ``between^2 = max(0, Var(process medians) - within^2 / m)`` with m the harmonic mean of the
    repeats per process. Without repeats in any process the two cannot be told apart.

    Args:
        log_latency: one trial each, shape (N,).
        budget: budget of each trial, shape (N,).
        process: integer label of each trial's process, shape (N,).

    Raises:
        ValueError: empty, unequal lengths or not finite.
    """
    y = finite_vector(log_latency, "log_latency")
    b = finite_vector_like(budget, y.size, "budget")
    p = finite_vector_like(process, y.size, "process")
    if y.size == 0:
        raise ValueError("no trials to compare")
    cells, index, counts = np.unique(
        np.stack([b, p], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    index = index.reshape(-1)  # numpy 2.0 alone returns a column here
    within = pooled_repeat_scale(y, index)
    median = np.array([np.median(part) for part in split_by_label(y, index)])
    budgets = np.unique(b)
    medians_spread = np.full(budgets.size, np.nan)
    between = np.full(budgets.size, np.nan)
    processes = np.zeros(budgets.size, dtype=np.int64)
    for k, value in enumerate(budgets):
        here = cells[:, 0] == value
        processes[k] = here.sum()
        if processes[k] >= 2:
            variance = float(np.var(median[here], ddof=1))
            noise = within**2 * float(np.mean(1 / counts[here]))
            medians_spread[k] = np.sqrt(variance)
            between[k] = np.sqrt(np.maximum(variance - noise, 0.0))
    known = ~np.isnan(between)
    pooled = float("nan")
    if known.any():
        pooled = float(np.sqrt(np.average(between[known] ** 2, weights=processes[known] - 1)))
    return VarianceComponents(budgets, between, medians_spread, processes, within, pooled)
