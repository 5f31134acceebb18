"""Where to look first, and what looks suspicious. Layer: ``search``.

Source: method, section 11, P0 to P2. Screening is loose and decides nothing: what it points at is
measured again.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from regimescope import axes
from regimescope.search.evidence import Evidence, FloatArray, IntArray
from regimescope.spec import Axis
from regimescope.stats.certificate import certificate
from regimescope.stats.curve import fit_curve
from regimescope.stats.epidemic import FEWEST_POINTS, R_MIN, detect
from regimescope.stats.estimate import summarize_repeats
from regimescope.stats.shape import ShapeResult, classify

# Jitter of a grid point in parts of the gap: neighbors are then at most 1.25 gaps apart.
JITTER = 1 / 8
WIDEST_GAP = 1 + 2 * JITTER
# Below this an inversion is within what the minimum over noisy points does by itself (section 3).
LEAST_INVERSION = 1.1
# Fewer values have no shape (method, section 15).
LEAST_GRID = 6
CALIBRATION_REPEATS = 3
RERUNS = 2


class Place(NamedTuple):
    """The swept axis with its expected curve.

    Attributes:
        axis: The swept axis.
        degree: Degree of the expected curve.
    """

    axis: Axis
    degree: int


class Screen(NamedTuple):
    """What the trials so far look like, one row per value.

    Attributes:
        value: Distinct values, ascending, shape (n,).
        log_s: Median log latency of each, shape (n,).
        repeats: Trials behind each, shape (n,).
        sigma: Scale of one trial in log units; NaN when unknown.
        result: The shape with its curve and intervals.
        extended: Whether the range was extended to see whether a step persists.
    """

    value: IntArray
    log_s: FloatArray
    repeats: IntArray
    sigma: float
    result: ShapeResult
    extended: bool = False


class Candidate(NamedTuple):
    """A stretch that looks slow, with the nearest normal values beside it.

    Attributes:
        values: First, middle and last measured value inside, without repetition.
        left: Nearest normal value below; absent where the stretch reaches the lower end.
        right: Nearest normal value above; absent where it reaches the upper end.
    """

    values: tuple[int, ...]
    left: int | None
    right: int | None


def grid(low: int, high: int, width: int, random: np.random.Generator) -> tuple[int, ...]:
    """Return values of a stratified grid with jitter, so that no two are ``width`` apart or more.

    Both ends belong to it. A fixed grid would miss what is periodic with it. A wide gap makes it no
    coarser than a verdict allows.

    Args:
        low: First value.
        high: Last value, at least ``low``.
        width: Largest gap between neighbors, at least 1: a slow interval of this width is met.
        random: Source of the jitter.
    """
    gap = max(math.floor(width / WIDEST_GAP), 1)
    strata = max(math.ceil((high - low) / gap), LEAST_GRID - 1)
    centers = np.linspace(low, high, strata + 1)
    reach = (high - low) / strata * JITTER
    inner = np.floor(centers[1:-1] + random.uniform(-reach, reach, strata - 1) + 0.5)
    return tuple(sorted({low, high, *(int(v) for v in inner)}))


def calibration_values(low: int, high: int) -> tuple[int, ...]:
    """Return the values that show scale, speed and noise: both ends and the middle."""
    return tuple(sorted({low, (low + high) // 2, high}))


def suspicious(evidence: Evidence, place: Place) -> tuple[int, ...]:
    """Return the values that deserve a second look (method, P2).

    A value is suspicious when it lies 1.25 times above the curve, when some longer one is faster by
    a tenth, or when the detector finds it inside a slow stretch.

    Args:
        evidence: Rows of the calibration and of the screen.
        place: The axis.
    """
    summary = summarize_repeats(axes.curve_steps(evidence.value, place.axis), evidence.log_s)
    values = np.unique(evidence.value)
    if values.size < 2:
        return ()
    chosen = np.zeros(values.size, dtype=bool)
    curve = fit_curve(summary.steps, summary.median, degree=place.degree, sigma=summary.sigma)
    chosen |= curve.residual > math.log(R_MIN)
    if place.degree > 0:
        chosen[:-1] |= certificate(summary.steps, summary.median).ratio > LEAST_INVERSION
    if values.size >= FEWEST_POINTS:
        found = detect(
            summary.steps,
            summary.median,
            repeats=summary.repeats,
            sigma=summary.sigma,
            degree=place.degree,
        )
        for start, end in found.intervals:
            chosen[start:end] = True
    return tuple(values[chosen].tolist())


def read_screen(evidence: Evidence, place: Place, *, extended: bool = False) -> Screen:
    """Fit the competing shapes to everything measured so far.

    Args:
        evidence: At least one row.
        place: The axis.
        extended: Whether the range was extended to see whether a step persists.
    """
    from regimescope.stats.shape import ShapeOptions

    summary = summarize_repeats(axes.curve_steps(evidence.value, place.axis), evidence.log_s)
    result = classify(
        summary.steps,
        summary.median,
        repeats=summary.repeats,
        sigma=summary.sigma,
        degree=place.degree,
        options=ShapeOptions(extended=extended),
    )
    return Screen(
        np.unique(evidence.value),
        summary.median,
        summary.repeats,
        summary.sigma,
        result,
        extended,
    )


def candidates(screen: Screen) -> tuple[Candidate, ...]:
    """Return the slow stretches of a screen that are worth confirming, ascending."""
    parts = sorted((p.start, p.end) for p in screen.result.intervals if p.shape != "RAMP")
    slow = np.zeros(screen.value.size, dtype=bool)
    for start, end in parts:
        slow[start:end] = True
    return tuple(_candidate(screen.value, slow, start, end) for start, end in parts)


def _candidate(value: IntArray, slow: np.ndarray, start: int, end: int) -> Candidate:
    """Return one stretch [start, end) of indices with its neighbors that are normal."""
    inside = sorted({start, (start + end - 1) // 2, end - 1})
    below = [int(value[k]) for k in range(start) if not slow[k]]
    above = [int(value[k]) for k in range(end, value.size) if not slow[k]]
    return Candidate(
        values=tuple(int(value[k]) for k in inside),
        left=below[-1] if below else None,
        right=above[0] if above else None,
    )
