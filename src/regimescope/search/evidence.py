"""Trials of a search as arrays: which count, and what each says. Layer: ``search``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from regimescope import axes
from regimescope.records import Stage, Trial
from regimescope.spec import Axis

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

# The mark of the ids of further visits to a sentinel, and that of attempts at a vetoed block.
AGAIN = ".again"
_ATTEMPT = re.compile(r"\.r(\d+)$")


class Evidence(NamedTuple):
    """One row per trial that says something about the latency at its value, in the order measured.

    Attributes:
        value: Place on the axis, shape (N,).
        log_s: Log latency in seconds; projected for aborted trials, a lower bound for those that
            timed out. Shape (N,).
        block: Ordinal of the block, shape (N,).
        exact: Whether the latency was measured to its end, shape (N,).
        timed_out: Whether the trial took longer than it might, shape (N,).
        stage: Phase of the search that asked for the trial, shape (N,).
    """

    value: IntArray
    log_s: FloatArray
    block: IntArray
    exact: BoolArray
    timed_out: BoolArray
    stage: tuple[Stage | None, ...]

    @property
    def ranked(self) -> FloatArray:
        """Log latency for ranks: what timed out is slower than everything, shape (N,)."""
        return np.where(self.timed_out, np.inf, self.log_s)

    def of(self, *stages: Stage) -> Evidence:
        """Return the rows of some phases."""
        return self.where(np.array([stage in stages for stage in self.stage], dtype=bool))

    def where(self, chosen: BoolArray) -> Evidence:
        """Return the chosen rows.

        Args:
            chosen: Which ones, shape (N,).
        """
        return Evidence(
            self.value[chosen],
            self.log_s[chosen],
            self.block[chosen],
            self.exact[chosen],
            self.timed_out[chosen],
            tuple(stage for stage, kept in zip(self.stage, chosen, strict=True) if kept),
        )


def gather(trials: Sequence[Trial], axis: Axis, *, timeout_s: float) -> Evidence:
    """Return what trials say about the latency along an axis.

    Warm-ups, sentinels, failed trials and those of another token count than their budget say
    nothing. A trial that timed out is slower than any that did not, so that it is ranked last.

    Args:
        trials: Trials whose block stands, see ``standing``.
        axis: The swept axis.
        timeout_s: Longest time a trial may take, where it does not say itself.
    """
    rows: list[tuple[int, float, int, bool, bool]] = []
    stages: list[Stage | None] = []
    for trial in trials:
        value = axes.value(trial.cell, axis)
        latency_s = _latency_s(trial, axis, timeout_s)
        if trial.warmup or trial.sentinel or value is None or latency_s is None:
            continue
        ended = trial.status == "ok", trial.status == "timeout"
        rows.append((value, math.log(latency_s), trial.block or 0, *ended))
        stages.append(trial.stage)
    return Evidence(
        np.array([row[0] for row in rows], dtype=np.int64),
        np.array([row[1] for row in rows], dtype=np.float64),
        np.array([row[2] for row in rows], dtype=np.int64),
        np.array([row[3] for row in rows], dtype=bool),
        np.array([row[4] for row in rows], dtype=bool),
        tuple(stages),
    )


def _latency_s(trial: Trial, axis: Axis, timeout_s: float) -> float | None:
    """Return the latency a trial stands for; ``None`` where it says nothing."""
    if trial.status == "timeout":
        return trial.timeout_s or timeout_s
    if trial.status == "aborted":
        return trial.projected_s
    counted = trial.output_tokens is None or trial.output_tokens == trial.cell.budget
    return axes.latency_s(trial, axis) if trial.status == "ok" and counted else None


def standing(trials: Sequence[Trial], vetoes: Mapping[int, int]) -> list[Trial]:
    """Return the trials without those of attempts at a block that were vetoed.

    Args:
        trials: All trials.
        vetoes: How often each block was vetoed; the ids of its latest attempt end in that number.
    """
    return [t for t in trials if not is_vetoed(t, vetoes)]


def is_vetoed(trial: Trial, vetoes: Mapping[int, int]) -> bool:
    """Return whether a trial belongs to an attempt at its block that was dropped."""
    attempts = vetoes.get(trial.block, 0) if trial.block is not None else 0
    if attempts == 0 or trial.series.arm != "warm" or trial.warmup:
        return False
    return attempt_of(trial.trial_id) < attempts


def attempt_of(trial_id: str) -> int:
    """Return which attempt at its block a trial belongs to; 0 is the first."""
    found = _ATTEMPT.search(sentinel_of(trial_id))
    return int(found[1]) if found else 0


def sentinel_of(trial_id: str) -> str:
    """Return the id of the sentinel that a further visit belongs to; other ids as they are."""
    return trial_id.partition(AGAIN)[0]
