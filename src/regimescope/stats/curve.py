"""Expected-latency curve: an increasing convex polynomial, fitted robustly (method section 2).

``f(S) = sum_k theta_k x^k`` with ``theta_k >= 0`` and ``x = S / steps_max``. The signs make f
increasing and convex, which is the main protection against slow stretches: no curve of this
family can follow latency up and down again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import least_squares, nnls

from regimescope.stats.arrays import MAD_TO_SD, BoolArray, FloatArray, sorted_series
from regimescope.stats.batched_cost import CostRule, batched_cost, huber_weight

FAST_MARGIN = float(np.log(1.25))  # noise makes runs slow, never this much faster than expected
FAST_SHARE = 0.05  # share of points allowed below the margin, for timers that misfire now and then
FAST_SHARE_FROM = 20  # with fewer points, 5 % is less than one point
CAUCHY_SCALE = 0.05  # least robust scale in log units: with less, starts stop at the first point
LOWER_BOUND = 1e-9  # in units of the median latency: zero, as an interior-point method sees it
ACTIVE = 1e-7  # a coefficient above this carries a visible part of the curve
LEAST_SPARE = 3  # points outside intervals beyond the degree; below, the curve follows its noise
DEGREE_CHOICE_FROM = 8  # normal points from which a criterion can tell degrees apart


@dataclass(frozen=True, eq=False)
class Curve:
    """A fitted expected-latency curve.

    Attributes:
        theta: coefficients of x^0..x^d in seconds, all >= 0, shape (d + 1,).
        steps_max: the step at which x = 1.
        covariance: covariance of theta, zero for coefficients at their bound; NaN when the points
            do not determine it. Shape (d + 1, d + 1).
    """

    theta: FloatArray
    steps_max: float
    covariance: FloatArray

    @property
    def degree(self) -> int:
        """Degree d of the polynomial, also where the highest coefficients are zero."""
        return self.theta.size - 1


class CurveFit(NamedTuple):
    """A stand-alone robust curve fit; arrays are in ascending order of steps.

    Attributes:
        curve: the curve, or None when every start failed.
        residual: log latency minus log curve, shape (n,); empty without a curve.
        cost: robust cost of the chosen start; NaN without a curve.
        codes: reason codes, among ``curve_inadmissible``, ``curve_failed``, ``reduced_degree``.
    """

    curve: Curve | None
    residual: FloatArray
    cost: float
    codes: tuple[str, ...]


class _Candidate(NamedTuple):
    theta: FloatArray
    residual: FloatArray
    cost: float


def basis(steps: ArrayLike, steps_max: float, degree: int) -> FloatArray:
    """Powers 0..degree of ``steps / steps_max``, shape (n, degree + 1)."""
    x = np.asarray(steps, dtype=np.float64) / steps_max
    powers: FloatArray = x[..., None] ** np.arange(degree + 1)
    return powers


def predict_log(curve: Curve, steps: ArrayLike) -> FloatArray:
    """Log of the expected latency at each step; any shape, also beyond the fitted range."""
    fitted = basis(steps, curve.steps_max, curve.degree) @ curve.theta
    logs: FloatArray = np.log(np.maximum(fitted, np.finfo(float).tiny))
    return logs


def log_standard_error(curve: Curve, steps: ArrayLike) -> FloatArray:
    """Standard error of the log of the expected latency at each step (delta method).

    NaN where the points did not determine the curve.
    """
    x = basis(steps, curve.steps_max, curve.degree)
    variance = np.einsum("...i,ij,...j->...", x, curve.covariance, x)
    error: FloatArray = np.sqrt(np.maximum(variance, 0.0)) / np.exp(predict_log(curve, steps))
    return error


def effective_degree(degree: int, normal_points: int) -> int:
    """Highest degree that the points outside intervals support, ``min(degree, m - 3)``.

    A flat axis (degree 0) stays flat. A result below 1 on another axis means that only the
    certificate can be given.
    """
    if degree == 0:
        return 0
    return min(degree, normal_points - LEAST_SPARE)


def is_admissible(residual: FloatArray) -> bool:
    """Whether a curve leaves at most 5 % of the points (none of < 20) far below it.

    Noise cannot make a run fast, so a curve above many points is wrong however low its cost.
    """
    fast = int(np.count_nonzero(residual < -FAST_MARGIN))
    allowed = FAST_SHARE * residual.size if residual.size >= FAST_SHARE_FROM else 0
    return fast <= allowed


def fit_curve(
    steps: ArrayLike, log_latency: ArrayLike, *, degree: int, sigma: float = float("nan")
) -> CurveFit:
    """Fit the curve alone, by Cauchy least squares on logs from four starts.

    Of the admissible fits the cheapest is taken; without any, the one whose smallest residual is
    largest, with code ``curve_inadmissible``. Taking the cheapest of all would lock on to a slow
    stretch that covers more than half of the points.

    Args:
        steps: distinct axis values >= 0, shape (n,), any order.
        log_latency: log seconds, shape (n,).
        degree: highest power. Lowered to n - 1, with code ``reduced_degree``, for fewer points.
        sigma: scale of one response in log units; NaN when unknown.

    Raises:
        ValueError: empty or malformed series, or a negative degree.
    """
    series = sorted_series(steps, log_latency)
    if degree < 0:
        raise ValueError(f"degree must not be negative, got {degree}")
    used = min(degree, series.steps.size - 1)
    codes = ["reduced_degree"] if used < degree else []
    steps_max = float(series.steps[-1])
    center = float(np.median(series.response))
    y = series.response - center
    X = basis(series.steps, steps_max, used)
    candidates = list(_candidates(X, y, sigma))
    if not candidates:
        return CurveFit(None, np.empty(0), float("nan"), (*codes, "curve_failed"))
    admissible = [c for c in candidates if is_admissible(c.residual)]
    if admissible:
        best = min(admissible, key=lambda c: c.cost)
    else:
        best = max(candidates, key=lambda c: float(c.residual.min()))
        codes.append("curve_inadmissible")
    scale = residual_scale(best.residual, used, floor=0.0)
    weight = huber_weight(best.residual / scale) if scale > 0 else np.ones(y.size)
    covariance = theta_covariance(X, best.theta, weight, scale)
    unit = float(np.exp(center))
    curve = Curve(best.theta * unit, steps_max, covariance * unit**2)
    return CurveFit(curve, best.residual, best.cost, tuple(codes))


def _candidates(X: FloatArray, y: FloatArray, sigma: float) -> Iterator[_Candidate]:
    f_scale = max(sigma, CAUCHY_SCALE) if np.isfinite(sigma) else CAUCHY_SCALE

    def misfit(theta: FloatArray) -> FloatArray:
        logs: FloatArray = np.log(np.maximum(X @ theta, 1e-12)) - y
        return logs

    def slope(theta: FloatArray) -> FloatArray:
        rows: FloatArray = X / np.maximum(X @ theta, 1e-12)[:, None]
        return rows

    for start in _starts(X, np.exp(y)):
        try:
            found = least_squares(
                misfit,
                np.maximum(start, 1e-6),
                jac=slope,
                bounds=(LOWER_BOUND, np.inf),
                loss="cauchy",
                f_scale=f_scale,
            )
        except (ValueError, np.linalg.LinAlgError):  # a start that overflows; others may not
            continue
        if np.isfinite(found.x).all() and np.isfinite(found.cost):
            theta = np.where(found.x > ACTIVE, found.x, 0.0)
            yield _Candidate(theta, -misfit(theta), float(found.cost))


def _starts(X: FloatArray, latency: FloatArray) -> Iterator[FloatArray]:
    """Starting coefficients: flat, through the first point, least squares, lower envelope."""
    p = X.shape[1]
    yield np.concatenate([[latency.min()], np.zeros(p - 1)])
    if p > 1 and X[0, 1] > 0:
        yield np.concatenate([[0.0, latency[0] / X[0, 1]], np.zeros(p - 2)])
    envelope = np.minimum.accumulate(latency[::-1])[::-1]
    for target in (latency, envelope):
        try:
            yield nnls(X / target[:, None], np.ones(latency.size))[0]
        except RuntimeError:  # too many iterations; the other starts remain
            continue


def residual_scale(residual: FloatArray, degree: int, *, floor: float) -> float:
    """Robust scale of curve residuals in log units, corrected for the fitted coefficients.

    ``1.4826 median|z - median z| sqrt(m / max(m - d - 1, 1))``, at least ``floor``.
    """
    m = residual.size
    if m == 0:
        return floor
    spread = MAD_TO_SD * float(np.median(np.abs(residual - np.median(residual))))
    return max(spread * float(np.sqrt(m / max(m - degree - 1, 1))), floor)


def theta_covariance(
    X: FloatArray, theta: FloatArray, weight: FloatArray, scale: float
) -> FloatArray:
    """Covariance ``s^2 (J' W J)^-1`` of the coefficients off their bound.

    Args:
        X: basis of the points that determine the curve, shape (m, d + 1).
        theta: coefficients, shape (d + 1,).
        weight: robust weight of each point, shape (m,).
        scale: residual scale in log units.

    Returns:
        Shape (d + 1, d + 1), zero for coefficients at zero; NaN when fewer points than free
        coefficients, or collinear ones, leave it undetermined.
    """
    p = theta.size
    covariance = np.zeros((p, p))
    active = np.flatnonzero(theta > ACTIVE * theta.max(initial=0.0))
    J = X[:, active] / (X @ theta)[:, None]
    unit = np.sqrt((J**2).sum(axis=0))
    normal = (J / unit).T @ ((J / unit) * weight[:, None])
    inside = np.ix_(active, active)
    if X.shape[0] < active.size or np.linalg.cond(normal) > 1e12:
        covariance[inside] = np.nan
        return covariance
    covariance[inside] = scale**2 * np.linalg.inv(normal) / np.outer(unit, unit)
    return covariance


def choose_degree(
    steps: ArrayLike, log_latency: ArrayLike, normal: BoolArray, *, degree: int, scale: float
) -> int:
    """Degree in 1..degree with the least Bayesian information criterion on the normal points.

    ``2 sum rho(z / s) + (d + 1) log m`` with Huber's rho and one common scale s, so that
    degrees differ only by fit and by size. Under 8 normal points nothing is chosen.

    Args:
        steps: distinct axis values, shape (n,), any order.
        log_latency: log seconds, shape (n,).
        normal: True outside slow intervals, shape (n,), in the caller's order.
        degree: highest degree that the axis may have.
        scale: residual scale in log units, > 0.

    Raises:
        ValueError: malformed series, or a scale that is not positive.
    """
    if not scale > 0:
        raise ValueError(f"scale must be positive, got {scale}")
    series = sorted_series(steps, log_latency)
    used = np.asarray(normal, dtype=bool)[series.order]
    m = int(used.sum())
    if m < DEGREE_CHOICE_FROM or degree <= 1:
        return degree
    y = series.response[used] - np.median(series.response[used])
    criterion = []
    for d in range(1, degree + 1):
        X = basis(series.steps[used], float(series.steps[-1]), d)
        ratio = (X / np.exp(y)[:, None])[None]
        flat = np.zeros((1, m), dtype=np.int8)
        fit = batched_cost(ratio, flat, np.array([scale]), CostRule(0.0, 0))
        criterion.append(2 * fit.cost[0, 0] + (d + 1) * np.log(m))
    return int(np.argmin(criterion)) + 1
