"""From the trials of a run to its verdict. Layer: ``analysis``.

Nothing here is confirmed on fresh data, so that every SPIKE is a candidate of grade C.
"""

from __future__ import annotations

import numpy as np

from regimescope.analysis.phases import phases
from regimescope.analysis.position import position_levels
from regimescope.analysis.reading import Levels, read
from regimescope.analysis.sweep import Selection, Sweep, select, to_sweep
from regimescope.errors import InputError
from regimescope.reasons import Reason
from regimescope.records import Run, Trial
from regimescope.results import Conclusion, Counts, Grade
from regimescope.stats.drift import median_polish
from regimescope.stats.estimate import summarize_repeats


def conclude(run: Run) -> Conclusion:
    """Return the verdict on the trials of a run.

    Trials of nested mode are read by context length, since latencies of shorter budgets would be
    prefixes of one generation and hence dependent; all others by budget.

    Raises:
        InputError: The trials cannot be a measurement: none left, mixed series, invalid latencies,
            duplicated ids, or a single one.
    """
    selection = select(run)
    trials = selection.trials
    nested = bool(trials) and trials[0].series.mode == "nested"
    levels = position_levels(trials) if nested else budget_levels(to_sweep(selection))
    # Without a cache a step computes all positions again: one power more than with it.
    degree = (1 if nested else 2) + any(trial.cell.kv_cache == "off" for trial in trials)
    reading = read(levels, degree=degree)
    reasons = (*selection.reasons, *_design_reasons(trials), *reading.reasons)
    return Conclusion(
        run=run.header.run,
        axis="context" if nested else run.header.axis,
        verdict=reading.verdict,
        grade=Grade.C,
        reasons=tuple(dict.fromkeys(reasons)),
        regimes=reading.regimes,
        certificate=reading.certificate,
        baseline=reading.baseline,
        counts=_counts(selection),
        phases=phases(trials, by_budget=not nested),
    )


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
    log_latency = np.log(sweep.latency_s)
    groups = int(sweep.group.max()) + 1
    if groups > 1:
        table = np.full((sweep.values.size, groups), np.nan)
        for row, column in set(zip(rows.tolist(), sweep.group.tolist(), strict=True)):
            table[row, column] = np.median(log_latency[(rows == row) & (sweep.group == column)])
        log_latency = log_latency - median_polish(table).column[sweep.group]
    by_value = [sweep.latency_s[rows == row] for row in range(sweep.values.size)]
    return Levels(
        values=sweep.values,
        # The first token of a budget is prefill's, hence one step less.
        summary=summarize_repeats(sweep.x - 1.0, log_latency),
        latency_s=np.array([[np.median(s), s.min(), s.max()] for s in by_value]),
        phase=sweep.phase,
    )


def _counts(selection: Selection) -> Counts:
    """Return the trials by fate, warm-ups left out."""
    measured = len(selection.trials) + len(selection.failed) + len(selection.dropped)
    return Counts(trials=measured, failed=len(selection.failed), dropped=len(selection.dropped))


def _design_reasons(trials: tuple[Trial, ...]) -> tuple[Reason, ...]:
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
    return tuple(reasons)
