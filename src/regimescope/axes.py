"""What each axis means: its value in a cell, the latency it is judged by, its expected curve.

Layer: beside ``metrics``. Source: method, sections 1.1 and 2. One axis is swept, the others are
held fixed; everything that reads or plans a sweep asks here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from regimescope import metrics
from regimescope.records import Cell, Trial
from regimescope.spec import Axis, KvCache

FloatArray = npt.NDArray[np.float64]


class AxisLaw(NamedTuple):
    """How one axis is read.

    Attributes:
        field: Field of a cell that holds the value.
        degree: Degree of the expected curve with a KV cache.
        degree_uncached: The same without one.
        prefill: Whether TTFT is judged; otherwise the decode seconds.
    """

    field: str
    degree: int
    degree_uncached: int
    prefill: bool = False


LAWS: dict[Axis, AxisLaw] = {
    "budget": AxisLaw("budget", 2, 3),
    "prompt": AxisLaw("prompt_tokens", 2, 2, prefill=True),
    "context": AxisLaw("depth", 1, 2),
    "capacity": AxisLaw("capacity", 0, 0),
    "batch": AxisLaw("batch", 1, 1),
}


def value(cell: Cell, axis: Axis) -> int | None:
    """Return where a cell stands on an axis; ``None`` where the cell does not know."""
    found: int | None = getattr(cell, LAWS[axis].field)
    return found


def at(cell: Cell, axis: Axis, place: int) -> Cell:
    """Return a cell moved to another place on an axis."""
    return replace(cell, **{LAWS[axis].field: place})


def latency_s(trial: Trial, axis: Axis) -> float | None:
    """Return the measured latency that an axis is judged by, in seconds; absent if unknown."""
    seconds = trial.ttft_s if LAWS[axis].prefill else trial.decode_s
    return seconds if seconds is not None and 0 < seconds < math.inf else None


def curve_steps(values: npt.ArrayLike, axis: Axis) -> FloatArray:
    """Return the abscissa of the expected curve: decode steps on the budget axis, else the values.

    Args:
        values: Places on the axis, shape (n,).
        axis: The axis.
    """
    places = np.asarray(values, dtype=np.float64)
    return places - metrics.PREFILL_TOKENS if axis == "budget" else places


def values_at(steps: npt.ArrayLike, axis: Axis) -> npt.NDArray[np.int64]:
    """Return the places on an axis at steps of the expected curve; undoes ``curve_steps``.

    Args:
        steps: Abscissa of the curve, shape (n,).
        axis: The axis.
    """
    places = np.asarray(steps, dtype=np.float64)
    if axis == "budget":
        places = places + metrics.PREFILL_TOKENS
    return np.rint(places).astype(np.int64)


def degree(axis: Axis, kv_cache: KvCache | None) -> int:
    """Return the degree of the expected curve."""
    law = LAWS[axis]
    return law.degree_uncached if kv_cache == "off" else law.degree
