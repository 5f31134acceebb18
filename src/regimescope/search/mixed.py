"""Slow intervals in which a process is slow only sometimes. Layer: ``search``.

Source: method, section 5 (mixtures) and section 11 (prevalence below one). Medians hide such an
interval, so that single slow trials count: the screen visits every value in several processes, and
a test of counts in fresh processes decides.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from regimescope import axes
from regimescope.search.evidence import BoolArray, Evidence, FloatArray
from regimescope.search.screening import Place
from regimescope.stats.curve import Curve, fit_curve, predict_log
from regimescope.stats.epidemic import R_MIN
from regimescope.stats.mixture import MIXTURE_ALPHA, MixtureTest, mixture_test

# One slow trial may be an accident; a value with two in different processes is looked into.
LEAST_SLOW = 2


class Mixed(NamedTuple):
    """A stretch of values at which some processes are slow.

    Attributes:
        onset: Last value without a slow process and first one with.
        recovery: Last value with a slow process and first one without; absent at the upper end.
        value: The most suspicious value, where it is tested.
        controls: The normal values beside it.
        delta: Log slowdown of the slow processes, from the screen.
        curve: The expected latency.
    """

    onset: tuple[int, int]
    recovery: tuple[int, int]
    value: int
    controls: tuple[int, int]
    delta: float
    curve: Curve


def slow_values(evidence: Evidence, place: Place) -> tuple[int, ...]:
    """Return the values at which a single trial lies 1.25 times above the fastest ones' curve.

    Args:
        evidence: Rows of the calibration and of the screen.
        place: The axis.
    """
    curve = _floor(evidence, place)
    if curve is None:
        return ()
    excess = _excess(evidence, curve, place)
    return tuple(np.unique(evidence.value[excess > math.log(R_MIN)]).tolist())


def mixed_stretches(evidence: Evidence, place: Place) -> tuple[Mixed, ...]:
    """Return the stretches with slow processes that have a normal value on both sides.

    Args:
        evidence: Rows of the calibration, the screen and the second look.
        place: The axis.
    """
    curve = _floor(evidence, place)
    if curve is None:
        return ()
    excess = _excess(evidence, curve, place)
    values = np.unique(evidence.value)
    slow = excess > math.log(R_MIN)
    counts = np.array([int(slow[evidence.value == v].sum()) for v in values])
    marked = counts >= LEAST_SLOW
    found = []
    for start, end in _stretches(marked):
        if start == 0 or end == values.size:
            continue
        inside = values[start:end]
        best = int(inside[int(np.argmax(counts[start:end]))])
        here = slow & np.isin(evidence.value, inside)
        left, right = int(values[start - 1]), int(values[end])
        found.append(
            Mixed(
                onset=(left, int(inside[0])),
                recovery=(int(inside[-1]), right),
                value=best,
                controls=(left, right),
                delta=float(np.median(excess[here])),
                curve=curve,
            )
        )
    return tuple(found)


def mixed_tests(
    stretches: tuple[Mixed, ...], fresh: Evidence, place: Place
) -> tuple[MixtureTest | None, ...]:
    """Test each stretch on fresh processes; ``None`` where none has visited it.

    Args:
        stretches: What the screen pointed at.
        fresh: Rows of the confirmation.
        place: The axis.
    """
    tests: list[MixtureTest | None] = []
    for stretch in stretches:
        at_value = fresh.where(fresh.value == stretch.value)
        beside = fresh.where(np.isin(fresh.value, stretch.controls))
        if not at_value.value.size or not beside.value.size:
            tests.append(None)
            continue
        tests.append(
            mixture_test(
                _excess(at_value, stretch.curve, place),
                _excess(beside, stretch.curve, place),
                stretch.delta,
                alpha=MIXTURE_ALPHA / len(stretches),
            )
        )
    return tuple(tests)


def _floor(evidence: Evidence, place: Place) -> Curve | None:
    """Return the curve of the fastest trial at each value, which slow processes do not lift."""
    values = np.unique(evidence.value)
    if values.size < 2:
        return None
    least = np.array([evidence.log_s[evidence.value == v].min() for v in values])
    return fit_curve(axes.curve_steps(values, place.axis), least, degree=place.degree).curve


def _excess(evidence: Evidence, curve: Curve, place: Place) -> FloatArray:
    """Return log latency over the expected one, shape (N,)."""
    excess: FloatArray = evidence.log_s - predict_log(
        curve, axes.curve_steps(evidence.value, place.axis)
    )
    return excess


def _stretches(marked: BoolArray) -> list[tuple[int, int]]:
    """Return runs of marked values as half-open index ranges."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], marked, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]
