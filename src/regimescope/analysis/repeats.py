"""What repeats of one value in one process tell about it. Layer: ``analysis``.

Source: method, sections 8.2 to 8.4. Noise makes a run slow, never fast: a value that was seen at
normal speed in the very process that found it slow is not slow because of what it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from regimescope.analysis.sweep import FloatArray, Sweep
from regimescope.records import Trial
from regimescope.results import Regime

# Share of processes with repeats in which the label of a value must be constant (method, 8.3).
CONSTANT_SHARE = 0.9
# Three values rise by chance once in six times, and hardly ever by r_min from first to last.
LEAST_RISING = 3


def settled(
    regime: Regime, sweep: Sweep, excess: FloatArray, process: Sequence[int | None]
) -> bool:
    """Return whether some value of a slow interval is slow throughout the processes that saw it.

    Args:
        regime: The interval.
        sweep: The latencies.
        excess: Log latency over expected latency of each trial, shape (trials,).
        process: Process run of each trial.
    """
    low = regime.onset[1] if regime.onset else sweep.values[0]
    high = regime.recovery[1] if regime.recovery else sweep.values[-1] + 1
    for value in sweep.values[(sweep.values >= low) & (sweep.values < high)]:
        here = sweep.x == value
        half = float(np.median(excess[here])) / 2
        labels: dict[int | None, list[bool]] = defaultdict(list)
        for k in np.flatnonzero(here).tolist():
            labels[process[k]].append(bool(excess[k] > half))
        repeated = [group for group in labels.values() if len(group) > 1]
        constant = sum(len(set(group)) == 1 for group in repeated)
        if constant >= CONSTANT_SHARE * len(repeated):
            return True
    return False


def first_repeat_excess(sweep: Sweep, trials: Sequence[Trial]) -> list[float]:
    """Return log of the first repeat less the median log of the later ones, for each cell."""
    return [
        float(values[0] - np.median(values[1:]))
        for values in _cells(sweep, trials)
        if len(values) > 1
    ]


def rises_within_value(sweep: Sweep, trials: Sequence[Trial], *, r_min: float) -> bool:
    """Return whether the repeats of some value in one process rise, one by one, by ``r_min``."""
    return any(
        len(values) >= LEAST_RISING
        and bool((np.diff(values) > 0).all())
        and values[-1] - values[0] >= np.log(r_min)
        for values in _cells(sweep, trials)
        if len(values) > 1
    )


def _cells(sweep: Sweep, trials: Sequence[Trial]) -> Iterator[FloatArray]:
    """Yield the log latencies of each value in each known process, in the order of repeats."""
    cells: dict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
    for trial, value, latency_s in zip(trials, sweep.x.tolist(), sweep.latency_s, strict=True):
        if trial.process_run is not None and trial.order_index is not None:
            cells[trial.process_run, value].append((trial.order_index, float(np.log(latency_s))))
    for rows in cells.values():
        yield np.array([value for _, value in sorted(rows)])
