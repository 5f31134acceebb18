"""From what a method returns to counts against the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from benchmarks.detection.cells import Case
from benchmarks.detection.confirmation import Found, Outcome
from benchmarks.detection.segments import Interval

# Names of methods and of what they are given, in files and tables.
OURS = "joint fit"
RAW, RESIDUAL, SHAPED, CONFIRMED = "raw", "residual", "shape", "confirmed"

HALF = 0.5  # overlap (intersection over union) from which a regime counts as found whole


@dataclass
class Score:
    """Counts over sweeps; all of them add up.

    Attributes:
        sweeps: sweeps.
        alarms: sweeps with at least one interval that meets no true regime.
        false: such intervals.
        events: true regimes.
        hits: of these, met by an interval at all.
        halves: met by an interval with an overlap of a half or more.
        exact: met by an interval with both edges right: to one grid budget for a screen, to one
            token after the edge search.
        edges: edges located.
        covered: of these, true edge inside the interval.
        edge_error: sum of absolute errors of the edges, tokens.
        slowdowns: slowdowns estimated of regimes that were met.
        slowdowns_covered: of these, true slowdown inside the interval.
        tokens: tokens spent, screen and warm-ups included.
        timed: sweeps whose time was taken.
        cpu_s: processor time of the method, the simulated machine and a child process included.
    """

    sweeps: int = 0
    alarms: int = 0
    false: int = 0
    events: int = 0
    hits: int = 0
    halves: int = 0
    exact: int = 0
    edges: int = 0
    covered: int = 0
    edge_error: int = 0
    slowdowns: int = 0
    slowdowns_covered: int = 0
    tokens: int = 0
    timed: int = 0
    cpu_s: float = 0.0

    def add(self, other: Score) -> None:
        """Add the counts of another score."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def as_row(self) -> dict[str, Any]:
        """Counts for a file."""
        return {**asdict(self), "cpu_s": round(self.cpu_s, 4)}


def score_screen(case: Case, intervals: Sequence[Interval], cpu_s: float) -> Score:
    """Score index intervals of a screen on the budgets that it measured."""
    budgets = case.steps.astype(np.int64) + 1
    found = [set(range(start, end)) for start, end in intervals]
    true = [
        set(np.flatnonzero((budgets >= r.onset) & (budgets < r.recovery)).tolist())
        for r in case.truth.regimes
    ]
    score = _overlaps(found, true)
    score.exact = sum(t in found for t in true)
    score.tokens = case.tokens
    score.timed, score.cpu_s = 1, cpu_s
    return score


def score_confirmed(case: Case, outcome: Outcome, cpu_s: float) -> Score:
    """Score confirmed regimes on the tokens between their edges."""
    found = [set(range(f.onset.estimate, f.recovery.estimate)) for f in outcome.regimes]
    true = [set(range(r.onset, r.recovery)) for r in case.truth.regimes]
    score = _overlaps(found, true)
    score.exact = sum(t in found for t in true)
    score.tokens = case.tokens + outcome.tokens
    score.timed, score.cpu_s = 1, cpu_s
    for regime, span in zip(case.truth.regimes, true, strict=True):
        met = [f for f, s in zip(outcome.regimes, found, strict=True) if s & span]
        if len(met) == 1:
            _add_edges(score, met[0], regime.onset, regime.recovery)
            estimate = met[0].slowdown.slowdown
            score.slowdowns += 1
            actual = case.machine.slowdown(regime)
            score.slowdowns_covered += estimate.low <= actual <= estimate.high
    return score


def _add_edges(score: Score, found: Found, onset: int, recovery: int) -> None:
    for edge, actual in ((found.onset, onset), (found.recovery, recovery)):
        low, high = edge.interval
        score.edges += 1
        score.covered += low < actual <= high
        score.edge_error += abs(edge.estimate - actual)


def _overlaps(found: list[set[int]], true: list[set[int]]) -> Score:
    false = sum(not any(f & t for t in true) for f in found)
    best = [max((len(f & t) / len(f | t) for f in found), default=0.0) for t in true if t]
    return Score(
        sweeps=1,
        alarms=int(false > 0),
        false=false,
        events=len(true),
        hits=sum(b > 0 for b in best),
        halves=sum(b >= HALF for b in best),
    )
