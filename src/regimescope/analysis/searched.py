"""The verdict on a search: what fresh trials confirmed, and how strongly. Layer: ``analysis``.

Source: method, sections 5 to 7, 9 and 11. The candidates of the screen are regimes only where the
fresh trials confirmed them; the screen itself decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from regimescope import axes
from regimescope.analysis.attribution import attribute, in_spike
from regimescope.analysis.evidence_grade import grade_of
from regimescope.analysis.noise import Disturbance, disturbances
from regimescope.analysis.phases import phases
from regimescope.analysis.position import slow_positions
from regimescope.analysis.reading import Levels, Reading, read
from regimescope.analysis.sweep import Selection, select
from regimescope.metrics import decoded_tokens
from regimescope.reasons import Reason
from regimescope.records import Run, Trial
from regimescope.results import (
    Conclusion,
    Counts,
    Estimate,
    Grade,
    Guarantee,
    Regime,
    Verdict,
)
from regimescope.search.confirming import Confirmation, Core
from regimescope.search.edges import Edge
from regimescope.search.evidence import standing
from regimescope.search.mixed import mixed_tests
from regimescope.search.phases import Findings, Search
from regimescope.search.stepping import STEP_ALPHA, step_test
from regimescope.spec import DEFAULT_HIGH, ScanSpec
from regimescope.stats.confirm import ACCEPTED, UNDECIDED, ConfirmationRule
from regimescope.stats.curve import log_standard_error, predict_log
from regimescope.stats.epidemic import R_MIN
from regimescope.stats.estimate import slowdown_interval, summarize_repeats

# Level of the intervals of an edge (method, section 6).
EDGE_ERROR = 0.05


def conclude_search(run: Run, spec: ScanSpec, vetoes: dict[int, int]) -> Conclusion:
    """Return the verdict on the trials of a search.

    Args:
        run: The run.
        spec: Its settings.
        vetoes: How often each block was vetoed.
    """
    selection = select(run)
    trials = standing(run.trials, vetoes)
    if not any(t.status in {"ok", "aborted"} and not t.warmup and not t.sentinel for t in trials):
        return _nothing_left(run, selection)
    found = Search(spec).findings(trials)
    levels = _levels(found)
    extended = "extend" in found.evidence.stage
    reading = read(levels, degree=found.place.degree, extended=extended)
    disturbed = _disturbed(selection, found)
    confirmed = (*_confirmed(found, levels), *_lasting(found, reading), *_bimodal(found))
    regimes = (*confirmed, *_unconfirmed(found, reading, confirmed))
    positions = _positions(found, selection, regimes)
    verdict, grade, why = _verdict(found, reading, regimes, disturbed, selection)
    return Conclusion(
        run=run.header.run,
        axis=run.header.axis,
        verdict=verdict,
        grade=grade,
        reasons=tuple(dict.fromkeys((*selection.reasons, *disturbed.reasons, *why))),
        regimes=tuple(
            attribute(regime, regimes, selection.trials, positions)
            for regime in sorted(regimes, key=lambda r: r.onset or (0, 0))
        ),
        certificate=reading.certificate,
        baseline=reading.baseline,
        counts=_counts(selection, trials),
        phases=phases(selection.trials, by_budget=run.header.axis == "budget"),
        noise=disturbed.noise,
        positions=positions,
        guarantee=_guarantee(spec, run.trials, found, selection),
    )


def _nothing_left(run: Run, selection: Selection) -> Conclusion:
    """Return the verdict when no trial says anything: the reason is the result."""
    return Conclusion(
        run=run.header.run,
        axis=run.header.axis,
        verdict=Verdict.INCONCLUSIVE,
        grade=Grade.C,
        reasons=tuple(dict.fromkeys(selection.reasons or (Reason.EMPTY,))),
        counts=_counts(selection, ()),
    )


def _positions(
    found: Findings, selection: Selection, regimes: Sequence[Regime]
) -> tuple[Regime, ...]:
    """Return slow intervals of context length, where the steps of generations show any."""
    if found.place.axis != "budget":
        return ()
    # A budget that is slow from its first step on would lift the positions that it reaches.
    outside = [t for t in selection.trials if not in_spike(t.cell.budget, regimes)]
    return slow_positions(outside, cached=found.place.degree == axes.degree("budget", "on"))


def _levels(found: Findings) -> Levels:
    """Return the level of each value over all phases; what was projected counts as measured."""
    rows = found.evidence
    seconds = np.exp(rows.log_s)
    values = np.unique(rows.value)
    steps = axes.curve_steps(rows.value, found.place.axis)
    return Levels(
        values=values,
        summary=summarize_repeats(steps, rows.log_s),
        range_s=np.array(
            [[seconds[rows.value == v].min(), seconds[rows.value == v].max()] for v in values]
        ),
        phase="prefill" if axes.LAWS[found.place.axis].prefill else "decode",
    )


def _disturbed(selection: Selection, found: Findings) -> Disturbance:
    """Return what disturbed the trials, blocks not taken out: a block is a process here."""
    trials = [t for t in selection.trials if axes.latency_s(t, found.place.axis)]
    values = np.array([axes.value(t.cell, found.place.axis) or 0 for t in trials])
    log_s = np.log([axes.latency_s(t, found.place.axis) or 1.0 for t in trials])
    level = {v: float(np.median(log_s[values == v])) for v in np.unique(values).tolist()}
    residual = log_s - np.array([level[v] for v in values.tolist()])
    kept = selection._replace(trials=tuple(trials))
    return disturbances(kept, residual, np.zeros(len(trials)))


def _confirmed(found: Findings, levels: Levels) -> tuple[Regime, ...]:
    """Return the regimes that passed, each with both edges."""
    if found.confirmation is None:
        return ()
    spikes = [edge for edge in found.edges if edge.core.recovery is not None]
    pairs = zip(spikes[::2], spikes[1::2], strict=True)
    return tuple(
        _regime(core, onset, recovery, found, found.confirmation, levels)
        for core, (onset, recovery) in zip(found.confirmation.cores, pairs, strict=True)
    )


def _lasting(found: Findings, reading: Reading) -> tuple[Regime, ...]:
    """Return a slowdown that stays, where fresh trials on both sides of its onset prove it."""
    edges = [edge for edge in found.edges if edge.core.recovery is None]
    steps = [regime for regime in reading.regimes if regime.verdict is Verdict.STEP]
    if not edges or not steps:
        return ()
    before, first = edges[0].sides
    test = step_test(found.evidence.of("final"), before, first, found.place)
    if test is None or test.p_value > STEP_ALPHA:
        return ()
    reasons = (*steps[-1].reasons, *(Reason(code) for code in edges[0].boundary.codes))
    return (
        replace(
            steps[-1],
            grade=Grade.B,
            onset=_pair(edges[0]),
            reasons=tuple(dict.fromkeys(reasons)),
        ),
    )


def _bimodal(found: Findings) -> tuple[Regime, ...]:
    """Return the stretches in which more processes are slow than beside them."""
    fresh = found.evidence.of("confirm")
    tests = mixed_tests(found.mixed, fresh, found.place)
    return tuple(
        Regime(
            verdict=Verdict.BIMODAL,
            grade=Grade.B,
            onset=stretch.onset,
            recovery=stretch.recovery,
            slowdown=Estimate(value=math.exp(stretch.delta)),
            share=_estimate(test.share, test.trials),
        )
        for stretch, test in zip(found.mixed, tests, strict=True)
        if test is not None and test.accepted
    )


def _regime(
    core: Core,
    onset: Edge,
    recovery: Edge,
    found: Findings,
    confirmation: Confirmation,
    levels: Levels,
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
    median = dict(zip(levels.values.tolist(), levels.summary.median.tolist(), strict=True))
    before, first = onset.sides
    reference = median.get(before, median.get(core.onset[0]))
    slow = median.get(first, median[core.values[0]])
    return Regime(
        verdict=Verdict.SPIKE,
        grade=grade,
        onset=_pair(onset),
        recovery=_pair(recovery),
        slowdown=_estimate(estimate.slowdown, trials),
        peak=_estimate(estimate.peak, trials),
        ratio_to_reference=None if reference is None else math.exp(slow - reference),
        lost_s=_lost_s(onset, recovery, levels, confirmation, found),
        reasons=reasons,
    )


def _estimate(found: tuple[float, float, float], n: int) -> Estimate:
    """Return an interval with its sample size."""
    value, low, high = found
    return Estimate(value=value, low=low, high=high, n=n)


def _pair(edge: Edge) -> tuple[int, int]:
    """Return the interval of an edge as (last value before it at worst, first after it]."""
    low, high = edge.boundary.interval
    return int(low), int(high)


def _lost_s(
    onset: Edge, recovery: Edge, levels: Levels, confirmation: Confirmation, found: Findings
) -> float:
    """Return the seconds above the expectation, over one trial at every measured slow value."""
    inside = (levels.values >= onset.sides[1]) & (levels.values < recovery.sides[1])
    steps = axes.curve_steps(levels.values[inside], found.place.axis)
    expected_s = np.exp(predict_log(confirmation.curve, steps))
    return float((np.exp(levels.summary.median[inside]) - expected_s).sum())


def _unconfirmed(
    found: Findings, reading: Reading, confirmed: Sequence[Regime]
) -> tuple[Regime, ...]:
    """Return slow intervals of the final reading that no test has settled either way.

    A spike that the screen did not see is an accident of single trials that came later, such as
    those of the search for an edge.
    """
    # What became of a screened interval that was confirmed is told by its regime alone.
    screened = [s for s in _screened(found) if not any(_overlap(s, other) for other in confirmed)]
    return tuple(
        replace(regime, grade=Grade.C)
        for regime in reading.regimes
        if not any(_overlap(regime, other) for other in confirmed)
        and not _refuted(regime, found)
        and (regime.verdict is not Verdict.SPIKE or any(_overlap(regime, s) for s in screened))
    )


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
    """Return whether two intervals share a value; an open end reaches as far as can be."""

    def ends(regime: Regime) -> tuple[float, float]:
        low = -math.inf if regime.onset is None else regime.onset[1]
        high = math.inf if regime.recovery is None else regime.recovery[1]
        return low, high

    (a, b), (c, d) = ends(first), ends(second)
    return a < d and c < b


def _refuted(regime: Regime, found: Findings) -> bool:
    """Return whether an interior interval was tested on fresh trials and nothing of it passed."""
    state = None if found.confirmation is None else found.confirmation.state
    if state is None or regime.verdict is not Verdict.SPIKE or regime.onset is None:
        return False
    low = regime.onset[1]
    high = math.inf if regime.recovery is None else regime.recovery[1]
    steps = [budget.step for budget in state.budgets]
    values = axes.values_at(steps, found.place.axis).tolist()
    states = {
        budget.state
        for budget, value in zip(state.budgets, values, strict=True)
        if low <= value < high
    }
    return bool(states) and not states & {ACCEPTED, UNDECIDED}


def _verdict(
    found: Findings,
    reading: Reading,
    regimes: Sequence[Regime],
    disturbed: Disturbance,
    selection: Selection,
) -> tuple[Verdict, Grade, tuple[Reason, ...]]:
    """Return class, grade and further reasons of the sweep (method, section 9)."""
    confirmed = [r for r in regimes if r.grade is not Grade.C]
    if confirmed:
        # The weakest link: a sweep is as certain as the least certain regime it names.
        grade = max((r.grade for r in confirmed), key=lambda g: g.value)
        shapes = {r.verdict for r in confirmed}
        order = (Verdict.SPIKE, Verdict.STEP, Verdict.BIMODAL)
        return next(shape for shape in order if shape in shapes), grade, ()
    reasons = reading.reasons
    if found.confirmation is not None:
        reasons += tuple(Reason(code) for code in found.confirmation.state.codes)
    if Reason.REFERENCE_MISMATCH in reasons or Reason.DRIFT_VETO in selection.reasons:
        return Verdict.INCONCLUSIVE, Grade.C, reasons
    open_shapes = {regime.verdict for regime in regimes}
    if Verdict.SPIKE in open_shapes and reading.verdict is Verdict.SPIKE:
        return Verdict.SPIKE, Grade.C, reasons
    if disturbed.bimodal:
        return Verdict.BIMODAL, Grade.C, (Reason.BETWEEN_PROCESS_SPREAD, *reasons)
    if disturbed.drifts:
        return Verdict.DRIFT, Grade.C, reasons
    if reading.verdict is Verdict.SPIKE and not regimes:
        return Verdict.CLEAN, Grade.C, reasons  # all that looked slow was refuted on fresh trials
    return reading.verdict, Grade.C, reasons


def _counts(selection: Selection, trials: Sequence[Trial]) -> Counts:
    """Return the trials by fate; those ended early as slow are measured, not failed."""
    early = sum(t.status == "aborted" for t in trials)
    failed, dropped = len(selection.failed), len(selection.dropped)
    return Counts(
        trials=len(selection.trials) + early + failed + dropped, failed=failed, dropped=dropped
    )


def _guarantee(
    spec: ScanSpec, trials: Sequence[Trial], found: Findings, selection: Selection
) -> Guarantee:
    """Return what the search promises, and why it does not where it does not."""
    high = spec.high or DEFAULT_HIGH
    stopped = {Reason.LIMIT_REACHED, Reason.DRIFT_VETO}
    withdrawn: list[Reason] = [r for r in selection.reasons if r in stopped]
    values = found.screen.value
    inside = values[(values >= spec.low) & (values <= high)]
    if inside.size < 2 or np.diff(inside).max() > spec.min_width or inside[-1] < high:
        withdrawn.append(Reason.GAP_TOO_WIDE)
    return Guarantee(
        low=spec.low,
        high=high,
        width=spec.min_width,
        slowdown=R_MIN,
        prevalence=spec.prevalence,
        false_regimes=ConfirmationRule().alpha,
        edge_error=EDGE_ERROR,
        tokens=sum(decoded_tokens(trial) for trial in trials),
        withdrawn=tuple(withdrawn),
    )
