"""Trials of one series as arrays: what counts, what is left out and why. Layer: ``analysis``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from regimescope.errors import InputError
from regimescope.reasons import Reason
from regimescope.records import Cell, Run, Series, Trial
from regimescope.units import count, listing

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# A budget whose trials mostly fail has no latency worth naming (method, section 15).
MOST_FAILED_SHARE = 1 / 3


class Selection(NamedTuple):
    """The trials that count and the fate of the others.

    Attributes:
        trials: Trials that enter the curve.
        failed: Trials without a latency: failed, timed out, aborted.
        dropped: Trials with a latency that were left out for a reason.
        warm_ups: Warm-up trials, kept apart.
        vetoed: Blocks that were dropped, as often as they were.
        observed: Trials of the observer arm, kept apart.
        reasons: Reason codes that follow, each once.
    """

    trials: tuple[Trial, ...]
    failed: tuple[Trial, ...]
    dropped: tuple[Trial, ...]
    warm_ups: tuple[Trial, ...]
    vetoed: tuple[int, ...]
    observed: tuple[Trial, ...]
    reasons: tuple[Reason, ...]


class Sweep(NamedTuple):
    """One latency per trial against the swept axis.

    Attributes:
        x: Value of the axis, shape (trials,).
        latency_s: Latency in seconds, shape (trials,).
        group: Ordinal of the block within its process run, shape (trials,); what a block has in
            common, such as a busy machine, is removed by it.
        values: Distinct values of the axis, ascending, shape (values,).
        phase: What the latencies time.
    """

    x: IntArray
    latency_s: FloatArray
    group: IntArray
    values: IntArray
    phase: str


def select(run: Run) -> Selection:
    """Sort the trials of a run by their fate.

    Raises:
        InputError: Two trials carry the same id, or the run holds more than one series.
    """
    _refuse_duplicate_ids(run.trials)
    reasons = _reasons_for_stopping(run)
    vetoed = _vetoed_blocks(run)
    trials = [t for t in run.trials if not _is_vetoed(t, vetoed)]
    observed = tuple(t for t in trials if t.series.arm == "observer" and not t.warmup)
    trials = [t for t in trials if t.series.arm != "observer"]
    measured = [t for t in trials if not t.warmup and not t.sentinel]
    failed = tuple(t for t in measured if t.status != "ok")
    finished = [t for t in measured if t.status == "ok"]
    dropped = tuple(t for t in finished if _miscounted(t))
    kept = tuple(t for t in finished if not _miscounted(t))
    _refuse_mixed_series(kept)
    if dropped:
        reasons.append(Reason.TOKEN_COUNT_MISMATCH)
    if any(trial.output_tokens is None for trial in kept):
        reasons.append(Reason.TOKENS_NOT_VERIFIED)
    if failing_values(kept, failed):
        reasons.append(Reason.BACKEND_FAILURES)
    return Selection(
        trials=kept,
        failed=failed,
        dropped=dropped,
        warm_ups=tuple(t for t in trials if t.warmup),
        vetoed=tuple(sorted(vetoed.elements())),
        observed=observed,
        reasons=tuple(reasons),
    )


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


def _reasons_for_stopping(run: Run) -> list[Reason]:
    """Return why the latest invocation stopped early; a resumed run that is done has no reason."""
    ends = [event for event in run.events if event.kind in ("stop", "done")]
    return [ends[-1].reason] if ends and ends[-1].reason is not None else []


def _vetoed_blocks(run: Run) -> Counter[int]:
    """Return how often each block was dropped because the machine drifted."""
    blocks = ((event.facts or {}).get("block") for event in run.events if event.kind == "veto")
    return Counter(block for block in blocks if isinstance(block, int))


def _is_vetoed(trial: Trial, vetoed: Counter[int]) -> bool:
    """Return whether a trial belongs to an attempt at its block that was dropped.

    Only the warm arm has sentinels; its latest attempt bears the number of vetoes in its ids.
    """
    attempts = vetoed[trial.block] if trial.block is not None else 0
    if attempts == 0 or trial.series.arm != "warm" or trial.warmup:
        return False
    return not trial.trial_id.endswith(f".r{attempts}")


def failing_values(kept: Sequence[Trial], failed: Sequence[Trial]) -> tuple[int, ...]:
    """Return the budgets of which more than a third of the trials failed, ascending."""
    good = Counter(trial.cell.budget for trial in kept)
    bad = Counter(trial.cell.budget for trial in failed)
    return tuple(
        sorted(
            budget
            for budget, failures in bad.items()
            if budget is not None and failures > MOST_FAILED_SHARE * (failures + good[budget])
        )
    )


def to_sweep(selection: Selection) -> Sweep:
    """Return the latencies of selected trials against their budget.

    Trials of our own are measured by their decode seconds; where an import knows only the total,
    the total is used for all.

    Raises:
        InputError: No trial is left, or one has neither a budget nor a positive latency.
    """
    trials = selection.trials
    if not trials:
        raise InputError(
            Reason.EMPTY,
            "No finished trial is left to analyze.",
            remedy="Finish the run with `regimescope scan --resume`, or see its events.jsonl.",
        )
    without = [trial.trial_id for trial in trials if trial.cell.budget is None]
    if without:
        raise InputError(
            Reason.INVALID_BUDGET,
            f"{count(len(without), 'trial')} without a budget: {listing(without)}.",
            remedy="Remove them.",
            trial_ids=without,
        )
    decode = all(trial.decode_s is not None for trial in trials)
    latency_s = np.array([_latency_s(trial, decode) for trial in trials])
    bad = [t.trial_id for t, value in zip(trials, latency_s, strict=True) if not 0 < value < np.inf]
    if bad:
        raise InputError(
            Reason.INVALID_LATENCY,
            f"{count(len(bad), 'trial')} without a positive latency: {listing(bad)}.",
            remedy="Remove them.",
            trial_ids=bad,
        )
    x = np.array([trial.cell.budget for trial in trials], dtype=np.int64)
    return Sweep(x, latency_s, _groups(trials), np.unique(x), "decode" if decode else "mixed")


def _latency_s(trial: Trial, decode: bool) -> float:
    """Return the latency that is compared, NaN where the trial has none."""
    value = trial.decode_s if decode else trial.e2e_s
    return float("nan") if value is None else value


def _groups(trials: Sequence[Trial]) -> IntArray:
    """Number the blocks: trials of one block in one process share whatever slowed them all."""
    keys = [(trial.process_run, trial.block) for trial in trials]
    # Numbered by what they are, not by where they stand, so that the order of rows is of no effect.
    known = sorted(set(keys), key=lambda key: [-1 if part is None else part for part in key])
    number = {key: index for index, key in enumerate(known)}
    return np.array([number[key] for key in keys], dtype=np.int64)


def _miscounted(trial: Trial) -> bool:
    """Return whether a trial produced another number of tokens than its budget."""
    return trial.output_tokens is not None and trial.output_tokens != trial.cell.budget


def _refuse_duplicate_ids(trials: Sequence[Trial]) -> None:
    """Refuse two trials under one id: one of them would be counted twice."""
    twice = [name for name, times in Counter(t.trial_id for t in trials).items() if times > 1]
    if twice:
        raise InputError(
            Reason.DUPLICATE_TRIAL_ID,
            f"Trial ids that stand more than once: {listing(twice)}.",
            remedy="Remove the copies.",
            trial_ids=twice,
        )


def _refuse_mixed_series(trials: Sequence[Trial]) -> None:
    """Refuse to pool what was measured under different conditions (method, section 15)."""
    seen: set[tuple[Series, Cell]] = {
        (trial.series, replace(trial.cell, budget=None)) for trial in trials
    }
    if len(seen) < 2:
        return
    fields = [
        name
        for part, names in ((0, Series.__struct_fields__), (1, Cell.__struct_fields__))
        for name in names
        if len({getattr(key[part], name) for key in seen}) > 1
    ]
    raise InputError(
        Reason.MIXED_SERIES,
        f"The trials differ in {listing(fields)} and must not be pooled into one curve.",
        remedy="Analyze each series by itself.",
    )
