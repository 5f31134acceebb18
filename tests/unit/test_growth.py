"""A plan grows by what a search wants, and is the same when it is read back."""

from __future__ import annotations

import pytest

from regimescope.errors import RunFolderError
from regimescope.growth import grown, growth, replayed, to_facts
from regimescope.plan import remaining, without_values
from regimescope.records import Event, Plan
from regimescope.search.decision import Measure, Visit
from regimescope.spec import MAX_BUDGET, ScanSpec

SPEC = ScanSpec(engine="simulated", model="smooth")
EMPTY = Plan(seed=0, processes=())


def wanted(*values: int, goes_on: bool = False) -> Measure:
    return Measure("confirm", "why", (tuple(Visit(v) for v in values),), goes_on=goes_on)


def phase(plan: Plan, measure: Measure) -> Event:
    facts = to_facts(measure, growth(plan, SPEC, measure))
    return Event(kind="phase", at_utc="now", message="why", facts=facts)


def test_a_plan_is_read_back_as_it_grew() -> None:
    plan, events = EMPTY, []
    for measure in (wanted(64, 512, 1024), wanted(700, goes_on=True), wanted(96, 97)):
        events.append(phase(plan, measure))
        plan = grown(plan, growth(plan, SPEC, measure))
    assert replayed(EMPTY, events) == plan
    assert len(plan.processes) == 2


def test_a_value_that_no_spec_allows_is_damage() -> None:
    with pytest.raises(RunFolderError, match="phase cannot be read"):
        replayed(EMPTY, [phase(EMPTY, wanted(MAX_BUDGET + 1))])


def test_a_process_warms_up_at_the_largest_value_that_is_left_to_it() -> None:
    plan = grown(EMPTY, growth(EMPTY, SPEC, wanted(64, 512, 1024)))
    left = without_values(plan, {1024}, (), "budget")
    (process,) = remaining(left, ()).processes
    warm_up, *others = process.trials
    assert warm_up.warmup
    assert warm_up.cell.budget == 512
    assert sorted(t.cell.budget or 0 for t in others if t.counts) == [64, 512]


def test_a_process_without_a_value_left_is_not_opened_for_its_sentinels() -> None:
    plan = grown(EMPTY, growth(EMPTY, SPEC, wanted(512, 1024)))
    assert remaining(without_values(plan, {512, 1024}, (), "budget"), ()).processes == ()
