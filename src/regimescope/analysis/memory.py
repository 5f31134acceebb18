"""Memory against latency: does a reading leave its own line where the latency does?

Layer: ``analysis``. A reading that runs smoothly through a slow interval cannot explain it; one
that was not recorded is not excluded by those that were (arXiv 2605.08913: live tensors alone).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regimescope.analysis.compare import INTERVALS, core, reach
from regimescope.analysis.sweep import FloatArray, axis_value
from regimescope.records import Trial
from regimescope.results import Behavior, MemoryReading, Range, Regime
from regimescope.spec import Axis

# Allocators round to blocks of 2 MB and more, and a heap breathes: less is no change.
MARGIN = 1.05
# Values outside, one on either side.
LEAST_VALUES = 2


def memory_readings(
    trials: Sequence[Trial], regimes: Sequence[Regime], axis: Axis
) -> tuple[MemoryReading, ...]:
    """Return how every kind of memory behaves in every slow interval.

    Args:
        trials: Measured trials.
        regimes: Intervals of a conclusion on them.
        axis: The swept axis.
    """
    x = np.array([axis_value(t, axis) or 0 for t in trials], dtype=np.float64)
    slow = [regime for regime in regimes if regime.verdict in INTERVALS]
    kinds = sorted({kind for t in trials for kind in t.memory_bytes or ()})
    found = []
    for kind in kinds:
        values = np.array([(t.memory_bytes or {}).get(kind, 0) for t in trials], dtype=np.float64)
        outside = (values > 0) & ~np.logical_or.reduce(
            [_within(x, reach(r), open_ends=True) for r in slow] or [np.zeros(x.size, bool)]
        )
        for regime in slow:
            inside = (values > 0) & _within(x, core(regime), open_ends=False)
            reading = _reading(kind, regime, x, values, inside, outside)
            if reading is not None:
                found.append(reading)
    return tuple(found)


def _within(x: FloatArray, ends: tuple[float, float], *, open_ends: bool) -> np.ndarray:
    """Return which values lie between two ends."""
    low, high = ends
    return (x > low) & (x < high) if open_ends else (x >= low) & (x <= high)


def _reading(
    kind: str,
    regime: Regime,
    x: FloatArray,
    values: FloatArray,
    inside: np.ndarray,
    outside: np.ndarray,
) -> MemoryReading | None:
    """Return how one kind behaves in one interval; ``None`` without readings to tell it from."""
    at = np.unique(x[outside])
    if not inside.any() or at.size < LEAST_VALUES:
        return None
    if not at[0] < x[inside].min() <= x[inside].max() < at[-1]:
        return None  # one side alone shows no line
    line = np.interp(x[inside], at, [np.median(values[outside & (x == value)]) for value in at])
    ratio = values[inside] / line
    behavior: Behavior = "smooth"
    if ratio.min() > MARGIN:
        behavior = "higher"
    elif ratio.max() < 1 / MARGIN:
        behavior = "lower"
    return MemoryReading(
        kind=kind,
        behavior=behavior,
        ratio=Range(
            value=float(np.median(ratio)),
            low=float(ratio.min()),
            high=float(ratio.max()),
            n=int(ratio.size),
        ),
        onset=regime.onset,
        recovery=regime.recovery,
    )
