"""A plan that grows: what a search wants becomes planned trials. Layer: above ``plan``.

Each growth is stored as an event, so that a run that was cut short is taken up with the plan it
had; the search is asked again only when everything planned is measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from regimescope import axes
from regimescope.errors import RunFolderError
from regimescope.plan import base_cell, refuse_impossible, with_sentinels, with_warm_up
from regimescope.records import Event, Plan, PlannedProcess, PlannedTrial, Stage
from regimescope.search.decision import Measure, Visit
from regimescope.spec import ScanSpec

# First letters of trial ids; each phase has its own.
LETTERS: dict[Stage, str] = {
    "calibrate": "c",
    "screen": "s",
    "rerun": "r",
    "extend": "x",
    "confirm": "k",
    "boundary": "e",
    "final": "z",
    "adjacency": "a",
}
# The sentinel stands after so many visits that come one by one (method, 1.2).
VISITS_PER_SENTINEL = 4


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """What was added to a plan at once.

    Attributes:
        goes_on: Whether the trials extend the last process run instead of starting new ones.
        processes: The trials added, by process run.
    """

    goes_on: bool
    processes: tuple[PlannedProcess, ...]


def growth(plan: Plan, spec: ScanSpec, wanted: Measure) -> Growth:
    """Return planned trials for what a search wants: random order, sentinels, warm-ups.

    Args:
        plan: The plan so far.
        spec: The settings.
        wanted: The visits.
    """
    if wanted.goes_on:
        last = plan.processes[-1]
        number = len(plan.processes) - 1
        added = _added(spec, wanted, last, number)
        return Growth(goes_on=True, processes=(PlannedProcess(arm="warm", trials=added),))
    first = len(plan.processes)
    processes = tuple(
        _process(spec, wanted, visits, first + k, _next_block(plan) + k)
        for k, visits in enumerate(wanted.processes)
    )
    return Growth(goes_on=False, processes=processes)


def grown(plan: Plan, added: Growth) -> Plan:
    """Return a plan with what was added to it."""
    if not added.goes_on:
        return replace(plan, processes=(*plan.processes, *added.processes))
    *others, last = plan.processes
    (more,) = added.processes
    return replace(plan, processes=(*others, replace(last, trials=(*last.trials, *more.trials))))


def to_facts(wanted: Measure, added: Growth) -> dict[str, Any]:
    """Return a growth as the facts of an event."""
    facts: dict[str, Any] = msgspec.to_builtins(added)
    return facts | {"stage": wanted.stage}


def replayed(plan: Plan, events: Iterable[Event]) -> Plan:
    """Return the plan that a run had when it was cut short.

    Raises:
        RunFolderError: The events hold no growth where one should be.
    """
    for event in events:
        if event.kind != "phase" or not event.facts:
            continue
        try:
            added = msgspec.convert(event.facts, Growth)
            refuse_impossible(added.processes)
            plan = grown(plan, added)
        except (msgspec.ValidationError, ValueError, IndexError) as error:
            raise RunFolderError(
                f"events.jsonl: a phase cannot be read: {error}.",
                remedy="The file is damaged; restore it.",
            ) from error
    return plan


def _process(
    spec: ScanSpec, wanted: Measure, visits: tuple[Visit, ...], number: int, block: int
) -> PlannedProcess:
    """Return a process run with its warm-up and sentinels."""
    random = np.random.default_rng((spec.seed, number))
    shuffled = [visits[k] for k in random.permutation(len(visits))]
    trials = tuple(
        _trial(spec, wanted.stage, visit, number, k, block) for k, visit in enumerate(shuffled)
    )
    closes = wanted.stage != "boundary"
    return with_warm_up(spec, "warm", with_sentinels(spec, trials, closes=closes))


def _added(
    spec: ScanSpec, wanted: Measure, last: PlannedProcess, number: int
) -> tuple[PlannedTrial, ...]:
    """Return trials that go on in the process run that is measuring."""
    (visits,) = wanted.processes
    random = np.random.default_rng((spec.seed, number, len(last.trials)))
    start = sum(trial.counts for trial in last.trials)
    block = last.trials[-1].block
    trials = tuple(
        _trial(spec, wanted.stage, visits[k], number, start + place, block)
        for place, k in enumerate(random.permutation(len(visits)))
    )
    if len(trials) > 1:
        # The sentinel that closed what was measured before opens this, too.
        return with_sentinels(spec, trials, opens=False, first=_sentinels(last))
    if spec.sentinel_every and (start + 1) % VISITS_PER_SENTINEL == 0:
        closing = with_sentinels(spec, trials, opens=False, first=_sentinels(last))
        return closing
    return trials


def _sentinels(process: PlannedProcess) -> int:
    """Return the number of sentinels of a process run."""
    return sum(trial.sentinel for trial in process.trials)


def _trial(
    spec: ScanSpec, stage: Stage, visit: Visit, number: int, place: int, block: int
) -> PlannedTrial:
    """Return one planned trial."""
    return PlannedTrial(
        trial_id=f"{LETTERS[stage]}{number:03d}.{place:03d}.{visit.value:06d}",
        cell=axes.at(base_cell(spec), spec.axis, visit.value),
        block=block,
        repeat=place,
        stage=stage,
        expectation=visit.expectation,
    )


def _next_block(plan: Plan) -> int:
    """Return the first free ordinal of a block."""
    return 1 + max((t.block for p in plan.processes for t in p.trials), default=-1)
