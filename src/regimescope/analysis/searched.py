"""The verdict on a search: what fresh trials confirmed, and how strongly. Layer: ``analysis``.

Source: method, sections 5 to 7, 9 and 11. The candidates of the screen are regimes only where the
fresh trials confirmed them; the screen itself decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regimescope import axes
from regimescope.analysis.attribution import attribute, in_spike
from regimescope.analysis.completeness import planned
from regimescope.analysis.memory import memory_readings
from regimescope.analysis.noise import Disturbance, disturbances, occasion_effects
from regimescope.analysis.phases import phases
from regimescope.analysis.position import slow_positions
from regimescope.analysis.promised import UNSEEN, promised
from regimescope.analysis.reading import Levels, Reading, certificate_of, read, shown_baseline
from regimescope.analysis.regimes_found import confirmed_regimes, is_refuted, unconfirmed_regimes
from regimescope.analysis.sweep import Selection, nothing_left, select
from regimescope.reasons import Reason
from regimescope.records import Run, Trial
from regimescope.results import Conclusion, Counts, Grade, Regime, Verdict
from regimescope.search.evidence import Evidence, standing
from regimescope.search.phases import Findings, Search
from regimescope.search.screening import Place
from regimescope.spec import Axis, ScanSpec
from regimescope.stats.estimate import summarize_repeats
from regimescope.stopping import vetoes

# Two values have a ratio; a single one has nothing to be compared with.
LEAST_VALUES = 2


def conclude_search(run: Run, spec: ScanSpec) -> Conclusion:
    """Return the verdict on the trials of a search.

    Args:
        run: The run.
        spec: Its settings.
    """
    selection = select(run)
    trials = standing(run.trials, vetoes(run))
    counts = _counts(selection, trials)
    if not _speaks(trials, run):
        return nothing_left(run, selection, counts)
    found = Search(spec).findings(planned(run), trials)
    levels = _levels(found.evidence, found.place)
    exact = found.evidence.where(found.evidence.exact)
    measured = _levels(exact, found.place) if exact.value.size else None
    reading = read(levels, degree=found.place.degree, extended=found.screen.extended)
    disturbed = _disturbed(selection, found)
    confirmed = confirmed_regimes(found, reading, measured)
    regimes = (*confirmed, *unconfirmed_regimes(found, reading, measured, confirmed))
    positions = _positions(found, selection, regimes)
    guarantee = promised(spec, run.trials, found, selection)
    limits = (*guarantee.withdrawn, *selection.reasons)
    verdict, grade, why = _verdict(found, reading, regimes, disturbed, limits)
    alone = (Reason.SINGLE_PROCESS,) if guarantee.processes == 1 else ()
    return Conclusion(
        run=run.header.run,
        axis=run.header.axis,
        origin="search",
        verdict=verdict,
        grade=grade,
        reasons=tuple(dict.fromkeys((*limits, *disturbed.reasons, *why, *alone))),
        regimes=tuple(
            attribute(regime, regimes, selection.trials, positions)
            for regime in sorted(regimes, key=lambda r: r.onset or (0, 0))
        ),
        certificate=None if measured is None else certificate_of(measured),
        baseline=shown_baseline(reading),
        counts=counts,
        phases=phases(selection.trials, by_budget=run.header.axis == "budget"),
        noise=disturbed.noise,
        positions=positions,
        memory=memory_readings(selection.trials, regimes, run.header.axis),
        guarantee=guarantee,
    )


def _speaks(trials: Sequence[Trial], run: Run) -> bool:
    """Return whether trials say anything of at least two values, so that there is a curve."""
    axis = run.header.axis
    values = {
        axes.value(trial.cell, axis)
        for trial in trials
        if not trial.warmup and not trial.sentinel and _has_latency(trial, axis)
    }
    return len(values - {None}) >= LEAST_VALUES


def _has_latency(trial: Trial, axis: Axis) -> bool:
    """Return whether a trial was measured to its end, or far enough to tell where it led."""
    if trial.status == "aborted":
        return trial.projected_s is not None
    counted = trial.output_tokens is None or trial.output_tokens == trial.cell.budget
    return trial.status == "ok" and counted and axes.latency_s(trial, axis) is not None


def _positions(
    found: Findings, selection: Selection, regimes: Sequence[Regime]
) -> tuple[Regime, ...]:
    """Return slow intervals of context length, where the steps of generations show any."""
    if found.place.axis != "budget":
        return ()
    # A budget that is slow from its first step on would lift the positions that it reaches.
    outside = [t for t in selection.trials if not in_spike(t.cell.budget, regimes)]
    return slow_positions(outside, cached=found.place.degree == axes.degree("budget", "on"))


def _levels(rows: Evidence, place: Place) -> Levels:
    """Return the level of each value over all phases.

    Args:
        rows: The trials. Those that were ended early stand for what they would have come to, which
            tells slow from normal; no figure that is printed as measured may rest on them.
        place: The axis.
    """
    seconds = np.exp(rows.log_s)
    values = np.unique(rows.value)
    return Levels(
        values=values,
        summary=summarize_repeats(axes.curve_steps(rows.value, place.axis), rows.log_s),
        range_s=np.array(
            [[seconds[rows.value == v].min(), seconds[rows.value == v].max()] for v in values]
        ),
        phase="prefill" if axes.LAWS[place.axis].prefill else "decode",
    )


def _disturbed(selection: Selection, found: Findings) -> Disturbance:
    """Return what disturbed the trials, blocks not taken out: a block is a process here."""
    axis = found.place.axis
    trials = [t for t in selection.trials if axes.latency_s(t, axis)]
    values = np.array([axes.value(t.cell, axis) or 0 for t in trials], dtype=np.int64)
    log_s = np.log([axes.latency_s(t, axis) or 1.0 for t in trials])
    occasion = occasion_effects(trials, values, log_s)
    own = log_s - occasion
    level = {v: float(np.median(own[values == v])) for v in np.unique(values).tolist()}
    residual = log_s - np.array([level[v] for v in values.tolist()])
    return disturbances(selection._replace(trials=tuple(trials)), residual, occasion)


def _verdict(
    found: Findings,
    reading: Reading,
    regimes: Sequence[Regime],
    disturbed: Disturbance,
    limits: Sequence[Reason],
) -> tuple[Verdict, Grade, tuple[Reason, ...]]:
    """Return class, grade and further reasons of the sweep (method, section 9)."""
    codes = (
        tuple(Reason(code) for code in found.confirmation.state.codes)
        if (found.confirmation is not None)
        else ()
    )
    confirmed = [r for r in regimes if r.grade is not Grade.C]
    if confirmed:
        # The weakest link: a sweep is as certain as the least certain regime it names.
        grade = max((r.grade for r in confirmed), key=lambda g: g.value)
        shapes = {r.verdict for r in confirmed}
        order = (Verdict.SPIKE, Verdict.STEP, Verdict.BIMODAL)
        told = {reason for r in regimes if r.grade is Grade.C for reason in r.reasons}
        return (
            next(shape for shape in order if shape in shapes),
            grade,
            # What failed elsewhere is told where it failed, if it is still there to be told of.
            tuple(c for c in codes if c is not Reason.REFERENCE_MISMATCH or c not in told),
        )
    reasons = (*codes, *reading.reasons)
    if Reason.REFERENCE_MISMATCH in reasons or Reason.DRIFT_VETO in limits:
        return Verdict.INCONCLUSIVE, Grade.C, reasons
    verdict, why = _without_confirmation(found, reading, regimes, disturbed)
    if verdict is Verdict.CLEAN and UNSEEN & set(limits):
        verdict = Verdict.INCONCLUSIVE
    return verdict, Grade.C, (*why, *reasons)


def _without_confirmation(
    found: Findings, reading: Reading, regimes: Sequence[Regime], disturbed: Disturbance
) -> tuple[Verdict, tuple[Reason, ...]]:
    """Return the class where no fresh trials confirm one, and what it adds to the reasons."""
    open_shapes = {regime.verdict for regime in regimes}
    if Verdict.SPIKE in open_shapes and reading.verdict is Verdict.SPIKE:
        return Verdict.SPIKE, ()
    if disturbed.bimodal or Verdict.BIMODAL in open_shapes:
        return Verdict.BIMODAL, (Reason.BETWEEN_PROCESS_SPREAD,)
    if disturbed.drifts:
        return Verdict.DRIFT, ()
    if reading.verdict is not Verdict.SPIKE or regimes:
        return reading.verdict, ()
    if all(is_refuted(r, found) for r in reading.regimes if r.verdict is Verdict.SPIKE):
        return Verdict.CLEAN, ()
    # The screen saw a curve, all trials together see a spike, and nobody has tested it.
    return Verdict.INCONCLUSIVE, (Reason.AMBIGUOUS_SHAPE,)


def _counts(selection: Selection, trials: Sequence[Trial]) -> Counts:
    """Return the trials by fate; those ended early as slow are measured, not failed."""
    early = sum(t.status == "aborted" for t in trials)
    failed, dropped = len(selection.failed), len(selection.dropped)
    return Counts(
        trials=len(selection.trials) + early + failed + dropped, failed=failed, dropped=dropped
    )
