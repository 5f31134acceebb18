"""Difference of two samples with an exact interval (Hodges and Lehmann)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from regimescope.stats.arrays import finite_vector
from regimescope.stats.certificate import rank_sum_law
from regimescope.stats.estimate import Estimate


def hodges_lehmann(x: ArrayLike, y: ArrayLike, *, level: float = 0.95) -> Estimate:
    """Estimate the shift from y to x: the median of all differences ``x_i - y_j``.

    The ends are the order statistics of the differences that an exact two-sided rank test at
    ``1 - level`` would not reject. Samples too small for the level give all differences.

    Args:
        x: values of the first sample, shape (a,), a >= 1.
        y: values of the second sample, shape (b,), b >= 1.
        level: coverage of the interval, above 0 and below 1.

    Raises:
        ValueError: an empty side, values that are not finite, or a level out of range.
    """
    first, second = finite_vector(x, "x"), finite_vector(y, "y")
    if first.size == 0 or second.size == 0:
        raise ValueError("a shift needs values on both sides")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    differences = np.sort((first[:, None] - second[None, :]).ravel())
    cut = _cut(first.size, second.size, (1 - level) / 2)
    return Estimate(
        float(np.median(differences)), float(differences[cut]), float(differences[-1 - cut])
    )


def _cut(a: int, b: int, tail: float) -> int:
    """Return how many differences to leave out at each end so that each tail has at most ``tail``.

    The number of differences below the true shift has the law of the rank sum less its minimum.
    """
    law = rank_sum_law(np.arange(1, a + b + 1), a)[a * (a + 1) // 2 :]
    return int(np.searchsorted(np.cumsum(law), tail, side="right"))
