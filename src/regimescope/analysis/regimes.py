"""From the trials of a run to its verdict. Layer: ``analysis``.

Nothing here is confirmed on fresh data, so that every SPIKE is a candidate of grade C.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from regimescope import axes
from regimescope.analysis.attribution import attribute, in_spike
from regimescope.analysis.design import design_reasons
from regimescope.analysis.local_lottery import lottery_regimes, with_lottery
from regimescope.analysis.lottery import compare_processes, points_are_processes
from regimescope.analysis.memory import memory_readings
from regimescope.analysis.noise import Disturbance, disturbances
from regimescope.analysis.phases import phases
from regimescope.analysis.position import periodic_steps, position_levels, slow_positions
from regimescope.analysis.promised import UNSEEN
from regimescope.analysis.reading import Levels, Reading, points_only, read, shown_baseline
from regimescope.analysis.repeats import first_repeat_excess, rises_within_value, settled
from regimescope.analysis.replication import Part, parts_of, replicated_grade
from regimescope.analysis.searched import conclude_search
from regimescope.analysis.sweep import (
    FloatArray,
    Selection,
    Sweep,
    is_limit_only,
    nothing_left,
    one_arm,
    origin_of,
    primary_series,
    select,
    to_sweep,
)
from regimescope.errors import InputError
from regimescope.reasons import NOTES, Reason
from regimescope.records import Run, Trial
from regimescope.results import Conclusion, Counts, Grade, Regime, Verdict, rounded
from regimescope.spec import Axis
from regimescope.stats.drift import median_polish
from regimescope.stats.epidemic import R_MIN
from regimescope.stats.estimate import summarize_repeats


def conclude(run: Run, *, r_min: float = R_MIN) -> Conclusion:
    """Return the verdict on the trials of a run.

    Trials of nested mode are read by context length, since latencies of shorter budgets would be
    prefixes of one generation and hence dependent; all others by budget. Arms are read apart: the
    warm one, or the only one, gives the verdict, any other stands in ``apart``.

    Args:
        run: Trials with their header.
        r_min: Least slowdown that counts, above 1; a search has its own.

    Raises:
        InputError: The trials cannot be a measurement: none left, mixed series, invalid latencies,
            duplicated ids, or a single one.
    """
    spec = run.header.spec
    if spec is not None and not spec.budgets:
        return rounded(_deciding_first(conclude_search(run, spec)))
    first = primary_series(run)
    arms = {t.series.arm for t in run.trials} - {t.series.arm for t in first.trials}
    others = []
    for arm in sorted(arms, key=str):
        part = one_arm(run, arm, observer=False)
        name = f"{run.header.run} ({arm} arm)"
        others.append(_conclude_series(replace(part, header=replace(run.header, run=name)), r_min))
    return rounded(_deciding_first(replace(_conclude_series(first, r_min), apart=tuple(others))))


def _deciding_first(conclusion: Conclusion) -> Conclusion:
    """Return a conclusion whose missing verdict names first what withholds it, notes after."""
    if conclusion.verdict is not Verdict.INCONCLUSIVE:
        return conclusion
    reasons = sorted(conclusion.reasons, key=NOTES.__contains__)
    return replace(conclusion, reasons=tuple(reasons))


def _conclude_series(run: Run, r_min: float) -> Conclusion:
    """Return the verdict on one series, by the reading that its design allows."""
    selection = select(run)
    trials = selection.trials
    if not trials and run.trials:
        return nothing_left(run, selection, _counts(selection))
    if trials and trials[0].series.mode == "nested":
        return _conclude_positions(run, selection, r_min)
    sweep = to_sweep(selection, run.header.axis)
    if points_are_processes(sweep, trials, run.header.axis):
        return _conclude_processes(run, selection, sweep, r_min)
    return _conclude_sweep(run, selection, sweep, r_min)


def _conclude_sweep(run: Run, selection: Selection, sweep: Sweep, r_min: float) -> Conclusion:
    """Return the verdict on latencies along an axis."""
    axis, trials = run.header.axis, selection.trials
    reading = _read(sweep, trials, axis, r_min)
    found = _disturbances(selection, sweep, reading)
    clean_log_s = np.log(sweep.latency_s) - block_effects(sweep)
    bimodal = lottery_regimes(sweep, trials, clean_log_s, found.noise.within or 0.0)
    regimes = with_lottery(reading.regimes, bimodal)
    verdict, why = _overruled(reading, regimes, selection, sweep, found)
    if rises_within_value(sweep, trials, r_min=r_min):
        why = (*why, Reason.GROWTH_WITHIN_POINT)
    design = design_reasons(run, trials, sweep.x)
    reasons = (*selection.reasons, *design, *found.reasons, *why, *reading.reasons)
    grade = Grade.C
    if run.header.source != "scan":
        apart = (_read(part, trials, axis, r_min) for part in parts_of(sweep, trials))
        parts = [Part(each.verdict, each.regimes) for each in apart]
        grade = replicated_grade(Part(verdict, regimes), parts, reasons)
    positions = _positions(trials, regimes)
    graded = [replace(r, grade=grade if r.verdict is verdict else r.grade) for r in regimes]
    return Conclusion(
        run=run.header.run,
        axis=axis,
        origin=origin_of(run),
        verdict=verdict,
        grade=grade,
        reasons=tuple(dict.fromkeys(reasons)),
        regimes=tuple(attribute(r, regimes, trials, positions) for r in graded),
        certificate=reading.certificate,
        baseline=shown_baseline(reading),
        counts=_counts(selection),
        phases=phases(trials, by_budget=axis == "budget"),
        memory=memory_readings(trials, graded, axis),
        noise=found.noise,
        positions=positions,
    )


def _read(sweep: Sweep, trials: Sequence[Trial], axis: Axis, r_min: float) -> Reading:
    """Return what the curve of a sweep, or of a part of it, looks like."""
    return read(
        budget_levels(sweep),
        degree=_degree(trials, axis),
        r_min=r_min,
        phase=_phase(trials, axis),
    )


def _positions(trials: Sequence[Trial], regimes: Sequence[Regime]) -> tuple[Regime, ...]:
    """Return slow intervals of context length in the steps of all generations but slow ones.

    A budget that is slow from its first step on would lift the positions that it reaches.
    """
    outside = [t for t in trials if not in_spike(t.cell.budget, regimes)]
    return slow_positions(outside, cached=not _uncached(trials))


def _disturbances(selection: Selection, sweep: Sweep, reading: Reading) -> Disturbance:
    """Return what disturbed the trials of a sweep."""
    residual = np.log(sweep.latency_s) - _of_points(reading, sweep, "latency_s")
    firsts = first_repeat_excess(sweep, selection.trials)
    return disturbances(selection, residual, block_effects(sweep), firsts)


def _is_settled(reading: Reading, sweep: Sweep, trials: Sequence[Trial]) -> bool:
    """Return whether some interval is slow throughout a process that saw it, or none is slow."""
    lasting = (Verdict.SPIKE, Verdict.STEP)
    slow = [r for r in reading.regimes if r.verdict in lasting]
    if not slow or reading.verdict not in lasting:
        return True
    excess = (
        np.log(sweep.latency_s) - block_effects(sweep) - _of_points(reading, sweep, "expected_s")
    )
    process = [trial.process_run for trial in trials]
    return any(settled(regime, sweep, excess, process) for regime in slow)


def _of_points(reading: Reading, sweep: Sweep, field: str) -> FloatArray:
    """Return the log of a field of the point that each trial belongs to, shape (trials,)."""
    by_value = np.array([getattr(point, field) or np.nan for point in reading.baseline.points])
    logs: FloatArray = np.log(by_value)[np.searchsorted(sweep.values, sweep.x)]
    return logs


def _conclude_processes(run: Run, selection: Selection, sweep: Sweep, r_min: float) -> Conclusion:
    """Return the verdict on processes compared with each other."""
    found = compare_processes(sweep, selection.trials, r_min=r_min)
    design = design_reasons(run, selection.trials, sweep.x)
    return Conclusion(
        run=run.header.run,
        axis=run.header.axis,
        origin=origin_of(run),
        verdict=found.verdict,
        grade=Grade.C,
        reasons=tuple(dict.fromkeys((*found.reasons, *selection.reasons, *design))),
        baseline=points_only(budget_levels(sweep)),
        counts=_counts(selection),
        modes=found.modes,
    )


def _conclude_positions(run: Run, selection: Selection, r_min: float) -> Conclusion:
    """Return the verdict on long generations, read by context length."""
    trials = selection.trials
    reading = read(position_levels(trials), degree=1 + _uncached(trials), r_min=r_min)
    periodic = periodic_steps(trials)
    # Recurring steps explain a curve that is smooth otherwise, and are a note on any other.
    verdict = reading.verdict
    if periodic and verdict is Verdict.CLEAN:
        verdict = Verdict.SAWTOOTH
    x = np.array([trial.cell.budget or 0 for trial in trials])
    reasons = (*selection.reasons, *design_reasons(run, trials, x), *reading.reasons)
    return Conclusion(
        run=run.header.run,
        axis="context",
        origin=origin_of(run),
        verdict=verdict,
        grade=Grade.C,
        reasons=tuple(dict.fromkeys(reasons)),
        regimes=(*reading.regimes, *periodic),
        certificate=reading.certificate,
        baseline=shown_baseline(reading),
        counts=_counts(selection),
        phases=phases(trials, by_budget=False),
    )


def _degree(trials: Sequence[Trial], axis: Axis) -> int:
    """Return the degree of the expected curve (method, section 2)."""
    if axis not in axes.LAWS or is_limit_only(trials, axis):
        return 0
    return axes.degree(axis, "off" if _uncached(trials) else "on")


def _phase(trials: Sequence[Trial], axis: Axis) -> float:
    """Return what a step of the axis lacks to the position in the cache, where periods count."""
    prompts = {trial.cell.prompt_tokens for trial in trials}
    only = prompts.pop() if axis == "budget" and len(prompts) == 1 else None
    return float(only or 0)


def _uncached(trials: Sequence[Trial]) -> int:
    """Return 1 without a KV cache, which makes the expected curve one power steeper, else 0."""
    return int(any(trial.cell.kv_cache == "off" for trial in trials))


def _overruled(
    reading: Reading,
    regimes: Sequence[Regime],
    selection: Selection,
    sweep: Sweep,
    found: Disturbance,
) -> tuple[Verdict, tuple[Reason, ...]]:
    """Let drift and bimodality go before what is not a candidate (method, section 9)."""
    if Reason.DRIFT_VETO in selection.reasons:
        return Verdict.INCONCLUSIVE, ()
    shapes = {regime.verdict for regime in regimes}
    if reading.verdict is not Verdict.SPIKE or Verdict.SPIKE not in shapes:
        if Verdict.BIMODAL in shapes or found.bimodal:
            return Verdict.BIMODAL, (Reason.BETWEEN_PROCESS_SPREAD,)
        if found.drifts:
            return Verdict.DRIFT, ()
    if not _is_settled(reading, sweep, selection.trials):
        return Verdict.INCONCLUSIVE, (Reason.NOISY,)
    if reading.verdict is Verdict.CLEAN and UNSEEN & set(selection.reasons):
        return Verdict.INCONCLUSIVE, ()  # what is missing may be what is slow
    return reading.verdict, ()


def budget_levels(sweep: Sweep) -> Levels:
    """Return the level of each budget after what its blocks have in common is taken out.

    Raises:
        InputError: There is a single trial.
    """
    if sweep.x.size < 2:
        raise InputError(
            Reason.TOO_FEW_BUDGETS,
            "A single measurement has no curve.",
            remedy="Measure more budgets.",
        )
    rows = np.searchsorted(sweep.values, sweep.x)
    by_value = [sweep.latency_s[rows == row] for row in range(sweep.values.size)]
    return Levels(
        values=sweep.values,
        summary=summarize_repeats(sweep.steps, np.log(sweep.latency_s) - block_effects(sweep)),
        range_s=np.array([[s.min(), s.max()] for s in by_value]),
        phase=sweep.phase,
    )


def block_effects(sweep: Sweep) -> FloatArray:
    """Return what the block of each trial adds to its log latency, shape (trials,)."""
    groups = int(sweep.group.max()) + 1
    if groups < 2:
        return np.zeros(sweep.x.size)
    rows = np.searchsorted(sweep.values, sweep.x)
    log_latency = np.log(sweep.latency_s)
    table = np.full((sweep.values.size, groups), np.nan)
    for row, column in set(zip(rows.tolist(), sweep.group.tolist(), strict=True)):
        table[row, column] = np.median(log_latency[(rows == row) & (sweep.group == column)])
    effects: FloatArray = median_polish(table).column[sweep.group]
    return effects


def _counts(selection: Selection) -> Counts:
    """Return the trials by fate, warm-ups left out."""
    measured = len(selection.trials) + len(selection.failed) + len(selection.dropped)
    return Counts(trials=measured, failed=len(selection.failed), dropped=len(selection.dropped))
