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
from regimescope.stats.confirm import Candidate, FreshTrials, confirm
from regimescope.stats.curve import Curve, fit_curve, predict_log
from regimescope.stats.epidemic import R_MIN
from regimescope.stats.mixture import MIXTURE_ALPHA, MixtureTest, mixture_test

# One slow trial may be an accident; a value with two in different processes is looked into.
LEAST_SLOW = 2


class Mixed(NamedTuple):
    """A stretch of values at which some processes are slow.

    Attributes:
        onset: Last value without a slow process and first one with; absent at the lower end.
        recovery: Last value with a slow process and first one without; absent at the upper end.
        value: The most suspicious value, where it is tested.
        controls: The normal values beside it.
        delta: Log slowdown of the slow processes, from the screen.
        curve: The expected latency.
    """

    onset: tuple[int, int] | None
    recovery: tuple[int, int] | None
    value: int
    controls: tuple[int, ...]
    delta: float
    curve: Curve

    @property
    def testable(self) -> bool:
        """Whether there is a normal value on both sides to compare with."""
        return self.onset is not None and self.recovery is not None


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
    """Return the stretches with slow processes; only some have a normal value on both sides.

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
        inside = values[start:end]
        best = int(inside[int(np.argmax(counts[start:end]))])
        here = slow & np.isin(evidence.value, inside)
        left = (int(values[start - 1]),) if start else ()
        right = (int(values[end]),) if end < values.size else ()
        found.append(
            Mixed(
                onset=(left[0], int(inside[0])) if left else None,
                recovery=(int(inside[-1]), right[0]) if right else None,
                value=best,
                controls=(*left, *right),
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
    testable = sum(stretch.testable for stretch in stretches)
    for stretch in stretches:
        at_value = fresh.where(fresh.value == stretch.value)
        beside = fresh.where(np.isin(fresh.value, stretch.controls))
        if not stretch.testable or not at_value.value.size or not beside.value.size:
            tests.append(None)
            continue
        tests.append(
            mixture_test(
                _excess(at_value, stretch.curve, place),
                _excess(beside, stretch.curve, place),
                stretch.delta,
                alpha=MIXTURE_ALPHA / testable,
            )
        )
    return tuple(tests)


def mixed_spikes(stretches: tuple[Mixed, ...], fresh: Evidence, place: Place) -> tuple[bool, ...]:
    """Return for each stretch whether every process is slow there, by the test of a spike.

    A stretch that is slow in every process seen is no mixture; what is slow always must pass the
    test for that, on the same fresh processes (method, section 5).

    Args:
        stretches: What the screen pointed at.
        fresh: Rows of the confirmation.
        place: The axis.
    """
    tests = mixed_tests(stretches, fresh, place)
    always = [
        stretch
        for stretch, test in zip(stretches, tests, strict=True)
        if test is not None and test.slow == test.trials
    ]
    if not always:
        return (False,) * len(stretches)
    tested = [_as_spike(stretch, place) for stretch in always]
    trials = FreshTrials(axes.curve_steps(fresh.value, place.axis), fresh.ranked, fresh.block)
    passed = {core.candidate for core in confirm(tested, trials, final=True).cores}
    values = {stretch.value for k, stretch in enumerate(always) if k in passed}
    return tuple(stretch.value in values for stretch in stretches)


def _as_spike(stretch: Mixed, place: Place) -> Candidate:
    """Return a stretch as the test of a spike takes it."""
    low, value, high = axes.curve_steps(
        [stretch.controls[0], stretch.value, stretch.controls[-1]], place.axis
    ).tolist()
    left, right = predict_log(stretch.curve, [low, high]).tolist()
    return Candidate(steps=(value,), flanks=(low, high), log_expected=(left, right))


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
