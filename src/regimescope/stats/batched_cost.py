"""Cost of many interval sets at once: curve and offsets fitted jointly (method section 4).

Every interval set is one row of integer labels over the axis: 0 outside, r = 1..R inside the
r-th interval. All rows are fitted in the same few array operations, because the detector asks
for thousands of rows per call and a loop over them would be a hundred times slower.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimescope.stats.arrays import BoolArray, FloatArray

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


class _Design(NamedTuple):
    """A design with its products: columns of ``quadratic`` are the upper triangle of A'A."""

    linear: FloatArray  # (N, n, p)
    quadratic: FloatArray  # (N, n, p (p + 1) / 2)
    transposed: FloatArray  # (N, p, n)

    @classmethod
    def of(cls, ratio_design: FloatArray) -> _Design:
        first, second = np.triu_indices(ratio_design.shape[2])
        quadratic = ratio_design[:, :, first] * ratio_design[:, :, second]
        transposed = np.ascontiguousarray(ratio_design.transpose(0, 2, 1))
        return cls(ratio_design, quadratic, transposed)


def _fit_chunk(
    design: _Design, labels: NDArray[np.int8], scale: FloatArray, rule: CostRule
) -> CostBatch:
    intervals = int(labels.max(initial=0))
    keep = labels == 0
    masks = [labels == r for r in range(1, intervals + 1)]
    kept = keep.astype(np.float64)
    shape = (design.linear.shape[0], *labels.shape)
    weight = np.broadcast_to(kept, shape)
    for _ in range(KEEP_PASSES):
        theta = _solve(design, weight, None)
        z = _log_residual(design, theta)
        weight = huber_weight(z / scale) * kept
    offsets = np.zeros((*shape[:2], intervals))
    shift = np.zeros(shape)
    spread = np.where(keep, 1.0, rule.kappa) * scale
    for _ in range(JOINT_PASSES):
        _set_offsets(z, masks, offsets, shift)
        weight = huber_weight((z - shift) / spread)
        weight *= np.where(keep, 1.0, rule.kappa**-2)
        theta = _solve(design, weight, shift)
        z = _log_residual(design, theta)
    _set_offsets(z, masks, offsets, shift)
    charge = huber((z - shift) / spread).sum(axis=2)
    charge += (labels.shape[1] - kept.sum(axis=1)) * np.log(rule.kappa)
    present = np.stack([m.any(axis=1) for m in masks], axis=1) if masks else np.zeros((1, 0), bool)
    allowed = ((offsets >= rule.min_offset) | ~present).all(axis=2)
    allowed &= kept.sum(axis=1) >= rule.min_outside
    return CostBatch(np.where(allowed, charge, np.inf), theta, offsets)


def _set_offsets(
    z: FloatArray, masks: list[BoolArray], offsets: FloatArray, shift: FloatArray
) -> None:
    """Write the median residual of each interval to ``offsets``, spread it over ``shift``."""
    shift[...] = 0.0
    for r, mask in enumerate(masks):
        median = _masked_median(z, mask)
        offsets[:, :, r] = median
        shift += np.where(mask, median[:, :, None], 0.0)


def _masked_median(z: FloatArray, mask: BoolArray) -> FloatArray:
    """Median over the marked points of each row, 0 for a row without any; z (N, B, n)."""
    counts = mask.sum(axis=1)
    last = int(counts.max(initial=0))
    if last == 0:
        return np.zeros(z.shape[:2])
    ordered = np.sort(np.where(mask, z, np.inf), axis=2)
    low = np.maximum(counts - 1, 0) // 2
    high = counts // 2
    rows = np.arange(mask.shape[0])
    middle = 0.5 * (ordered[:, rows, low] + ordered[:, rows, np.minimum(high, z.shape[2] - 1)])
    return np.where(counts > 0, middle, 0.0)


def _log_residual(design: _Design, theta: FloatArray) -> FloatArray:
    fitted = theta @ design.transposed
    np.maximum(fitted, TINY, out=fitted)
    np.log(fitted, out=fitted)
    return np.negative(fitted, out=fitted)


def _solve(design: _Design, weight: FloatArray, shift: FloatArray | None) -> FloatArray:
    """Weighted non-negative fit of ``A exp(shift) theta`` to ones, one per row."""
    if shift is None:
        gram = weight @ design.quadratic
        target = weight @ design.linear
    else:
        factor = np.exp(shift)
        raised = weight * factor
        target = raised @ design.linear
        raised *= factor
        gram = raised @ design.quadratic
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
    first, second = np.triu_indices(p)
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
