"""What can be said of three to five points without any test (method section 15)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls

from regimescope.stats.arrays import FloatArray, sorted_series
from regimescope.stats.certificate import certificate
from regimescope.stats.curve import basis, fit_curve, is_admissible

MENTIONED = 1.1  # certificate up to which a faster longer point is noise
JUMP_SHARE = 0.6  # of the growth on a flat axis: less in each single step is no jump


class PlainReading(NamedTuple):
    """A description, never a detection.

    Attributes:
        shape: CLEAN, STEP, RAMP or INCONCLUSIVE.
        onset: index of the first slow point of a STEP or RAMP; None otherwise.
        log_effect: log size of the jump, or of the growth on a flat axis; 0 otherwise.
        theta: coefficients in seconds of the curve without the jump or growth, of powers of
            ``steps / steps[-1]``; empty where there is neither.
        codes: ``curve_failed`` where no curve could be fitted.
    """

    shape: str
    onset: int | None
    log_effect: float
    theta: FloatArray
    codes: tuple[str, ...]


_NO_CURVE: FloatArray = np.empty(0)


class _Jump(NamedTuple):
    """First slow index, log size, and coefficients of the curve before it."""

    position: int
    log_size: float
    theta: FloatArray


def read_plainly(
    steps: ArrayLike, log_latency: ArrayLike, *, degree: int, r_min: float
) -> PlainReading:
    """Describe a very short series.

    CLEAN when every point lies within r_min of an admissible curve; STEP when one lasting jump
    of r_min explains the rest; RAMP for steady growth on an axis expected flat; otherwise
    INCONCLUSIVE, in particular for points that are slow and then normal again.

    Args:
        steps: distinct axis values, shape (n,), any order.
        log_latency: log seconds, shape (n,).
        degree: degree of the expected curve; 0 for a flat axis.
        r_min: least slowdown worth a name.

    Raises:
        ValueError: malformed series.
    """
    series = sorted_series(steps, log_latency)
    y = series.response
    n = y.size
    if n < 3:
        return PlainReading("INCONCLUSIVE", None, 0.0, _NO_CURVE, ())
    least = float(np.log(r_min))
    alone = fit_curve(series.steps, y, degree=min(degree, n - 2))
    if alone.curve is None:
        return PlainReading("INCONCLUSIVE", None, 0.0, _NO_CURVE, alone.codes)
    if is_admissible(alone.residual) and float(np.abs(alone.residual).max()) < least:
        return PlainReading("CLEAN", None, 0.0, _NO_CURVE, ())
    peak = certificate(series.steps, y).value
    if peak is None or peak > MENTIONED:
        return PlainReading("INCONCLUSIVE", None, 0.0, _NO_CURVE, ())
    growth = float(y[-1] - y[0])
    if degree == 0 and growth >= least and float(np.diff(y).max()) < JUMP_SHARE * growth:
        return PlainReading("RAMP", 0, growth, np.exp(y[:1]), ())
    jump = _lasting_jump(series.steps, y, min(degree, 1), least)
    if jump is not None:
        return PlainReading("STEP", jump.position, jump.log_size, jump.theta, ())
    return PlainReading("INCONCLUSIVE", None, 0.0, _NO_CURVE, ())


def _lasting_jump(steps: FloatArray, y: FloatArray, degree: int, least: float) -> _Jump | None:
    """The jump that explains the series best; None if none does."""
    best = None
    misfit = least
    X = basis(steps, float(steps[-1]), degree)
    for k in range(1, y.size):
        # Before the jump the curve, after it the same curve times a factor: on each side the
        # relative misfit is linear in the coefficients once the factor is fixed by medians.
        theta = nnls(X[:k] / np.exp(y[:k])[:, None], np.ones(k))[0]
        if not (X @ theta > 0).all():
            continue
        z = y - np.log(X @ theta)
        size = float(np.median(z[k:]))
        z[k:] -= size
        if size >= least and float(np.abs(z).max()) < misfit:
            best, misfit = _Jump(k, size, theta), float(np.abs(z).max())
    return best
