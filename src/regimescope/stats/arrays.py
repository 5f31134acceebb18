"""Array types and the input checks that every statistic shares."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]

# The normal law's ratio of standard deviation to median absolute deviation.
MAD_TO_SD = 1.4826


class Series(NamedTuple):
    """A response along an axis, sorted by the axis.

    Attributes:
        steps: strictly ascending axis values, shape (n,), n >= 1, not negative.
        response: response at each step (mostly log seconds), shape (n,).
        order: positions in the caller's arrays, shape (n,); ``steps = given[order]``.
    """

    steps: FloatArray
    response: FloatArray
    order: IntArray


def finite_vector(values: ArrayLike, name: str) -> FloatArray:
    """Return values as a float vector.

    Args:
        values: one number per element; empty is allowed.
        name: what the values are, for the message.

    Raises:
        ValueError: not one-dimensional, or holding NaN or infinity.
    """
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {vector.shape}")
    if not np.isfinite(vector).all():
        bad = np.flatnonzero(~np.isfinite(vector))[:5].tolist()
        raise ValueError(f"{name} must be finite; not so at positions {bad}")
    return vector


def sorted_series(steps: ArrayLike, response: ArrayLike) -> Series:
    """Check a series and sort it by its axis.

    Raises:
        ValueError: empty, of unequal lengths, not finite, with a negative step, without any
            positive step, or with a step given twice (repeats are summarized beforehand).
    """
    axis = finite_vector(steps, "steps")
    values = finite_vector(response, "response")
    if axis.size == 0:
        raise ValueError("a series needs at least one step")
    if axis.shape != values.shape:
        raise ValueError(f"{axis.size} steps but {values.size} responses")
    if axis.min() < 0 or axis.max() <= 0:
        raise ValueError("steps must not be negative, and one of them must be positive")
    order = np.argsort(axis, kind="stable")
    axis = axis[order]
    if (np.diff(axis) == 0).any():
        raise ValueError("each step may be given once; summarize repeats first")
    return Series(axis, values[order], order.astype(np.int64))


def finite_vector_like(values: ArrayLike, size: int, name: str) -> FloatArray:
    """Return values as a finite float vector of a required size.

    Raises:
        ValueError: another size, another dimension, or not finite.
    """
    vector = finite_vector(values, name)
    if vector.size != size:
        raise ValueError(f"{name} must have {size} elements, got {vector.size}")
    return vector


def split_by_label(values: FloatArray, labels: IntArray) -> list[FloatArray]:
    """Values of each label 0..max(labels), every one of which occurs, in their given order."""
    order = np.argsort(labels, kind="stable")
    return np.split(values[order], np.cumsum(np.bincount(labels))[:-1])
