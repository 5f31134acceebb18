"""The plan: complete blocks, seeded order, what is left after an interruption."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from regimescope.engines.base import Capabilities
from regimescope.errors import CapabilityError, SpecError
from regimescope.feasible import check_capabilities, check_limits, check_positions
from regimescope.plan import (
    least_block,
    make_plan,
    measured,
    remaining,
    tokens,
)
from regimescope.records import ModelFacts
from regimescope.spec import ScanSpec

SPEC = ScanSpec(budgets=(16, 32, 48, 64), processes=3, repeats=2, seed=5, sentinel_every=0)


def ids(plan_trials: object) -> list[str]:
    return [trial.trial_id for trial in plan_trials]  # type: ignore[attr-defined]


def test_every_block_visits_every_budget_once() -> None:
    for process in make_plan(SPEC).processes:
        visits = Counter((t.block, t.cell.budget) for t in process.trials if not t.warmup)
        assert len(visits) == 2 * 4
        assert set(visits.values()) == {1}


def test_a_process_starts_with_a_full_length_warm_up() -> None:
    for process in make_plan(SPEC).processes:
        assert [t.warmup for t in process.trials] == [True] + [False] * 8
        assert process.trials[0].cell.budget == 64


def test_ids_are_unique_and_counts_follow_from_the_spec() -> None:
    plan = make_plan(SPEC)
    names = [name for process in plan.processes for name in ids(process.trials)]
    assert len(names) == len(set(names)) == 3 * 9
    assert measured(plan) == 3 * 2 * 4
    assert tokens(plan) == 3 * (64 + 2 * 160)


def test_the_seed_decides_the_order() -> None:
    other = replace(SPEC, seed=6)
    assert make_plan(SPEC) == make_plan(SPEC)
    assert make_plan(SPEC).processes != make_plan(other).processes


def test_orders_differ_between_blocks() -> None:
    plan = make_plan(ScanSpec(budgets=tuple(range(8, 200, 8)), processes=4))
    orders = {tuple(t.cell.budget for t in p.trials if t.counts) for p in plan.processes}
    assert len(orders) == 4


def test_the_fresh_arm_gives_every_trial_its_own_process() -> None:
    spec = ScanSpec(budgets=(16, 32, 48), processes=2, arms=("fresh",))
    plan = make_plan(spec)
    assert len(plan.processes) == 6
    for process in plan.processes:
        warm_up, trial = process.trials
        assert warm_up.warmup
        assert warm_up.cell.budget == trial.cell.budget


def test_nested_mode_plans_one_long_generation_a_block() -> None:
    plan = make_plan(ScanSpec(budgets=(16, 32, 48), processes=2, mode="nested"))
    assert [[t.cell.budget for t in p.trials] for p in plan.processes] == [[48, 48], [48, 48]]


def test_nothing_is_left_when_all_is_finished() -> None:
    plan = make_plan(SPEC)
    finished = {name for process in plan.processes for name in ids(process.trials)}
    assert remaining(plan, finished).processes == ()


def test_what_is_left_repeats_no_finished_trial_and_warms_up_anew() -> None:
    plan = make_plan(SPEC)
    done = ids(plan.processes[0].trials)[:4]
    left = remaining(plan, set(done))
    first = ids(left.processes[0].trials)
    assert not set(first) & set(done)
    assert first[0] == f"{done[0]}.2"
    assert first[1:] == ids(plan.processes[0].trials)[4:]
    assert measured(left) == measured(plan) - 3


def test_a_second_interruption_gets_a_third_warm_up_id() -> None:
    plan = make_plan(SPEC)
    warm_up = plan.processes[0].trials[0].trial_id
    left = remaining(plan, {warm_up, f"{warm_up}.2"})
    assert left.processes[0].trials[0].trial_id == f"{warm_up}.3"


def test_a_budget_beyond_the_positions_is_refused_with_the_limit() -> None:
    model = ModelFacts(device="cpu", dtype="float32", weights="random", vocabulary=9, positions=100)
    with pytest.raises(CapabilityError, match="100 positions") as caught:
        check_positions(ScanSpec(budgets=(32, 64), prompt_tokens=40), model)
    assert "up to 61" in caught.value.remedy
    check_positions(ScanSpec(budgets=(32, 61), prompt_tokens=40), model)


def test_a_prompt_that_fills_the_positions_is_refused() -> None:
    model = ModelFacts(device="cpu", dtype="float32", weights="random", vocabulary=9, positions=100)
    with pytest.raises(CapabilityError) as caught:
        check_positions(ScanSpec(budgets=(32,), prompt_tokens=200), model)
    assert "shorter prompt" in caught.value.remedy


@pytest.mark.parametrize(
    "spec",
    [
        ScanSpec(kv_cache="off"),
        ScanSpec(mode="nested"),
        ScanSpec(batch=2),
        ScanSpec(isolation="inline"),
        ScanSpec(observer=True),
    ],
)
def test_what_an_engine_cannot_do_is_refused_by_its_capabilities(spec: ScanSpec) -> None:
    poor = Capabilities(devices=("cpu",), dtypes=("float32",), modes=("independent",))
    check_capabilities(ScanSpec(), poor)
    with pytest.raises(CapabilityError):
        check_capabilities(spec, poor)


def test_the_order_can_be_ascending_or_descending() -> None:
    for order, budgets in (("ascending", [16, 32, 48, 64]), ("descending", [64, 48, 32, 16])):
        for process in make_plan(replace(SPEC, order=order, repeats=1)).processes:  # type: ignore[arg-type]
            assert [t.cell.budget for t in process.trials if t.counts] == budgets


def test_sentinels_open_and_close_a_block_and_stand_between_its_trials() -> None:
    spec = ScanSpec(budgets=tuple(range(16, 112, 16)), processes=1, sentinel_every=4)
    (process,) = make_plan(spec).processes
    kinds = "".join("w" if t.warmup else "s" if t.sentinel else "." for t in process.trials)
    assert kinds == "ws....s..s"
    assert {t.cell.budget for t in process.trials if t.sentinel} == {32}
    assert len({t.trial_id for t in process.trials}) == len(process.trials)
    assert measured(make_plan(spec)) == 6


def test_both_arms_are_planned_one_after_the_other() -> None:
    plan = make_plan(replace(SPEC, arms=("warm", "fresh"), repeats=1))
    arms = [process.arm for process in plan.processes]
    assert arms == ["warm"] * 3 + ["fresh"] * 12
    names = [name for process in plan.processes for name in ids(process.trials)]
    assert len(names) == len(set(names))


def test_the_observer_arm_measures_each_of_three_budgets_both_ways() -> None:
    plan = make_plan(ScanSpec(budgets=tuple(range(16, 144, 16)), processes=1, observer=True))
    process = plan.processes[-1]
    assert process.arm == "observer"
    visits = Counter((t.cell.budget, t.stamped) for t in process.trials if not t.warmup)
    assert len(visits) == 6
    assert set(visits.values()) == {6}


def test_a_vetoed_block_is_measured_again_under_new_ids() -> None:
    plan = make_plan(replace(SPEC, sentinel_every=2, processes=1))
    done = {t.trial_id for p in plan.processes for t in p.trials}
    assert remaining(plan, done).processes == ()
    (left,) = remaining(plan, done, {1: 2}).processes
    again = [t for t in left.trials if not t.warmup]
    assert {t.block for t in again} == {1}
    assert all(t.trial_id.endswith(".r2") for t in again)
    assert [t.cell.budget for t in again] == [
        t.cell.budget for t in plan.processes[0].trials if t.block == 1
    ]


def test_a_limit_without_room_for_a_block_is_refused_with_the_least_that_works() -> None:
    least = least_block(SPEC)
    assert least == 64 + 160
    check_limits(replace(SPEC, max_tokens=least))
    with pytest.raises(SpecError, match="leaves no room") as caught:
        check_limits(replace(SPEC, max_tokens=least - 1))
    assert f"{least}" in caught.value.remedy
