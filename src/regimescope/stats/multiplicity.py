"""Many tests at once: Holm inside a sweep, Benjamini-Hochberg across sweeps (method section 5)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from regimescope.stats.arrays import FloatArray, finite_vector


def holm(p_value: ArrayLike) -> FloatArray:
    """Adjust p values by Holm's step-down rule, which bounds the chance of any false rejection.

    A hypothesis is rejected at level alpha when its adjusted value is at most alpha. No assumption
    on the dependence of the tests is made.

    Args:
        p_value: one per hypothesis, shape (M,); empty is allowed.

    Returns:
        Adjusted values in the given order, at most 1, shape (M,).

    Raises:
        ValueError: a value that is not finite or lies outside [0, 1].
    """
    p = _probabilities(p_value)
    order = np.argsort(p, kind="stable")
    scaled = p[order] * np.arange(p.size, 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted


def benjamini_hochberg(p_value: ArrayLike) -> FloatArray:
    """Adjust p values so that rejecting those up to q bounds the share of false ones by q.

    For the p values of whole sweeps (models, precisions, devices), which share no data.

    Args:
        p_value: one per sweep, shape (M,); empty is allowed.

    Returns:
        Adjusted values in the given order, shape (M,).

    Raises:
        ValueError: a value that is not finite or lies outside [0, 1].
    """
    p = _probabilities(p_value)
    if p.size == 0:
        return p
    adjusted: FloatArray = np.asarray(stats.false_discovery_control(p, method="bh"))
    return adjusted


def _probabilities(p_value: ArrayLike) -> FloatArray:
    p = finite_vector(p_value, "p_value")
    if p.size and (p.min() < 0 or p.max() > 1):
        raise ValueError(f"p values must lie in [0, 1], got {p.min()} to {p.max()}")
    return p
