"""What a search knows when it decides: trials, plan, and what cannot be had. Layer: ``search``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from regimescope import axes
from regimescope.records import Plan, PlannedTrial, Stage, Trial
from regimescope.search.decision import Measure
from regimescope.search.evidence import Evidence, gather
from regimescope.spec import Axis, ScanSpec

# A value that failed three times in a phase, and more often than not, is not asked there again.
MOST_ATTEMPTS = 3


class Known(NamedTuple):
    """What the finished trials say, and what is planned.

    Attributes:
        evidence: One row per trial.
        planned: Process runs planned for each phase.
        asked: Trials planned in each phase at each value.
        checks: Values of each process run of the final check.
        confirming: Blocks of the confirmation of which every trial is finished, ascending.
        trials: The finished trials.
        plan: The plan so far.
        skipped: Values that are not tried again.
    """

    evidence: Evidence
    planned: Counter[Stage]
    asked: Counter[tuple[Stage, int]]
    checks: tuple[frozenset[int], ...]
    confirming: tuple[int, ...]
    trials: Sequence[Trial]
    plan: Plan
    skipped: frozenset[int]

    def is_lost(self, stage: Stage, value: int) -> bool:
        """Return whether asking for a value again in a phase is of no use."""
        if value in self.skipped:
            return True
        rows = self.evidence.of(stage)
        answers = int((rows.value == value).sum())
        failures = self.asked[stage, value] - answers
        return failures >= MOST_ATTEMPTS and failures > answers

    def living(self, wanted: Measure) -> Measure | None:
        """Return visits without those of no use; ``None`` where none is left."""
        kept = tuple(
            tuple(visit for visit in visits if not self.is_lost(wanted.stage, visit.value))
            for visits in wanted.processes
        )
        processes = tuple(visits for visits in kept if visits)
        return wanted._replace(processes=processes) if processes else None


def know(spec: ScanSpec, plan: Plan, trials: Sequence[Trial], skipped: Collection[int]) -> Known:
    """Return what trials and plan of a search tell.

    Args:
        spec: Its settings.
        plan: The plan so far.
        trials: Finished trials whose block stands.
        skipped: Values that are not tried again.
    """
    planned: Counter[Stage] = Counter()
    asked: Counter[tuple[Stage, int]] = Counter()
    checks: list[frozenset[int]] = []
    for process in plan.processes:
        places = [place for t in process.trials if (place := _place(t, spec.axis))]
        planned.update({stage for stage, _ in places})
        asked.update(places)
        if final := frozenset(value for stage, value in places if stage == "final"):
            checks.append(final)
    return Known(
        evidence=gather(trials, spec.axis, timeout_s=spec.trial_timeout_s),
        planned=planned,
        asked=asked,
        checks=tuple(checks),
        confirming=_finished_blocks(plan, trials, spec.axis),
        trials=trials,
        plan=plan,
        skipped=frozenset(skipped),
    )


def _place(planned: PlannedTrial, axis: Axis) -> tuple[Stage, int] | None:
    """Return phase and value of a trial that a search asked for."""
    value = axes.value(planned.cell, axis)
    return None if planned.stage is None or value is None else (planned.stage, value)


def _finished_blocks(plan: Plan, trials: Sequence[Trial], axis: Axis) -> tuple[int, ...]:
    """Return the blocks of the confirmation of which each trial came to an end, whatever it was.

    A block cut short is not looked at: what it lacks depends on how far it came, and so perhaps on
    what it measured (method, section 5).
    """
    done = Counter((t.block, axes.value(t.cell, axis)) for t in trials if t.stage == "confirm")
    wanted: dict[int, Counter[tuple[int | None, int | None]]] = {}
    for process in plan.processes:
        for trial in process.trials:
            if trial.stage == "confirm":
                place = trial.block, axes.value(trial.cell, axis)
                wanted.setdefault(trial.block, Counter())[place] += 1
    return tuple(sorted(block for block, places in wanted.items() if places <= done))
