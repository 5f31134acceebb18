"""From the trials of a run to its verdict. Layer: ``analysis``.

Nothing here is confirmed on fresh data, so that every SPIKE is a candidate of grade C.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from regimescope.analysis.attribution import attribute, in_spike
from regimescope.analysis.noise import Disturbance, disturbances
from regimescope.analysis.phases import phases
from regimescope.analysis.position import LEAST_TRACE, coarse_block, has_trace, position_levels
from regimescope.analysis.reading import Levels, read
from regimescope.analysis.sweep import (
    FloatArray,
    Selection,
    Sweep,
    one_arm,
    primary_series,
    select,
    to_sweep,
)
from regimescope.errors import InputError
from regimescope.reasons import Reason
from regimescope.records import Run, Trial
from regimescope.results import Conclusion, Counts, Grade, Regime, Verdict
from regimescope.stats.drift import median_polish
from regimescope.stats.estimate import summarize_repeats


def conclude(run: Run) -> Conclusion:
    """Return the verdict on the trials of a run.

    Trials of nested mode are read by context length, since latencies of shorter budgets would be
    prefixes of one generation and hence dependent; all others by budget. Arms are read apart: the
    warm one, or the only one, gives the verdict, any other stands in ``apart``.

    Raises:
        InputError: The trials cannot be a measurement: none left, mixed series, invalid latencies,
            duplicated ids, or a single one.
    """
    first = primary_series(run)
    arms = {t.series.arm for t in run.trials} - {t.series.arm for t in first.trials}
    others = []
    for arm in sorted(arms, key=str):
        part = one_arm(run, arm, observer=False)
        name = f"{run.header.run} ({arm} arm)"
        others.append(_conclude_series(replace(part, header=replace(run.header, run=name))))
    return replace(_conclude_series(first), apart=tuple(others))


def _conclude_series(run: Run) -> Conclusion:
    """Return the verdict on one series."""
    selection = select(run)
    trials = selection.trials
    if not trials and run.trials:
        return _nothing_left(run, selection)
    if trials and trials[0].series.mode == "nested":
        return _conclude_positions(run, selection)
    sweep = to_sweep(selection)
    levels = budget_levels(sweep)
    reading = read(levels, degree=2 + _uncached(trials))
    level = levels.summary.median[np.searchsorted(levels.values, sweep.x)]
    found = disturbances(selection, np.log(sweep.latency_s) - level, block_effects(sweep))
    positions = _positions(trials, reading.regimes)
    verdict, why = _overruled(reading.verdict, selection, found)
    reasons = (*selection.reasons, *_design_reasons(run, trials), *found.reasons, *why)
    return Conclusion(
        run=run.header.run,
        axis=run.header.axis,
        verdict=verdict,
        grade=Grade.C,
        reasons=tuple(dict.fromkeys((*reasons, *reading.reasons))),
        regimes=tuple(
            attribute(regime, reading.regimes, trials, positions) for regime in reading.regimes
        ),
        certificate=reading.certificate,
        baseline=reading.baseline,
        counts=_counts(selection),
        phases=phases(trials, by_budget=True),
        noise=found.noise,
        positions=positions,
    )


def _conclude_positions(run: Run, selection: Selection) -> Conclusion:
    """Return the verdict on long generations, read by context length."""
    trials = selection.trials
    reading = read(position_levels(trials), degree=1 + _uncached(trials))
    reasons = (*selection.reasons, *_design_reasons(run, trials), *reading.reasons)
    return Conclusion(
        run=run.header.run,
        axis="context",
        verdict=reading.verdict,
        grade=Grade.C,
        reasons=tuple(dict.fromkeys(reasons)),
        regimes=reading.regimes,
        certificate=reading.certificate,
        baseline=reading.baseline,
        counts=_counts(selection),
        phases=phases(trials, by_budget=False),
    )


def _nothing_left(run: Run, selection: Selection) -> Conclusion:
    """Return the verdict when every trial failed or was dropped: the reason is the result."""
    return Conclusion(
        run=run.header.run,
        axis=run.header.axis,
        verdict=Verdict.INCONCLUSIVE,
        grade=Grade.C,
        reasons=tuple(dict.fromkeys(selection.reasons or (Reason.EMPTY,))),
        counts=_counts(selection),
    )


def _uncached(trials: Sequence[Trial]) -> int:
    """Return 1 without a KV cache, which makes the expected curve one power steeper, else 0."""
    return int(any(trial.cell.kv_cache == "off" for trial in trials))


def _positions(trials: Sequence[Trial], regimes: Sequence[Regime]) -> tuple[Regime, ...]:
    """Return slow intervals of context length in the steps of all generations but slow ones.

    A budget that is slow from its first step on would lift the positions that it reaches.
    """
    stamped = [t for t in trials if has_trace(t) and not in_spike(t.cell.budget, regimes)]
    if not stamped or max(len(t.itl_s or ()) for t in stamped) < LEAST_TRACE:
        return ()
    levels = position_levels(stamped, block_steps=coarse_block(stamped))
    reading = read(levels, degree=1 + _uncached(trials))
    return tuple(r for r in reading.regimes if r.verdict is Verdict.SPIKE)


def _overruled(
    verdict: Verdict, selection: Selection, found: Disturbance
) -> tuple[Verdict, tuple[Reason, ...]]:
    """Let drift and bimodality go before what is not a candidate (method, section 9)."""
    if Reason.DRIFT_VETO in selection.reasons:
        return Verdict.INCONCLUSIVE, ()
    if verdict is Verdict.SPIKE:
        return verdict, ()
    if found.bimodal:
        return Verdict.BIMODAL, (Reason.BETWEEN_PROCESS_SPREAD,)
    if found.drifts:
        return Verdict.DRIFT, ()
    return verdict, ()


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
        # The first token of a budget is prefill's, hence one step less.
        summary=summarize_repeats(sweep.x - 1.0, np.log(sweep.latency_s) - block_effects(sweep)),
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


def _design_reasons(run: Run, trials: tuple[Trial, ...]) -> tuple[Reason, ...]:
    """Return what the design of the measurement limits (method, section 15)."""
    reasons = []
    repeats = np.unique([trial.cell.budget for trial in trials], return_counts=True)[1]
    if repeats.max() < 2:
        reasons.append(Reason.NO_REPLICATION)
    processes = {trial.process_run for trial in trials}
    if None in processes:
        reasons.append(Reason.MISSING_PROCESS_RUN)
    elif len(processes) == 1:
        reasons.append(Reason.SINGLE_PROCESS)
    if any(trial.order_index is None for trial in trials):
        reasons.append(Reason.MISSING_ORDER)
    if run.header.spec is not None and run.header.spec.order != "random":
        reasons.append(Reason.FIXED_ORDER)
    return tuple(reasons)
