"""Cost of many interval sets at once: curve and offsets fitted jointly (method section 4).

Every interval set is one row of integer labels over the axis: 0 outside, r = 1..R inside the
r-th interval. All rows are fitted in the same few array operations, because the detector asks
for thousands of rows per call and a loop over them would be a hundred times slower.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimescope.stats.arrays import BoolArray, FloatArray, IntArray

HUBER = 1.5  # Huber's corner in units of the scale: 96 % efficient for Gaussian noise
KAPPA = 1.5  # a slow run scatters more than a normal one; allowed factor for inside points
KEEP_PASSES = 3  # reweighting passes over the outside points; the weights settle in two or three
JOINT_PASSES = 2  # refits in which the inside points inform the shape of the curve
RIDGE = 1e-10  # on unit-scaled normal equations: decides ties of collinear columns, nothing else
TINY = 1e-12  # floor of a fitted ratio before its logarithm
CHUNK_ELEMENTS = 1 << 17  # rows are fitted in pieces whose work arrays stay in the second cache


class CostBatch(NamedTuple):
    """Fits of B interval sets to N responses.

    Attributes:
        cost: robust cost, shape (N, B); infinite where the set is not allowed.
        theta: curve coefficients of the scaled axis, all >= 0, shape (N, B, p).
        offsets: log slowdown of each interval, shape (N, B, R); 0 where a row lacks it.
    """

    cost: FloatArray
    theta: FloatArray
    offsets: FloatArray


class CostRule(NamedTuple):
    """What a set must satisfy, and how inside points are charged.

    Attributes:
        min_offset: least log slowdown of an allowed interval.
        min_outside: least number of points outside all intervals.
        kappa: factor by which inside points may scatter more than outside points.
    """

    min_offset: float
    min_outside: int
    kappa: float = KAPPA


def huber(z: FloatArray) -> FloatArray:
    """Huber's loss of scaled residuals, elementwise: quadratic to 1.5, then linear."""
    magnitude = np.abs(z)
    inner = np.minimum(magnitude, HUBER)
    loss: FloatArray = inner * (magnitude - 0.5 * inner)
    return loss


def huber_weight(z: FloatArray) -> FloatArray:
    """Weights of scaled residuals which make least squares minimize Huber's loss."""
    weight: FloatArray = HUBER / np.maximum(np.abs(z), HUBER)
    return weight


def batched_cost(
    ratio_design: FloatArray, labels: NDArray[np.int8], scale: FloatArray, rule: CostRule
) -> CostBatch:
    """Fit every interval set to every response.

    Args:
        ratio_design: basis divided by the response, ``X / exp(y)``, shape (N, n, p), so that a
            perfect curve gives ones and ``-log(A theta)`` is the log residual.
        labels: interval of each point, 0 outside, shape (B, n); common to all responses.
        scale: residual scale of each response in log units, > 0, shape (N,).
        rule: admissible sets.

    Returns:
        Costs, coefficients and offsets. A set that leaves fewer than ``rule.min_outside`` points
        outside, or whose smallest offset is under ``rule.min_offset``, costs infinity.
    """
    responses, n, p = ratio_design.shape
    rows = labels.shape[0]
    intervals = int(labels.max(initial=0))
    cost = np.empty((responses, rows))
    theta = np.empty((responses, rows, p))
    offsets = np.zeros((responses, rows, intervals))
    design = _Design.of(ratio_design)
    chunk = max(1, CHUNK_ELEMENTS // max(1, responses * n))
    for start in range(0, rows, chunk):
        part = slice(start, start + chunk)
        fit = _fit_chunk(design, labels[part], scale[:, None, None], rule)
        cost[:, part], theta[:, part] = fit.cost, fit.theta
        offsets[:, part, : fit.offsets.shape[2]] = fit.offsets
    return CostBatch(cost, theta, offsets)


# Fits of a few sizes are made by the hundred, and making their indices took a tenth of the time.
@lru_cache(maxsize=32)
def _upper(size: int) -> tuple[IntArray, IntArray]:
    """Row and column of each entry on and above the diagonal; not to be written to."""
    first, second = np.triu_indices(size)
    first.flags.writeable = second.flags.writeable = False
    return first, second


class _Design(NamedTuple):
    """A design with its products: columns of ``quadratic`` are the upper triangle of A'A."""

    linear: FloatArray  # (N, n, p)
    quadratic: FloatArray  # (N, n, p (p + 1) / 2)
    transposed: FloatArray  # (N, p, n)

    @classmethod
    def of(cls, ratio_design: FloatArray) -> _Design:
        first, second = _upper(ratio_design.shape[2])
        quadratic = ratio_design[:, :, first] * ratio_design[:, :, second]
        transposed = np.ascontiguousarray(ratio_design.transpose(0, 2, 1))
        return cls(ratio_design, quadratic, transposed)


class _Marks(NamedTuple):
    """Which points each row of labels puts where, as factors: products are cheap, branches not."""

    kept: FloatArray  # (B, n), 1 outside all intervals
    masks: list[BoolArray]  # for each interval (B, n), True inside
    inside: list[FloatArray]  # the same as 1 and 0

    @classmethod
    def of(cls, labels: NDArray[np.int8]) -> _Marks:
        masks = [labels == r for r in range(1, int(labels.max(initial=0)) + 1)]
        return cls((labels == 0).astype(np.float64), masks, [m.astype(np.float64) for m in masks])

    def mixed(self, outside: float, inside: float) -> FloatArray:
        """One number outside all intervals and another inside any, shape (B, n)."""
        both: FloatArray = self.kept * (outside - inside)
        both += inside
        return both

    def spread(self, values: FloatArray, out: FloatArray) -> FloatArray:
        """Give every point the value (N, B, R) of its interval, 0 outside; writes (N, B, n)."""
        if not self.inside:
            out[...] = 0.0
            return out
        np.multiply(self.inside[0], values[:, :, :1], out=out)
        for r, inside in enumerate(self.inside[1:], start=1):
            out += inside * values[:, :, r : r + 1]
        return out


def _fit_chunk(
    design: _Design, labels: NDArray[np.int8], scale: FloatArray, rule: CostRule
) -> CostBatch:
    marks = _Marks.of(labels)
    shape = (design.linear.shape[0], *labels.shape)
    offsets = np.zeros((*shape[:2], len(marks.masks)))
    # Three work arrays serve all passes: fresh ones of this size cost more than the arithmetic.
    z, weight, factor = np.empty(shape), np.empty(shape), np.empty(shape)
    inverse = 1.0 / scale
    weight[...] = marks.kept
    theta = _solve(design, weight, None)
    for _ in range(KEEP_PASSES - 1):
        _log_residual(design, theta, z)
        _weights(np.multiply(z, inverse, out=weight), marks.kept)
        theta = _solve(design, weight, None)
    _log_residual(design, theta, z)
    inverse = inverse * marks.mixed(1.0, 1 / rule.kappa)
    trust = marks.mixed(1.0, rule.kappa**-2)
    for _ in range(JOINT_PASSES):
        _medians(z, marks.masks, offsets)
        _standardized(z, marks.spread(offsets, factor), inverse, weight)
        _weights(weight, trust)
        marks.spread(np.expm1(offsets), factor)
        factor += 1.0
        theta = _solve(design, weight, factor)
        _log_residual(design, theta, z)
    _medians(z, marks.masks, offsets)
    _standardized(z, marks.spread(offsets, factor), inverse, weight)
    outside = marks.kept.sum(axis=1)
    charge = _huber_sum(weight, factor) + (labels.shape[1] - outside) * np.log(rule.kappa)
    allowed = _allowed(offsets, marks, outside, rule)
    return CostBatch(np.where(allowed, charge, np.inf), theta, offsets)


def _standardized(z: FloatArray, shift: FloatArray, inverse: FloatArray, out: FloatArray) -> None:
    """Write ``(z - shift) * inverse``."""
    np.subtract(z, shift, out=out)
    out *= inverse


def _huber_sum(z: FloatArray, work: FloatArray) -> FloatArray:
    """Sum of ``huber(z)`` over the last axis; overwrites both arrays."""
    np.abs(z, out=z)
    np.minimum(z, HUBER, out=work)
    total: FloatArray = np.einsum("abn,abn->ab", z, work)
    total -= 0.5 * np.einsum("abn,abn->ab", work, work)
    return total


def _weights(z: FloatArray, trust: FloatArray) -> None:
    """Replace scaled residuals by Huber's weights times a factor, in place."""
    np.abs(z, out=z)
    np.maximum(z, HUBER, out=z)
    np.divide(HUBER, z, out=z)
    z *= trust


def _allowed(offsets: FloatArray, marks: _Marks, outside: FloatArray, rule: CostRule) -> BoolArray:
    """Sets whose intervals are slow enough and leave enough points outside, shape (N, B)."""
    allowed = np.broadcast_to(outside >= rule.min_outside, offsets.shape[:2])
    for r, mask in enumerate(marks.masks):
        allowed = allowed & ((offsets[:, :, r] >= rule.min_offset) | ~mask.any(axis=1))
    return allowed


def _medians(z: FloatArray, masks: list[BoolArray], offsets: FloatArray) -> None:
    """Write the median residual of each interval to ``offsets``."""
    for r, mask in enumerate(masks):
        offsets[:, :, r] = _masked_median(z, mask)


def _masked_median(z: FloatArray, mask: BoolArray) -> FloatArray:
    """Median over the marked points of each row, 0 for a row without any; z (N, B, n)."""
    counts = mask.sum(axis=1)
    last = int(counts.max(initial=0))
    if last == 0:
        return np.zeros(z.shape[:2])
    # Only marked points are sorted: intervals of a long axis are much shorter than the axis.
    ordered = np.full((*z.shape[:2], last), np.inf)
    ordered[:, np.arange(last) < counts[:, None]] = z[:, mask]
    ordered.sort(axis=2)
    low = np.maximum(counts - 1, 0) // 2
    high = counts // 2
    rows = np.arange(mask.shape[0])
    middle = 0.5 * (ordered[:, rows, low] + ordered[:, rows, np.minimum(high, last - 1)])
    return np.where(counts > 0, middle, 0.0)


def _log_residual(design: _Design, theta: FloatArray, out: FloatArray) -> None:
    """Write the log residuals of all points, shape (N, B, n)."""
    np.matmul(theta, design.transposed, out=out)
    np.maximum(out, TINY, out=out)
    np.log(out, out=out)
    np.negative(out, out=out)


def _solve(design: _Design, weight: FloatArray, factor: FloatArray | None) -> FloatArray:
    """Weighted non-negative fit of ``A factor theta`` to ones, one per row; spoils the weights."""
    if factor is None:
        gram = weight @ design.quadratic
        target = weight @ design.linear
    else:
        weight *= factor
        target = weight @ design.linear
        weight *= factor
        gram = weight @ design.quadratic
    p = design.linear.shape[2]
    flat = nonnegative_solve(gram.reshape(-1, gram.shape[-1]), target.reshape(-1, p))
    return flat.reshape(target.shape)


def nonnegative_solve(gram: FloatArray, target: FloatArray) -> FloatArray:
    """Minimize ``t' G t - 2 b' t`` over t >= 0 for many small problems.

    The minimum over each set of active columns is computed and the best non-negative one is
    taken; with p <= 6 columns that is exact, and cheaper than any iteration.

    Args:
        gram: upper triangles of the symmetric G, row by row, shape (M, p (p + 1) / 2).
        target: b, shape (M, p).

    Returns:
        Coefficients, shape (M, p).
    """
    p = target.shape[1]
    full = np.empty((p, p, target.shape[0]))
    first, second = _upper(p)
    full[first, second] = gram.T
    full[second, first] = gram.T
    diagonal = np.arange(p)
    unit = 1.0 / np.sqrt(np.maximum(full[diagonal, diagonal], np.finfo(float).tiny))
    full *= unit[:, None] * unit
    full[diagonal, diagonal] += RIDGE
    right = target.T * unit
    best = _eliminate(full.copy(), right)
    # A non-negative free minimum is the constrained one; only the other rows need a search.
    negative = np.flatnonzero((best < 0).any(axis=0))
    if negative.size:
        best[:, negative] = _best_subset(full[:, :, negative], right[:, negative])
    return np.ascontiguousarray((best * unit).T)


def _best_subset(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """Best non-negative minimum over all proper subsets of columns; (p, p, M), (p, M)."""
    p = right.shape[0]
    best = np.zeros_like(right)
    best_gain = np.zeros(right.shape[1])
    for size in range(p - 1, 0, -1):
        for active in itertools.combinations(range(p), size):
            index = np.array(active)
            target = right[index]
            solution = _eliminate(matrix[index[:, None], index], target)
            gain = (solution * target).sum(axis=0)
            better = (gain > best_gain) & (solution >= 0).all(axis=0)
            best_gain[better] = gain[better]
            spread = np.zeros_like(right)
            spread[index] = solution
            np.copyto(best, spread, where=better)
    return best


def _eliminate(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """Solve positive definite systems (k, k, M), (k, M) by elimination; overwrites the matrix."""
    k = right.shape[0]
    solution = right.copy()
    for i in range(k):
        for j in range(i + 1, k):
            factor = matrix[j, i] / matrix[i, i]
            matrix[j, i + 1 :] -= factor * matrix[i, i + 1 :]
            solution[j] -= factor * solution[i]
    for i in range(k - 1, -1, -1):
        for j in range(i + 1, k):
            solution[i] -= matrix[i, j] * solution[j]
        solution[i] /= matrix[i, i]
    return solution
