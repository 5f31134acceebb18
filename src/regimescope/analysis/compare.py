"""Two runs against each other: regimes that appeared, vanished, moved, grew. Layer: ``analysis``.

The speed of the baseline is compared apart from the regimes, since a faster machine with the same
regime and a machine without it are different news. What one run did not measure is no absence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from regimescope.analysis.baseline_change import BaselineChange, baseline_change
from regimescope.analysis.unlike import differences, refuse_unlike
from regimescope.records import Run
from regimescope.results import Conclusion, Estimate, Grade, Point, Regime, Result, Verdict
from regimescope.units import count, ratio

Change = Literal["same", "moved", "grew", "shrank", "appeared", "vanished", "cannot tell"]
CompareVerdict = Literal["same", "changed", "cannot tell"]

# Classes that are intervals of the axis; a ramp or a saw-tooth has no place to compare.
INTERVALS = (Verdict.SPIKE, Verdict.STEP)
# Slowdowns that differ by less are the same for anybody who reads a chart.
LEAST_GROWTH = 1.05


class RegimeChange(Result, frozen=True, kw_only=True):
    """What became of one slow interval.

    Attributes:
        changes: What happened to it; several where it both moved and grew.
        before: The interval in the first run; absent where there is none.
        after: The interval in the second run; absent where there is none.
        growth: Slowdown after over slowdown before; absent where one of them is unknown.
        grade: The weaker of the grades behind it.
        why: What the other run shows there, or why nothing can be told.
    """

    changes: tuple[Change, ...]
    grade: Grade
    before: Regime | None = None
    after: Regime | None = None
    growth: Estimate | None = None
    why: str = ""


class Comparison(Result, frozen=True, kw_only=True):
    """One run against a reference.

    Attributes:
        before: Name of the reference.
        after: Name of the other run.
        axis: The swept axis of both.
        verdict: Whether the regimes are the same.
        regimes: What became of each slow interval, ascending.
        baseline: How the normal speed changed.
        differences: What differs between the runs and may explain a change, as pairs.
    """

    before: str
    after: str
    axis: str
    verdict: CompareVerdict
    baseline: BaselineChange
    regimes: tuple[RegimeChange, ...] = ()
    differences: dict[str, tuple[str, str]] = msgspec.field(default_factory=dict)


class Judged(NamedTuple):
    """A run and the verdict on it."""

    run: Run
    conclusion: Conclusion


def compare(before: Judged, after: Judged) -> Comparison:
    """Compare a run with a reference.

    Args:
        before: The reference.
        after: The run that is compared with it.

    Raises:
        InputError: They sweep different axes, or fixed settings that decide the latency differ.
    """
    refuse_unlike(before.run, after.run)
    regimes = regime_changes(before.conclusion, after.conclusion)
    return Comparison(
        before=before.conclusion.run,
        after=after.conclusion.run,
        axis=before.conclusion.axis,
        verdict=_verdict(regimes, (before.conclusion, after.conclusion)),
        regimes=regimes,
        baseline=baseline_change(before.run, before.conclusion, after.run, after.conclusion),
        differences=differences(before.run, after.run),
    )


def regime_changes(before: Conclusion, after: Conclusion) -> tuple[RegimeChange, ...]:
    """Return what became of every slow interval of two conclusions on the same axis."""
    old, new = ([r for r in c.regimes if r.verdict in INTERVALS] for c in (before, after))
    pairs = _matched(old, new)
    changes = [_of_pair(old[i], new[j]) for i, j in pairs]
    changes += [
        _of_one(regime, before, after, "vanished")
        for i, regime in enumerate(old)
        if i not in {i for i, _ in pairs}
    ]
    changes += [
        _of_one(regime, after, before, "appeared")
        for j, regime in enumerate(new)
        if j not in {j for _, j in pairs}
    ]
    return tuple(sorted(changes, key=_place))


def core(regime: Regime) -> tuple[float, float]:
    """Return the first and the last value that are slow for sure; infinite where no end is seen."""
    low = -math.inf if regime.onset is None else regime.onset[1]
    high = math.inf if regime.recovery is None else regime.recovery[0]
    return low, high


def reach(regime: Regime) -> tuple[float, float]:
    """Return the last normal value before and the first after; infinite where no end is seen."""
    low = -math.inf if regime.onset is None else regime.onset[0]
    high = math.inf if regime.recovery is None else regime.recovery[1]
    return low, high


def _matched(old: Sequence[Regime], new: Sequence[Regime]) -> list[tuple[int, int]]:
    """Pair intervals that share values, those first that share most of their own width."""
    shares = sorted(
        (
            (-_shared(a, b), i, j)
            for i, a in enumerate(old)
            for j, b in enumerate(new)
            if _shared(a, b) > 0
        ),
    )
    pairs: list[tuple[int, int]] = []
    for _, i, j in shares:
        if all(i != a and j != b for a, b in pairs):
            pairs.append((i, j))
    return pairs


def _shared(a: Regime, b: Regime) -> float:
    """Return the overlap of two intervals over their union, edges taken at their widest."""
    (a_low, a_high), (b_low, b_high) = reach(a), reach(b)
    both = min(a_high, b_high) - max(a_low, b_low)
    either = max(a_high, b_high) - min(a_low, b_low)
    if both <= 0:
        return 0.0
    return 1.0 if math.isinf(either) else both / either


def _of_pair(before: Regime, after: Regime) -> RegimeChange:
    """Return how an interval that both runs have changed."""
    growth = _growth(before.slowdown, after.slowdown)
    changes: list[Change] = []
    if _apart(before.onset, after.onset) or _apart(before.recovery, after.recovery):
        changes.append("moved")
    if growth is not None and growth.low is not None and growth.high is not None:
        if growth.low > 1 and growth.value > LEAST_GROWTH:
            changes.append("grew")
        if growth.high < 1 and growth.value < 1 / LEAST_GROWTH:
            changes.append("shrank")
    return RegimeChange(
        changes=tuple(changes) or ("same",),
        grade=_weaker(before.grade, after.grade),
        before=before,
        after=after,
        growth=growth,
    )


def _of_one(
    regime: Regime, own: Conclusion, other: Conclusion, change: Literal["vanished", "appeared"]
) -> RegimeChange:
    """Return what it means that only one run has an interval, which depends on what both saw."""
    seen, why = _normal_there(regime, other)
    found = RegimeChange(changes=(change if seen else "cannot tell",), grade=regime.grade, why=why)
    if own.verdict in (Verdict.INCONCLUSIVE, Verdict.DRIFT):
        # What a run without a verdict calls slow is a hint at most.
        found = replace(found, changes=("cannot tell",), why=f"{own.run} has no verdict")
    return replace(found, **{"before" if change == "vanished" else "after": regime})


def _normal_there(regime: Regime, other: Conclusion) -> tuple[bool, str]:
    """Return whether another run measured an interval and found it normal, and what it saw."""
    if other.verdict in (Verdict.INCONCLUSIVE, Verdict.DRIFT):
        return False, f"{other.run} has no verdict ({other.verdict.value})"
    low, high = core(regime)
    points = [p for p in _points(other) if low <= p.x <= high]
    if not points:
        return False, f"{other.run} measured nothing between the edges"
    much = math.sqrt(regime.slowdown.value) if regime.slowdown else LEAST_GROWTH
    judged = [p for p in points if p.slowdown is not None]
    if not judged:
        return False, f"{other.run} has no expectation there"
    slow = [p for p in judged if p.slowdown is not None and p.slowdown > much]
    if slow:
        return False, f"{other.run} is slow there too at {slow[0].x}, but shows no interval"
    values = count(len(judged), "value")
    worst = max(p.slowdown or 0.0 for p in judged)
    return True, f"{other.run} is normal there: {values}, at most {ratio(worst)}"


def _points(conclusion: Conclusion) -> tuple[Point, ...]:
    """Return the measured points, none where there is no curve."""
    return conclusion.baseline.points if conclusion.baseline else ()


def _growth(before: Estimate | None, after: Estimate | None) -> Estimate | None:
    """Return the ratio of two slowdowns with its interval.

    Both intervals are taken as independent and symmetric in logarithms, wider side first.
    """
    if before is None or after is None:
        return None
    value = math.log(after.value / before.value)
    halves = [_half(before), _half(after)]
    if None in halves:
        return Estimate(value=math.exp(value))
    half = math.hypot(*(h for h in halves if h is not None))
    return Estimate(value=math.exp(value), low=math.exp(value - half), high=math.exp(value + half))


def _half(estimate: Estimate) -> float | None:
    """Return the larger half of an interval in logarithms."""
    if estimate.low is None or estimate.high is None or estimate.low <= 0:
        return None
    return max(math.log(estimate.value / estimate.low), math.log(estimate.high / estimate.value))


def _apart(a: tuple[int, int] | None, b: tuple[int, int] | None) -> bool:
    """Return whether an edge cannot be at the same place: ``(a, b]`` intervals are disjoint."""
    return a is not None and b is not None and (a[1] <= b[0] or b[1] <= a[0])


def _weaker(a: Grade, b: Grade) -> Grade:
    """Return the weaker of two grades; A is the strongest."""
    return max(a, b, key=lambda grade: grade.value)


def _place(change: RegimeChange) -> tuple[float, float]:
    """Return where a change stands on the axis."""
    regime = change.after or change.before
    return core(regime) if regime is not None else (0.0, 0.0)


def _verdict(regimes: Sequence[RegimeChange], conclusions: Sequence[Conclusion]) -> CompareVerdict:
    """Return whether the regimes of two runs are the same; a candidate alone changes nothing."""
    undecided = any(c.verdict in (Verdict.INCONCLUSIVE, Verdict.DRIFT) for c in conclusions)
    for regime in regimes:
        if set(regime.changes) - {"same", "cannot tell"}:
            if regime.grade is not Grade.C:
                return "changed"
            undecided = True
        undecided = undecided or "cannot tell" in regime.changes
    return "cannot tell" if undecided else "same"
