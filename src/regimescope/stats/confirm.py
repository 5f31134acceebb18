"""Confirmation of candidates on fresh trials (method section 5).

The error guarantee of the package comes from here and from nowhere else. Fresh trials in random
order make the deflated latencies of a candidate exchangeable with those of its controls when the
candidate is as slow as the margin allows; an exact rank test then needs no law of the noise.
The expected latency of a candidate is the chord between its controls, which no convex curve
exceeds. The state after look k is a function of the blocks up to that look, so that a stored
measurement can be replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from regimescope.stats.arrays import finite_vector
from regimescope.stats.certificate import RankTest
from regimescope.stats.fresh import (
    AGREE,
    EXTEND,
    MISMATCH,
    Candidate,
    ConfirmationRule,
    Core,
    CoreReading,
    FlankCheck,
    FreshTrials,
    Rows,
    checked_trials,
    chord,
    core_reading,
    deflated_test,
    flank_check,
)
from regimescope.stats.multiplicity import holm

__all__ = [
    "ACCEPTED",
    "FUTILE",
    "UNDECIDED",
    "BudgetTest",
    "Candidate",
    "Confirmation",
    "ConfirmationRule",
    "Core",
    "CoreReading",
    "FlankCheck",
    "FreshTrials",
    "chord",
    "confirm",
    "core_reading",
]

ACCEPTED, FUTILE, UNDECIDED = "accepted", "futile", "undecided"


class BudgetTest(NamedTuple):
    """State of one tested axis value.

    Attributes:
        step: the axis value.
        candidate: index of its candidate.
        state: ``accepted``, ``futile`` or ``undecided``.
        p_value: exact, at the last look at which it was open; 1 before any.
        adjusted: the same after Holm's rule over all tested values.
        look: number of that look, from 1; 0 before any.
        size: trials at the value and at the controls.
        tied: whether more than 10 % of the pairs were tied.
    """

    step: float
    candidate: int
    state: str = UNDECIDED
    p_value: float = 1.0
    adjusted: float = 1.0
    look: int = 0
    size: tuple[int, int] = (0, 0)
    tied: bool = False


@dataclass(frozen=True)
class Confirmation:
    """Where the confirmation of a sweep stands.

    Attributes:
        budgets: every tested value, in the order of the candidates.
        flanks: one check per candidate.
        cores: confirmed runs, of candidates that are settled and whose flanks agree.
        looks: looks done.
        blocks: blocks seen.
        next_look: number of blocks at which to ask again; None when done.
        wanted: axis values to visit in each block until then, ascending.
        p_value: of the whole sweep: looks times the least adjusted value, at most 1; candidates
            under a veto do not count.
        codes: among ``too_few_processes``, ``reference_mismatch``, ``tied_timer``.
    """

    budgets: tuple[BudgetTest, ...]
    flanks: tuple[FlankCheck, ...]
    cores: tuple[Core, ...]
    looks: int
    blocks: int
    next_look: int | None
    wanted: tuple[float, ...]
    p_value: float
    codes: tuple[str, ...]

    @property
    def done(self) -> bool:
        """Whether no further block changes anything."""
        return self.next_look is None


class _State:
    """Tested values and flank checks while the looks are replayed."""

    def __init__(self, candidates: Sequence[Candidate], rule: ConfirmationRule) -> None:
        self.candidates = candidates
        self.rule = rule
        self.budgets = [BudgetTest(s, i) for i, c in enumerate(candidates) for s in c.steps]
        self.flanks = [FlankCheck() for _ in candidates]
        # Least adjusted p of each value over the looks, for the p value of the sweep.
        self.least = [1.0] * len(self.budgets)

    def states(self, candidate: int) -> set[str]:
        return {b.state for b in self.budgets if b.candidate == candidate}

    @property
    def undecided(self) -> bool:
        return any(b.state == UNDECIDED for b in self.budgets)

    @property
    def extended(self) -> bool:
        return any(f.state == EXTEND for f in self.flanks)

    def test(self, rows: Rows, look: int, *, decide: bool) -> None:
        """Test every open value; decided ones enter Holm's rule as p = 1."""
        tests = [
            deflated_test(self.candidates[b.candidate], b.step, rows, self.rule.r_min)
            if b.state == UNDECIDED
            else None
            for b in self.budgets
        ]
        adjusted = holm([1.0 if t is None else t.p_value for t in tests])
        for i, (budget, test) in enumerate(zip(self.budgets, tests, strict=True)):
            if test is None:
                continue
            self.least[i] = min(self.least[i], float(adjusted[i]))
            self.budgets[i] = budget._replace(
                state=self._decision(test, float(adjusted[i])) if decide else UNDECIDED,
                p_value=test.p_value,
                adjusted=float(adjusted[i]),
                look=look,
                size=test.size,
                tied=test.tied,
            )

    def _decision(self, test: RankTest, adjusted: float) -> str:
        if min(test.size) == 0:
            return UNDECIDED
        if adjusted <= self.rule.alpha / len(self.rule.looks):
            return ACCEPTED
        return FUTILE if test.p_value > self.rule.futility else UNDECIDED

    def check_flanks(self, rows: Rows, *, last: bool) -> None:
        """Compare the controls of candidates with an accepted value."""
        for i, candidate in enumerate(self.candidates):
            state = self.flanks[i].state
            settled = state == AGREE and UNDECIDED not in self.states(i)
            if ACCEPTED in self.states(i) and not settled:
                self.flanks[i] = flank_check(candidate, rows, self.rule, last=last)

    def wanted(self) -> tuple[float, ...]:
        steps = {b.step for b in self.budgets if b.state == UNDECIDED}
        for i, candidate in enumerate(self.candidates):
            if UNDECIDED in self.states(i) or self.flanks[i].state == EXTEND:
                steps.update(candidate.flanks)
        return tuple(sorted(steps))


def confirm(
    candidates: Sequence[Candidate],
    trials: FreshTrials,
    *,
    rule: ConfirmationRule | None = None,
    final: bool = False,
    blocks: ArrayLike | None = None,
) -> Confirmation:
    """Replay the looks that the finished blocks allow and say where the confirmation stands.

    Args:
        candidates: the candidates of the sweep, fixed before the first block. Two may share a
            flank; no value is tested twice.
        trials: fresh trials of finished blocks so far; values that no candidate names are ignored.
        rule: settings; None for the defaults.
        final: no further block will come. With fewer blocks than the first look needs, p values
            are given and nothing is accepted (``too_few_processes``).
        blocks: labels of the finished blocks, also of those in which every trial failed; trials
            of other blocks do not count. None: the blocks that have a trial.

    Raises:
        ValueError: malformed candidates or trials, or looks that do not ascend.
    """
    settings = rule or ConfirmationRule()
    _check_plan(candidates, settings)
    rows = checked_trials(trials)
    labels = np.unique(rows.block if blocks is None else finite_vector(blocks, "blocks"))
    rows = rows.of(np.isin(rows.block, labels))
    state = _State(candidates, settings)
    looks = 0
    for size in settings.looks:
        if labels.size < size or not (state.undecided or state.extended):
            break
        looks += 1
        seen = rows.of(rows.block <= labels[size - 1])
        state.test(seen, looks, decide=True)
        state.check_flanks(seen, last=looks == len(settings.looks))
    too_few = final and labels.size < settings.looks[0]
    if too_few:
        state.test(rows, 0, decide=False)
    elif final:
        _settle(state, rows)
    return _confirmation(state, looks, labels.size, final=final, too_few=too_few)


def _settle(state: _State, rows: Rows) -> None:
    """Judge open flank checks on what there is, when no further block will come."""
    for i, candidate in enumerate(state.candidates):
        if state.flanks[i].state == EXTEND:
            check = flank_check(candidate, rows, state.rule, last=True)
            # Without the extension the difference may be real and still not significant.
            state.flanks[i] = check if check.state == MISMATCH else check._replace(state=EXTEND)


def _confirmation(
    state: _State, looks: int, blocks: int, *, final: bool, too_few: bool
) -> Confirmation:
    rule = state.rule
    over = final or looks == len(rule.looks) or not (state.undecided or state.extended)
    next_look = None
    if not over:
        # A difference of the controls that does not persist is settled at the next look already;
        # a veto waits for the last.
        next_look = rule.looks[looks]
    vetoed = {i for i, f in enumerate(state.flanks) if f.state == MISMATCH}
    unsettled = any(f.state == EXTEND for f in state.flanks)
    standing = [
        p for b, p in zip(state.budgets, state.least, strict=True) if b.candidate not in vetoed
    ]
    codes = {
        "too_few_processes": too_few or (final and unsettled),
        "reference_mismatch": bool(vetoed),
        "tied_timer": any(b.tied for b in state.budgets),
    }
    return Confirmation(
        budgets=tuple(state.budgets),
        flanks=tuple(state.flanks),
        cores=_cores(state, over=over),
        looks=looks,
        blocks=blocks,
        next_look=next_look,
        wanted=() if over else state.wanted(),
        p_value=min(1.0, len(rule.looks) * min(standing, default=1.0)),
        codes=tuple(code for code, holds in codes.items() if holds),
    )


def _cores(state: _State, *, over: bool) -> tuple[Core, ...]:
    found: list[Core] = []
    for i, candidate in enumerate(state.candidates):
        settled = over or UNDECIDED not in state.states(i)
        if not settled or state.flanks[i].state != AGREE:
            continue
        passed = [b.state == ACCEPTED for b in state.budgets if b.candidate == i]
        points = [candidate.flanks[0], *candidate.steps, candidate.flanks[1]]
        inside = np.array([False, *passed, False])
        changes = np.flatnonzero(np.diff(inside.astype(int)))
        for before, final in zip(changes[::2].tolist(), changes[1::2].tolist(), strict=True):
            onset = (points[before], points[before + 1])
            recovery = (points[final], points[final + 1])
            found.append(Core(i, tuple(points[before + 1 : final + 1]), onset, recovery))
    return tuple(found)


def _check_plan(candidates: Sequence[Candidate], rule: ConfirmationRule) -> None:
    if not rule.looks or list(rule.looks) != sorted(set(rule.looks)) or rule.looks[0] < 1:
        raise ValueError(f"looks must be positive and ascending, got {rule.looks}")
    if rule.r_min < 1:
        raise ValueError(f"r_min must be at least 1, got {rule.r_min}")
    for candidate in candidates:
        low, high = candidate.flanks
        points = finite_vector([low, *candidate.steps, high], "steps of a candidate")
        if points.size < 3 or (np.diff(points) <= 0).any():
            raise ValueError(f"steps must ascend strictly between their flanks, got {points}")
        finite_vector(candidate.log_expected, "log_expected")
    tested = [step for candidate in candidates for step in candidate.steps]
    if len(tested) != len(set(tested)):
        raise ValueError("a step is tested by one candidate only")
