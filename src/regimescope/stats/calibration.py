"""Penalty of the detector, from a table simulated beforehand (method section 4).

``scripts/calibrate_lambda.py`` writes the table; each entry says on how many simulated sweeps it
rests. With the penalty of the table about 10 % of clean sweeps raise a screening alarm when any
slowdown counts, fewer when a slowdown must reach a margin.
"""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from regimescope.stats.arrays import FloatArray, finite_vector

TABLE = "lambda_table.json"
ADAPTIVE_REPEATS = 3  # a plan that repeats only suspicious budgets is read as this many repeats
ANCHOR = 32  # points; the largest size of the table that rests on thousands of sweeps


class CalibrationRow(NamedTuple):
    """Penalties for one number of repeats and one degree.

    Attributes:
        sizes: numbers of points, ascending, shape (k,).
        lam: penalty for each size, shape (k,).
        standard_error: Monte-Carlo standard error of each penalty, shape (k,).
        nulls: simulated sweeps behind each penalty, shape (k,).
    """

    sizes: FloatArray
    lam: FloatArray
    standard_error: FloatArray
    nulls: FloatArray


@lru_cache(maxsize=1)
def calibration_rows() -> dict[tuple[int, int], CalibrationRow]:
    """The table by (repeats, degree)."""
    table = json.loads(files("regimescope.stats").joinpath(TABLE).read_text(encoding="utf-8"))
    grouped: dict[tuple[int, int], list[tuple[float, ...]]] = {}
    for cell in table["cells"]:
        entry = (cell["n"], cell["lam"], cell["lam_se"], cell["nulls"])
        grouped.setdefault((cell["repeats"], cell["degree"]), []).append(entry)
    return {
        key: CalibrationRow(*np.array(sorted(entries), dtype=np.float64).T)
        for key, entries in grouped.items()
    }


def effective_repeats(repeats: ArrayLike) -> float:
    """Repeats to look up for a sweep: the median, or 3 where suspicious points have 3 or more.

    Raises:
        ValueError: no repeats given, or one below 1.
    """
    counts = finite_vector(np.atleast_1d(np.asarray(repeats, dtype=np.float64)), "repeats")
    if counts.size == 0 or counts.min() < 1:
        raise ValueError("repeats must be given, each at least 1")
    return max(float(np.median(counts)), min(ADAPTIVE_REPEATS, float(counts.max())))


def screening_penalty(n: int, repeats: ArrayLike, degree: int) -> float:
    """Penalty per interval for a sweep, interpolated in log n and in log repeats.

    Args:
        n: number of points; below the least size of the table its penalty is taken, above 32
            the trend over log n.
        repeats: repeats of each point, or one number for all.
        degree: degree of the expected curve; above the table's highest, that one is taken.

    Raises:
        ValueError: n below 1, a repeat below 1, or a negative degree.
    """
    if n < 1 or degree < 0:
        raise ValueError(f"need n >= 1 and degree >= 0, got {n} and {degree}")
    rows = calibration_rows()
    column = min(degree, max(d for _, d in rows))
    known = sorted(r for r, d in rows if d == column)
    penalties = [_row_penalty(rows[r, column], n) for r in known]
    return float(np.interp(np.log(effective_repeats(repeats)), np.log(known), penalties))


def _row_penalty(row: CalibrationRow, n: int) -> float:
    """Interpolate up to the anchor; beyond, follow the line through it that fits the rest best.

    The penalty is straight in log n there, and the line averages the Monte-Carlo errors of the
    large sizes, which rest on few sweeps.
    """
    x = np.log(row.sizes)
    anchor = int(np.argmin(np.abs(row.sizes - ANCHOR)))
    if n <= row.sizes[anchor] or anchor == row.sizes.size - 1:
        return float(np.interp(np.log(n), x, row.lam))
    distance = x[anchor + 1 :] - x[anchor]
    rise = row.lam[anchor + 1 :] - row.lam[anchor]
    weight = row.standard_error[anchor + 1 :] ** -2
    slope = float((weight * distance * rise).sum() / (weight * distance**2).sum())
    return float(row.lam[anchor]) + max(slope, 0.0) * float(np.log(n) - x[anchor])
