"""Slow stretches of a classified sweep, each with the shape it has on its own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from regimescope.stats.arrays import FloatArray
from regimescope.stats.epidemic import EpidemicFit
from regimescope.stats.hypotheses import Hypothesis
from regimescope.stats.interval_search import Interval


class ShapedInterval(NamedTuple):
    """A slow stretch with the shape it has on its own.

    Attributes:
        start: first slow index.
        end: index after the last slow one.
        shape: SPIKE for an interior stretch, STEP for one that touches an end, RAMP for the
            part after a kink.
        log_slowdown: log slowdown; at the last point for a RAMP.
        codes: ``left_censored`` or ``right_censored`` where it touches an end.
    """

    start: int
    end: int
    shape: str
    log_slowdown: float
    codes: tuple[str, ...]


def label_stretches(
    leader: Hypothesis, fit: EpidemicFit, *, r_min: float, extended: bool
) -> tuple[ShapedInterval, ...]:
    """Stretches of the leading shape, then others that the detector found.

    Args:
        leader: cheapest shape of the contest.
        fit: result of the detector on the same sweep.
        r_min: least slowdown of a stretch worth listing.
        extended: the sweep was extended, so a stretch up to its end is not right-censored.
    """
    n = fit.steps.size
    least = np.log(r_min)
    own = [
        _shaped(interval, float(offset), n, extended)
        for interval, offset in zip(leader.intervals, leader.offsets, strict=True)
        if offset >= least
    ]
    if leader.name == "STEP" and len(leader.intervals) > 1:
        return tuple(_rises(leader, n, least, extended))
    if leader.name == "RAMP" and leader.position is not None and leader.effect >= least:
        own = [ShapedInterval(leader.position, n, "RAMP", leader.effect, ())]
    if leader.name not in {"SPIKE", "STEP", "STEP_LEFT"}:
        return tuple(own)
    found = [
        _shaped(interval, float(offset), n, extended)
        for interval, offset in zip(fit.intervals, fit.offsets, strict=True)
    ]
    if leader.name == "SPIKE":
        # Spikes are interior by definition. Where the detector, free to go to the end, does so,
        # the stretch is a step beside the other spikes.
        steps = [part for part in found if part.shape == "STEP"]
        own = [part for part in own if not any(_overlap(part, s) for s in steps)] or own
    noted = [part for part in found if not any(_overlap(part, other) for other in own)]
    return tuple(own + noted)


def certified_core(
    stretches: Sequence[ShapedInterval], violation: FloatArray, r_min: float
) -> tuple[Interval, ...] | None:
    """What no curve explains of spikes that touch; None where they do not touch.

    Stretches side by side at different levels are one departure from a curve that does not hold
    there. What remains certain needs no curve: points slower than a later one by ``r_min``.

    Args:
        stretches: spikes, ascending.
        violation: latency of each point over the least later one, shape (n - 1,).
        r_min: least slowdown worth a name.

    Returns:
        Half-open runs of certain points within the touching stretches; possibly none.
    """
    spikes = [part for part in stretches if part.shape == "SPIKE"]
    touching = [(a, b) for a, b in itertools.pairwise(spikes) if a.end == b.start]
    if not touching:
        return None
    slow = np.zeros(violation.size + 3, dtype=bool)
    for a, b in touching:
        slow[1 + a.start : 1 + b.end] = violation[a.start : b.end] >= r_min
    turns = np.flatnonzero(np.diff(slow.astype(np.int8)))
    return tuple((int(i), int(j)) for i, j in zip(turns[::2], turns[1::2], strict=True))


def _rises(leader: Hypothesis, n: int, least: float, extended: bool) -> list[ShapedInterval]:
    """Treads of a staircase, those joined that are less than ``least`` apart; none recovers."""
    treads: list[ShapedInterval] = []
    level = 0.0
    for (start, end), offset in zip(leader.intervals, leader.offsets.tolist(), strict=True):
        if offset - level >= least:
            treads.append(ShapedInterval(start, end, "STEP", offset, ()))
            level = offset
        elif treads:
            treads[-1] = treads[-1]._replace(end=end)
    if treads and not extended:
        treads[-1] = treads[-1]._replace(end=n, codes=("right_censored",))
    return treads


def _shaped(interval: Interval, offset: float, n: int, extended: bool) -> ShapedInterval:
    start, end = interval
    codes = []
    if start == 0:
        codes.append("left_censored")
    if end == n and not extended:
        codes.append("right_censored")
    interior = start > 0 and end < n
    return ShapedInterval(start, end, "SPIKE" if interior else "STEP", offset, tuple(codes))


def _overlap(first: ShapedInterval, second: ShapedInterval) -> bool:
    return first.start < second.end and second.start < first.end
