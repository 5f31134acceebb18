"""Slow intervals of a search: confirmed, or settled by nothing. Layer: ``analysis``.

Source: method, sections 5 to 7 and 9. Printed figures rest on trials that were measured to their
end; what was projected only tells slow from normal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from regimescope import axes
from regimescope.analysis.evidence_grade import grade_of
from regimescope.analysis.reading import Levels, Reading
from regimescope.reasons import Reason
from regimescope.results import Estimate, Grade, Regime, Verdict
from regimescope.search.confirming import Confirmation, Core
from regimescope.search.edges import Edge
from regimescope.search.mixed import Mixed, mixed_spikes, mixed_tests
from regimescope.search.phases import Findings
from regimescope.search.stepping import STEP_ALPHA, step_test
from regimescope.stats.confirm import ACCEPTED, UNDECIDED
from regimescope.stats.curve import log_standard_error, predict_log
from regimescope.stats.estimate import slowdown_interval
from regimescope.stats.fresh import MISMATCH


def confirmed_regimes(
    found: Findings, reading: Reading, measured: Levels | None
) -> tuple[Regime, ...]:
    """Return what fresh trials confirmed: spikes, a slowdown that stays, mixtures of processes.

    Args:
        found: What the search found.
        reading: The shape of all trials.
        measured: Levels of the trials that were measured to their end; absent without any.
    """
    return (*_spikes(found, measured), *_lasting(found, reading), *_bimodal(found))


def _spikes(found: Findings, measured: Levels | None) -> tuple[Regime, ...]:
    """Return the regimes that passed, each with both edges."""
    if found.confirmation is None:
        return ()
    spikes = [edge for edge in found.edges if edge.core.recovery is not None]
    pairs = zip(spikes[::2], spikes[1::2], strict=True)
    return tuple(
        _regime(core, onset, recovery, found, found.confirmation, measured)
        for core, (onset, recovery) in zip(found.confirmation.cores, pairs, strict=True)
    )


def _lasting(found: Findings, reading: Reading) -> tuple[Regime, ...]:
    """Return a slowdown that stays, where fresh trials on both sides of its onset prove it."""
    edges = [edge for edge in found.edges if edge.core.recovery is None]
    steps = [regime for regime in reading.regimes if regime.verdict is Verdict.STEP]
    if not edges or not steps:
        return ()
    before, first = edges[0].sides
    # Of several steps the edge belongs to the one whose onset is closest to it.
    step = min(steps, key=lambda r: abs((r.onset or (0, 0))[1] - first))
    test = step_test(found.evidence.of("final"), before, first, found.place)
    if test is None or test.p_value > STEP_ALPHA:
        return ()
    reasons = (*step.reasons, *(Reason(code) for code in edges[0].boundary.codes))
    return (
        replace(
            step,
            grade=Grade.B,
            onset=_pair(edges[0]),
            reasons=tuple(dict.fromkeys(reasons)),
        ),
    )


def _bimodal(found: Findings) -> tuple[Regime, ...]:
    """Return the stretches in which more processes are slow than beside them."""
    fresh = found.evidence.of("confirm")
    tests = mixed_tests(found.mixed, fresh, found.place)
    always = mixed_spikes(found.mixed, fresh, found.place)
    return tuple(
        Regime(
            verdict=Verdict.SPIKE if is_always else Verdict.BIMODAL,
            # The edges are those of the grid: nothing has checked them at full length.
            grade=Grade.B if stretch.testable else Grade.C,
            onset=stretch.onset,
            recovery=stretch.recovery,
            slowdown=Estimate(value=math.exp(stretch.delta)),
            share=None if is_always or test is None else _estimate(test.share, test.trials),
            reasons=_censored(stretch),
        )
        for stretch, test, is_always in zip(found.mixed, tests, always, strict=True)
        if is_always or not stretch.testable or (test is not None and test.accepted)
    )


def _censored(stretch: Mixed) -> tuple[Reason, ...]:
    """Return which edges of a stretch lie beyond the range, so that nothing could be tested."""
    left = () if stretch.onset is not None else (Reason.LEFT_CENSORED,)
    right = () if stretch.recovery is not None else (Reason.RIGHT_CENSORED,)
    return (*left, *right)


def _regime(
    core: Core,
    onset: Edge,
    recovery: Edge,
    found: Findings,
    confirmation: Confirmation,
    measured: Levels | None,
) -> Regime:
    """Return one confirmed regime with its estimates and its grade."""
    steps = axes.curve_steps(core.values, found.place.axis)
    sigma = confirmation.refit.sigma
    estimate = slowdown_interval(
        core.log_slowdown,
        np.nan_to_num(log_standard_error(confirmation.curve, steps)),
        sigma=0.0 if math.isnan(sigma) else sigma,
        controls=core.controls,
    )
    trials = int(np.isin(found.evidence.of("confirm").value, core.values).sum())
    grade, reasons = grade_of(core, onset, recovery, found)
    return Regime(
        verdict=Verdict.SPIKE,
        grade=grade,
        onset=_pair(onset),
        recovery=_pair(recovery),
        slowdown=_bounded(_estimate(estimate.slowdown, trials), core),
        peak=_bounded(_estimate(estimate.peak, trials), core),
        ratio_to_reference=_ratio_to_reference(core, onset, measured),
        lost_s=_lost_s(onset, recovery, measured, confirmation, found),
        reasons=reasons,
    )


def _estimate(found: tuple[float, float, float], n: int) -> Estimate:
    """Return an interval with its sample size."""
    value, low, high = found
    return Estimate(value=value, low=low, high=high, n=n)


def _bounded(slowdown: Estimate, core: Core) -> Estimate:
    """Return a slowdown without upper end where trials ran out of time before theirs was seen."""
    return replace(slowdown, high=None) if core.bounded_below else slowdown


def _pair(edge: Edge) -> tuple[int, int]:
    """Return the interval of an edge as (last value before it at worst, first after it]."""
    low, high = edge.boundary.interval
    return int(low), int(high)


def _ratio_to_reference(core: Core, onset: Edge, measured: Levels | None) -> float | None:
    """Return the ratio across the onset, or across the core where nothing is closer."""
    if measured is None:
        return None
    median = _by_value(measured)
    before, first = onset.sides
    reference = median.get(before, median.get(core.onset[0]))
    slow = median.get(first, median.get(core.values[0]))
    return None if reference is None or slow is None else math.exp(slow - reference)


def _lost_s(
    onset: Edge,
    recovery: Edge,
    measured: Levels | None,
    confirmation: Confirmation,
    found: Findings,
) -> float | None:
    """Return the seconds above the expectation, over one trial at every measured slow value."""
    if measured is None:
        return None
    inside = (measured.values >= onset.sides[1]) & (measured.values < recovery.sides[1])
    if not inside.any():
        return None
    steps = axes.curve_steps(measured.values[inside], found.place.axis)
    expected_s = np.exp(predict_log(confirmation.curve, steps))
    return float((np.exp(measured.summary.median[inside]) - expected_s).sum())


def unconfirmed_regimes(
    found: Findings, reading: Reading, measured: Levels | None, confirmed: Sequence[Regime]
) -> tuple[Regime, ...]:
    """Return slow intervals of the final reading that no test has settled either way.

    A spike that the screen did not see is an accident of single trials that came later, such as
    those of the search for an edge.
    """
    # What became of a screened interval that was confirmed is told by its regime alone.
    screened = [s for s in _screened(found) if not any(_overlap(s, other) for other in confirmed)]
    vetoed = _vetoed(found)
    return tuple(
        replace(
            _as_measured(regime, reading, measured),
            grade=Grade.C,
            reasons=_with_mismatch(regime, vetoed),
        )
        for regime in reading.regimes
        if not any(_overlap(regime, other) for other in confirmed)
        and not is_refuted(regime, found)
        and (regime.verdict is not Verdict.SPIKE or any(_overlap(regime, s) for s in screened))
    )


def _as_measured(regime: Regime, reading: Reading, measured: Levels | None) -> Regime:
    """Return an interval of the reading with its seconds from trials measured to their end."""
    levels = {} if measured is None else _by_value(measured)
    before, first = regime.onset or (0, 0)
    known = before in levels and first in levels
    low, high = _ends(regime)
    lost = [
        math.exp(levels[point.x]) - point.expected_s
        for point in reading.baseline.points
        if point.x in levels and low <= point.x < high and point.expected_s is not None
    ]
    return replace(
        regime,
        ratio_to_reference=math.exp(levels[first] - levels[before]) if known else None,
        lost_s=sum(lost) if lost else None,
    )


def _by_value(measured: Levels) -> dict[int, float]:
    """Return the log level of each value."""
    return dict(zip(measured.values.tolist(), measured.summary.median.tolist(), strict=True))


def _vetoed(found: Findings) -> tuple[Regime, ...]:
    """Return the stretches whose controls disagreed, so that nothing of them was confirmed."""
    if found.confirmation is None:
        return ()
    pairs = zip(found.confirmation.candidates, found.confirmation.state.flanks, strict=True)
    return tuple(
        Regime(
            verdict=Verdict.SPIKE,
            grade=Grade.C,
            onset=(candidate.left or 0, candidate.values[0]),
            recovery=(candidate.values[-1], candidate.right or candidate.values[-1] + 1),
        )
        for candidate, flanks in pairs
        if flanks.state == MISMATCH
    )


def _with_mismatch(regime: Regime, vetoed: Sequence[Regime]) -> tuple[Reason, ...]:
    """Return the reasons of an interval, the disagreement of its own controls among them."""
    own = (Reason.REFERENCE_MISMATCH,) if any(_overlap(regime, v) for v in vetoed) else ()
    return tuple(dict.fromkeys((*regime.reasons, *own)))


def _screened(found: Findings) -> tuple[Regime, ...]:
    """Return the slow intervals of the screen as intervals of values."""
    value = found.screen.value
    return tuple(
        Regime(
            verdict=Verdict.SPIKE,
            grade=Grade.C,
            onset=(int(value[max(p.start - 1, 0)]), int(value[p.start])),
            recovery=(int(value[p.end - 1]), int(value[min(p.end, value.size - 1)])),
        )
        for p in found.screen.result.intervals
    )


def _overlap(first: Regime, second: Regime) -> bool:
    """Return whether two intervals share a value."""
    (a, b), (c, d) = _ends(first), _ends(second)
    return a < d and c < b


def _ends(regime: Regime) -> tuple[float, float]:
    """Return the values of an interval as [low, high); an open end reaches as far as can be."""
    low = -math.inf if regime.onset is None else regime.onset[1]
    high = math.inf if regime.recovery is None else regime.recovery[1]
    return low, high


def is_refuted(regime: Regime, found: Findings) -> bool:
    """Return whether an interior interval was tested on fresh trials and nothing of it passed."""
    state = None if found.confirmation is None else found.confirmation.state
    if state is None or regime.verdict is not Verdict.SPIKE or regime.onset is None:
        return False
    low, high = _ends(regime)
    steps = [budget.step for budget in state.budgets]
    values = axes.values_at(steps, found.place.axis).tolist()
    states = {
        budget.state
        for budget, value in zip(state.budgets, values, strict=True)
        if low <= value < high
    }
    return bool(states) and not states & {ACCEPTED, UNDECIDED}
