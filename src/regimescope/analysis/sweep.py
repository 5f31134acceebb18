"""Trials of one series as arrays: what counts, what is left out and why. Layer: ``analysis``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from regimescope import axes
from regimescope.analysis.completeness import reasons_for_stopping
from regimescope.analysis.refusals import refuse_duplicate_ids, refuse_mixed_series
from regimescope.errors import InputError
from regimescope.reasons import Reason
from regimescope.records import Phase, Run, Trial
from regimescope.results import Conclusion, Counts, Grade, Noise, Origin, Verdict
from regimescope.search.evidence import is_vetoed
from regimescope.spec import Axis
from regimescope.stats.drift import LEAST_CELLS
from regimescope.stopping import vetoes
from regimescope.units import count, listing

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# A budget whose trials mostly fail has no latency worth naming (method, section 15).
MOST_FAILED_SHARE = 1 / 3


class Selection(NamedTuple):
    """The trials that count and the fate of the others.

    Attributes:
        trials: Trials that enter the curve.
        failed: Trials without a latency: failed or timed out. Those that were ended early because
            they had proved slow are neither failed nor measured to their end.
        dropped: Trials that were left out for a reason, those of vetoed blocks among them.
        warm_ups: Warm-up trials, kept apart.
        vetoed: Blocks that were dropped, as often as they were.
        veto_shift: The largest factor by which the machine changed its speed during one of them.
        observed: Trials of the observer arm, kept apart.
        reasons: Reason codes that follow, each once.
    """

    trials: tuple[Trial, ...]
    failed: tuple[Trial, ...]
    dropped: tuple[Trial, ...]
    warm_ups: tuple[Trial, ...]
    vetoed: tuple[int, ...]
    veto_shift: float | None
    observed: tuple[Trial, ...]
    reasons: tuple[Reason, ...]


class Sweep(NamedTuple):
    """One latency per trial against the swept axis.

    Attributes:
        x: Value of the axis, shape (trials,).
        latency_s: Latency in seconds, shape (trials,).
        steps: Abscissa of the expected curve, shape (trials,): timed decode steps on the budget
            axis, else the value.
        group: Ordinal of the block within its process run, or of the occasion where a process
            visits a single value, shape (trials,); what a group has in common, such as a busy
            machine, is removed by it.
        values: Distinct values of the axis, ascending, shape (values,).
        phase: What the latencies time.
    """

    x: IntArray
    latency_s: FloatArray
    steps: FloatArray
    group: IntArray
    values: IntArray
    phase: str


def select(run: Run) -> Selection:
    """Sort the trials of a run by their fate.

    Raises:
        InputError: Two trials carry the same id, or the run holds more than one series.
    """
    refuse_duplicate_ids(run.trials)
    reasons = reasons_for_stopping(run)
    vetoed = Counter(vetoes(run))
    trials = [t for t in run.trials if not is_vetoed(t, vetoed)]
    redone = tuple(t for t in run.trials if is_vetoed(t, vetoed) and not t.sentinel)
    observed = tuple(t for t in trials if t.series.arm == "observer" and not t.warmup)
    trials = [t for t in trials if t.series.arm != "observer"]
    measured = [t for t in trials if not t.warmup and not t.sentinel]
    failed = tuple(t for t in measured if t.status not in {"ok", "aborted"})
    finished = [t for t in measured if t.status == "ok"]
    miscounted = tuple(t for t in finished if _miscounted(t))
    kept, copies = _without_copies([t for t in finished if not _miscounted(t)])
    axis = run.header.axis
    refuse_mixed_series(kept, axis)
    if run.header.source != "scan":
        _refuse_apart_occasions(kept, axis)
    if miscounted:
        reasons.append(Reason.TOKEN_COUNT_MISMATCH)
    if copies or _has_twins(kept):
        reasons.append(Reason.POSSIBLE_DUPLICATES)
    if any(t.output_tokens is None and t.cell.budget is not None for t in kept):
        reasons.append(Reason.TOKENS_NOT_VERIFIED)
    early = [t for t in measured if t.status == "aborted"]
    if failing_values([*kept, *early], failed, axis):
        reasons.append(Reason.BACKEND_FAILURES)
    return Selection(
        trials=kept,
        failed=failed,
        dropped=miscounted + copies + redone,
        warm_ups=tuple(t for t in trials if t.warmup),
        vetoed=tuple(sorted(vetoed.elements())),
        veto_shift=_largest_shift(run),
        observed=observed,
        reasons=tuple(reasons),
    )


def nothing_left(run: Run, selection: Selection, counts: Counts) -> Conclusion:
    """Return the verdict when no trial says anything: the reason is the result."""
    return Conclusion(
        run=run.header.run,
        axis=run.header.axis,
        origin=origin_of(run),
        verdict=Verdict.INCONCLUSIVE,
        grade=Grade.C,
        reasons=tuple(dict.fromkeys(selection.reasons or (Reason.EMPTY,))),
        counts=counts,
        noise=Noise(vetoed=len(selection.vetoed), veto_shift=selection.veto_shift)
        if selection.vetoed
        else None,
    )


def _largest_shift(run: Run) -> float | None:
    """Return the largest factor by which a sentinel moved during a block that was dropped."""
    facts = [event.facts or {} for event in run.events if event.kind == "veto"]
    shifts = [s for fact in facts if isinstance(s := fact.get("shift"), float) and s > 0]
    return max(shifts, key=lambda shift: abs(math.log(shift)), default=None)


def origin_of(run: Run) -> Origin:
    """Return who chose what was measured."""
    if run.header.source != "scan":
        return "import"
    spec = run.header.spec
    return "search" if spec is not None and not spec.budgets else "plan"


def primary_series(run: Run) -> Run:
    """Return a run with the trials of one arm: the warm one, or the first there is.

    The trials of the observer arm stay: they speak for the run.
    """
    arms = [t.series.arm for t in run.trials if t.series.arm != "observer"]
    if len(set(arms)) < 2:
        return run
    return one_arm(run, "warm" if "warm" in arms else arms[0], observer=True)


def one_arm(run: Run, arm: str | None, *, observer: bool) -> Run:
    """Return a run with the trials of one arm, and those of the observer arm if wanted."""
    wanted = {arm, "observer"} if observer else {arm}
    return replace(run, trials=tuple(t for t in run.trials if t.series.arm in wanted))


def axis_value(trial: Trial, axis: Axis) -> int | None:
    """Return where a trial stands on an axis; ``None`` where it does not know.

    A value in a unit that no field of a cell has, such as a pause in milliseconds, is kept by
    imports in the environment of the trial.
    """
    found = axes.value(trial.cell, axis) if axis in axes.LAWS else None
    if found is None:
        foreign = (trial.env or {}).get("x")
        found = foreign if isinstance(foreign, int) else None
    return found


def failing_values(
    kept: Sequence[Trial], failed: Sequence[Trial], axis: Axis = "budget"
) -> tuple[int, ...]:
    """Return the values of the axis of which more than a third of the trials failed, ascending."""
    good = Counter(axis_value(trial, axis) for trial in kept)
    bad = Counter(axis_value(trial, axis) for trial in failed)
    return tuple(
        sorted(
            value
            for value, failures in bad.items()
            if value is not None and failures > MOST_FAILED_SHARE * (failures + good[value])
        )
    )


def to_sweep(selection: Selection, axis: Axis = "budget") -> Sweep:
    """Return the latencies of selected trials against the value of the swept axis.

    The latency is TTFT on the prompt axis and where nothing but prefill was timed, else decode
    seconds; where an import knows only the total, the total is used for all.

    Raises:
        InputError: No trial is left, or one has neither a value nor a positive latency.
    """
    trials = selection.trials
    if not trials:
        raise InputError(
            Reason.EMPTY,
            "No finished trial is left to analyze.",
            remedy="Finish the run with `regimescope scan --resume`, or see its events.jsonl.",
        )
    values = [axis_value(trial, axis) for trial in trials]
    without = [t.trial_id for t, value in zip(trials, values, strict=True) if value is None]
    if without:
        raise InputError(
            Reason.INVALID_BUDGET,
            f"{count(len(without), 'trial')} without a value on the {axis} axis: "
            f"{listing(without)}.",
            remedy="Remove them.",
            trial_ids=without,
        )
    phase = _timed_phase(trials, axis)
    latency_s = np.array([_latency_s(trial, phase) for trial in trials])
    bad = [t.trial_id for t, value in zip(trials, latency_s, strict=True) if not 0 < value < np.inf]
    if bad:
        raise InputError(
            Reason.INVALID_LATENCY,
            f"{count(len(bad), 'trial')} without a positive latency: {listing(bad)}.",
            remedy="Remove them.",
            trial_ids=bad,
        )
    x = np.array(values, dtype=np.int64)
    return Sweep(x, latency_s, _steps(trials, x, axis), _groups(trials, x), np.unique(x), phase)


def is_limit_only(trials: Sequence[Trial], axis: Axis) -> bool:
    """Return whether the budget was a limit that the number of decoded steps did not follow.

    The time of single steps is then compared between budgets, and the limit should cost nothing.
    """
    budgets = {trial.cell.budget for trial in trials}
    return axis == "budget" and len(budgets) > 1 and all(t.decode_steps == 1 for t in trials)


def _timed_phase(trials: Sequence[Trial], axis: Axis) -> Phase:
    """Return what the latencies of a series time."""
    prefill = all(trial.ttft_s is not None for trial in trials)
    if prefill and (axis == "prompt" or all(trial.phase == "prefill" for trial in trials)):
        return "prefill"
    if all(trial.decode_s is not None for trial in trials):
        return "decode"
    return "kernel" if all(trial.phase == "kernel" for trial in trials) else "mixed"


def _latency_s(trial: Trial, phase: Phase) -> float:
    """Return the latency that is compared, NaN where the trial has none."""
    by_phase = {"prefill": trial.ttft_s, "decode": trial.decode_s}
    value = by_phase.get(phase, trial.e2e_s)
    return float("nan") if value is None else value


def _steps(trials: Sequence[Trial], x: IntArray, axis: Axis) -> FloatArray:
    """Return the abscissa of the expected curve of each trial."""
    if axis not in axes.LAWS or is_limit_only(trials, axis):
        return x.astype(np.float64)
    known = [trial.decode_steps for trial in trials]
    if axis == "budget" and all(steps is not None and steps > 0 for steps in known):
        return np.array(known, dtype=np.float64)
    return axes.curve_steps(x, axis)


def _groups(trials: Sequence[Trial], x: IntArray) -> IntArray:
    """Number the blocks: trials of one block in one process share whatever slowed them all.

    A process that visits a single value shows nothing but that value; what its trials share with
    others is the occasion.
    """
    visited: dict[int | None, set[int]] = {}
    for trial, value in zip(trials, x.tolist(), strict=True):
        visited.setdefault(trial.process_run, set()).add(value)
    keys: list[tuple[str, int, int]] = []
    for trial in trials:
        block = -1 if trial.block is None else trial.block
        process = -1 if trial.process_run is None else trial.process_run
        # Without process numbers all trials are one process as far as anybody knows.
        whole = len(visited[trial.process_run]) > 1
        keys.append((trial.occasion, process, block) if whole else (trial.occasion, -2, -2))
    # Numbered by what they are, not by where they stand, so that the order of rows is of no effect.
    number = {key: index for index, key in enumerate(sorted(set(keys)))}
    return np.array([number[key] for key in keys], dtype=np.int64)


def _miscounted(trial: Trial) -> bool:
    """Return whether a trial produced another number of tokens than its budget."""
    budget, produced = trial.cell.budget, trial.output_tokens
    return budget is not None and produced is not None and produced != budget


def _without_copies(trials: Sequence[Trial]) -> tuple[tuple[Trial, ...], tuple[Trial, ...]]:
    """Split off what was measured once and stands under several ids.

    A process starts one trial at a time, so that a second one of the same start and the same
    seconds is a copy. It must not count: the same measurement twice is no replication.
    """
    first: dict[tuple[object, ...], Trial] = {}
    for trial in trials:
        if trial.start_ns is not None:
            # Of the ids the least is kept, so that the order of rows is of no effect.
            known = first.setdefault(_measurement(trial), trial)
            if trial.trial_id < known.trial_id:
                first[_measurement(trial)] = trial
    kept: list[Trial] = []
    copies: list[Trial] = []
    for trial in trials:
        single = trial.start_ns is None or first[_measurement(trial)] is trial
        (kept if single else copies).append(trial)
    return tuple(kept), tuple(copies)


def _measurement(trial: Trial) -> tuple[object, ...]:
    """Return when and where a trial was measured, and its seconds."""
    place = (trial.occasion, trial.process_run, trial.start_ns)
    return (*place, trial.cell, trial.ttft_s, trial.decode_s, trial.e2e_s)


def _has_twins(trials: Sequence[Trial]) -> bool:
    """Return whether rows without a start are equal in all but their id.

    They may be two measurements of a coarse timer, so that they stay and are only named.
    """
    seen = [
        (*_measurement(t), t.block, t.repeat, t.order_index) for t in trials if t.start_ns is None
    ]
    return len(set(seen)) < len(seen)


def _refuse_apart_occasions(trials: Sequence[Trial], axis: Axis) -> None:
    """Refuse to pool occasions of an import whose common level cannot be told (method, 1.3)."""
    values: dict[str, set[int | None]] = {}
    for trial in trials:
        values.setdefault(trial.occasion, set()).add(axis_value(trial, axis))
    for name, own in values.items():
        others = set().union(*(v for other, v in values.items() if other != name))
        if others and len(own & others) < LEAST_CELLS:
            raise InputError(
                Reason.MIXED_SERIES,
                f"Occasion {name} shares {count(len(own & others), 'value')} of the {axis} axis "
                f"with the others; from fewer than {LEAST_CELLS} its level cannot be told.",
                remedy="Analyze each occasion by itself, or measure more values in both.",
            )
