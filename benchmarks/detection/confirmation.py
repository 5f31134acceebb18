"""Confirmation, edges and slowdown on fresh trials of a simulated machine (method 5 to 7).

The same for every method: only the intervals that it suspects differ. Not simulated here: the
final check at full length (P5), the adjacency trials (P6) and early abort.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from benchmarks.detection.cells import Case, summarized
from benchmarks.detection.segments import Interval

from regimescope.stats.arrays import FloatArray
from regimescope.stats.boundary import Boundary, LabelErrors, is_slow, label_errors, locate
from regimescope.stats.confirm import (
    Candidate,
    Confirmation,
    Core,
    CoreReading,
    FreshTrials,
    confirm,
    core_reading,
)
from regimescope.stats.curve import Curve, log_standard_error, predict_log
from regimescope.stats.estimate import SlowdownEstimate, slowdown_interval
from regimescope.stats.shape import classify
from regimescope.testing.synthetic import Trials, joined, sweep

CONFIRM_PROCESS = 100  # first process number of the confirmation, apart from the screen's
EDGE_PROCESS = 1000  # first process number of the edge search
QUERIES_PER_PROCESS = 8  # a new process every 8 queries (method section 6)
NO_TRIALS = FreshTrials(np.empty(0), np.empty(0), np.empty(0, dtype=np.int64))


@dataclass(frozen=True)
class Found:
    """A confirmed regime.

    Attributes:
        onset: search for its first slow budget.
        recovery: search for the first normal budget after it.
        slowdown: estimate with its interval.
    """

    onset: Boundary
    recovery: Boundary
    slowdown: SlowdownEstimate


@dataclass(frozen=True)
class Outcome:
    """What a confirmation leaves.

    Attributes:
        regimes: confirmed ones, ascending.
        tokens: tokens spent on confirmation and edges, warm-ups included.
        blocks: processes of the confirmation.
    """

    regimes: tuple[Found, ...]
    tokens: int
    blocks: int


class _Inquiry:
    """A machine with the order of its trials and the tokens spent on it."""

    def __init__(self, case: Case) -> None:
        self.machine, self.rng = case.fresh()
        self.tokens = 0
        self.process = EDGE_PROCESS
        self.asked = 0

    def blocks(self, budgets: FloatArray, count: int, first: int) -> Trials:
        trials = sweep(self.machine, budgets, count, self.rng, first_process=first)
        self.tokens += int(trials.budget.sum()) + count * int(budgets.max())
        return trials

    def single(self, budget: int, longest: int) -> float:
        """Log seconds of one trial with its full count of tokens."""
        while True:
            if self.asked % QUERIES_PER_PROCESS == 0:
                self.process += 1
                self.machine.run([longest], self.process)
                self.tokens += longest
            self.asked += 1
            trial = self.machine.run([budget], self.process)
            self.tokens += budget
            if trial.output_tokens[0] == budget:
                return float(np.log(trial.seconds[0]))


def candidates_of(case: Case, intervals: Sequence[Interval], curve: Curve) -> list[Candidate]:
    """First, middle and last budget of each interval with the nearest normal ones as controls."""
    slow = np.zeros(case.steps.size, dtype=bool)
    for start, end in intervals:
        slow[start:end] = True
    normal = np.flatnonzero(~slow)
    expected = predict_log(curve, case.steps)
    found = []
    for start, end in sorted(intervals):
        before, after = normal[normal < start], normal[normal >= end]
        if before.size and after.size:
            left, right = int(before[-1]), int(after[0])
            inside = sorted({start, (start + end - 1) // 2, end - 1})
            found.append(
                Candidate(
                    tuple(float(case.steps[k]) for k in inside),
                    (float(case.steps[left]), float(case.steps[right])),
                    (float(expected[left]), float(expected[right])),
                )
            )
    return found


def confirmed(case: Case, intervals: Sequence[Interval], curve: Curve | None) -> Outcome:
    """Confirm intervals of a screen, judge their shape on all trials, and locate their edges.

    Args:
        case: the sweep with its machine.
        intervals: half-open index intervals that a method suspects.
        curve: expected latency as the method knows it; without one nothing can be confirmed.
    """
    candidates = [] if curve is None else candidates_of(case, intervals, curve)
    if curve is None or not candidates:
        return Outcome((), 0, 0)
    inquiry = _Inquiry(case)
    state, trials = _looks(inquiry, candidates)
    regimes: tuple[Found, ...] = ()
    if state.cores:
        refitted = spike_curve(case, trials)
        if refitted is not None:
            regimes = tuple(
                _located(inquiry, core, candidates[core.candidate], trials, refitted)
                for core in state.cores
            )
    return Outcome(regimes, inquiry.tokens, state.blocks)


def spike_curve(case: Case, fresh: Sequence[Trials]) -> Curve | None:
    """Curve of all trials together if they still make a SPIKE; None if they do not."""
    summary = summarized(joined([case.trials, *fresh]))
    result = classify(
        summary.steps,
        summary.log_s,
        repeats=summary.repeats,
        sigma=summary.sigma,
        degree=case.degree,
    )
    return result.baseline if result.shape == "SPIKE" else None


def _looks(inquiry: _Inquiry, candidates: list[Candidate]) -> tuple[Confirmation, list[Trials]]:
    """Measure block after block until the confirmation is done."""
    state = confirm(candidates, NO_TRIALS)
    trials: list[Trials] = []
    while state.next_look is not None:
        budgets = np.array(state.wanted) + 1
        first = CONFIRM_PROCESS + state.blocks
        trials.append(inquiry.blocks(budgets, state.next_look - state.blocks, first))
        state = confirm(candidates, _fresh(trials))
    return state, trials


def _fresh(trials: Sequence[Trials]) -> FreshTrials:
    """Trials with their full count of tokens, as the confirmation reads them."""
    rows = joined(trials)
    right = rows.output_tokens == rows.budget
    return FreshTrials(rows.budget[right] - 1.0, np.log(rows.seconds[right]), rows.block[right])


def _located(
    inquiry: _Inquiry, core: Core, candidate: Candidate, trials: Sequence[Trials], curve: Curve
) -> Found:
    """Search both edges of a confirmed core and estimate its slowdown."""
    steps = np.array(core.steps)
    reading = core_reading(core, candidate, _fresh(trials), predict_log(curve, steps))
    errors = label_errors(reading.control_excess, reading.core_excess, reading.delta)
    edges = [
        _search(inquiry, (int(low) + 1, int(high) + 1), edge, reading, errors, curve)
        for edge, (low, high) in (("onset", core.onset), ("recovery", core.recovery))
    ]
    slowdown = slowdown_interval(
        reading.log_slowdown,
        np.nan_to_num(log_standard_error(curve, steps)),
        sigma=_scale(reading.control_excess),
        controls=reading.control_excess.size,
    )
    return Found(edges[0], edges[1], slowdown)


def _scale(excess: FloatArray) -> float:
    return 1.4826 * float(np.median(np.abs(excess - np.median(excess))))


def _search(
    inquiry: _Inquiry,
    bracket: tuple[int, int],
    edge: str,
    reading: CoreReading,
    errors: LabelErrors,
    curve: Curve,
) -> Boundary:
    """Ask the machine where the edge is, one trial at a time."""
    queries: list[int] = []
    slow: list[bool] = []
    inquiry.asked = 0  # every edge starts in a process of its own
    longest = bracket[1]
    while True:
        state = locate(
            bracket,
            errors,
            np.array(queries, dtype=np.int64),
            np.array(slow, dtype=bool),
            edge=edge,
        )
        if state.next_query is None:
            return state
        log_s = inquiry.single(state.next_query, longest)
        excess = log_s - float(predict_log(curve, np.array([state.next_query - 1.0]))[0])
        queries.append(state.next_query)
        slow.append(bool(is_slow(np.array([excess]), reading.delta)[0]))
