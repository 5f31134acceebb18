"""The measured values behind a chart, as arrays. Layer: report.

Which value of the swept axis a trial belongs to, which of its durations the curve is about, and
which trials are left out of it (method, sections 1.1 and 1.3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from regimescope.analysis.sweep import primary_series, select
from regimescope.records import Run, Trial
from regimescope.report.wording import points_of
from regimescope.results import Conclusion

_VALUES: dict[str, Callable[[Trial], int | None]] = {
    "budget": lambda trial: trial.cell.budget,
    "prompt": lambda trial: trial.cell.prompt_tokens,
    "capacity": lambda trial: trial.cell.capacity,
    "batch": lambda trial: trial.cell.batch,
    # A nested generation passes through many context lengths and belongs to none of them.
    "context": lambda trial: None if trial.series.mode == "nested" else trial.cell.depth,
    "time": lambda trial: trial.order_index,
}

_DURATIONS: dict[str, Callable[[Trial], float | None]] = {
    "decode": lambda trial: trial.decode_s,
    "prefill": lambda trial: trial.ttft_s,
    "mixed": lambda trial: trial.e2e_s if trial.e2e_s is not None else trial.decode_s,
    "kernel": lambda trial: trial.e2e_s if trial.e2e_s is not None else trial.decode_s,
}


class Measured(NamedTuple):
    """Trials with a place on the curve.

    Attributes:
        trials: The trials, in the order written.
        x: Their values of the swept axis, shape (n,).
        latency_s: The duration the curve is about, seconds, shape (n,).
    """

    trials: list[Trial]
    x: npt.NDArray[np.int64]
    latency_s: npt.NDArray[np.float64]


class Traces(NamedTuple):
    """Gaps between tokens of all trials at one value of the swept axis.

    Attributes:
        x: The value.
        gaps_s: One array of gaps per trial, in seconds; lengths may differ.
    """

    x: int
    gaps_s: list[npt.NDArray[np.float64]]


def axis_value(trial: Trial, axis: str) -> int | None:
    """Return the value of the swept axis a trial belongs to, ``None`` if it has none."""
    foreign = (trial.env or {}).get("x")
    if isinstance(foreign, int):
        return foreign  # an import whose unit no field of a cell has
    value = _VALUES.get(axis)
    return value(trial) if value else None


def on_curve(run: Run, conclusion: Conclusion) -> Measured:
    """Return the measured trials that the points of the conclusion summarize.

    Without points (no curve could be drawn) every measured trial is returned. A trial at a value
    that is no point is left out: it is no part of this sweep.
    """
    phase = conclusion.baseline.phase if conclusion.baseline else "mixed"
    duration = _DURATIONS.get(phase, _DURATIONS["mixed"])
    known = {point.x for point in points_of(conclusion)}
    kept: list[tuple[Trial, int, float]] = []
    for trial in select(primary_series(run)).trials:
        x, latency_s = axis_value(trial, conclusion.axis), duration(trial)
        if x is not None and latency_s is not None and (not known or x in known):
            kept.append((trial, x, latency_s))
    return Measured(
        [trial for trial, _, _ in kept],
        np.array([x for _, x, _ in kept], dtype=np.int64),
        np.array([latency_s for _, _, latency_s in kept], dtype=np.float64),
    )


def trace_axis(run: Run, conclusion: Conclusion) -> str:
    """Return the axis that tells traces apart: the swept one, or the budget where it cannot.

    A nested sweep has one long generation and is analyzed by context length, so its trials have
    no value of the swept axis, yet every gap of them is worth showing.
    """
    swept = conclusion.axis
    usable = any(axis_value(trial, swept) is not None for trial in run.trials if trial.itl_s)
    return swept if usable else "budget"


def traces(run: Run, axis: str) -> list[Traces]:
    """Return the gaps of the measured trials by value of an axis, ascending."""
    by_value: dict[int, list[Trial]] = {}
    for trial in select(primary_series(run)).trials:
        x = axis_value(trial, axis)
        if x is not None and trial.itl_s:
            by_value.setdefault(x, []).append(trial)
    return [
        Traces(x, [np.asarray(trial.itl_s, dtype=np.float64) for trial in by_value[x]])
        for x in sorted(by_value)
    ]
