"""A process run: warm-up by wall time, pauses bridged, failures recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from regimescope.engines.base import EngineRequest, Step
from regimescope.engines.simulated import SimulatedEngine
from regimescope.errors import EngineError
from regimescope.measure.messages import Open
from regimescope.measure.process_run import ProcessRun
from regimescope.metrics import decoded_tokens
from regimescope.records import Cell, PlannedTrial, Series

REQUEST = EngineRequest(
    model="smooth",
    device="virtual",
    dtype="float32",
    seed=0,
    options={"noise": "none", "slope_s": 0.0, "base_s": 0.01, "prefill_s": 0.0},
)
OPENED = Open(
    engine="simulated",
    request=REQUEST,
    occasion="o",
    process_run=4,
    series=Series(engine="simulated", mode="independent"),
    seed=0,
    warm_up_s=3.0,
)


def planned(budget: int, **values: Any) -> PlannedTrial:
    cell = Cell(budget=budget, prompt_tokens=5, kv_cache="on", batch=1)
    return PlannedTrial(trial_id=f"t{budget}", cell=cell, block=1, repeat=2, **values)


@pytest.fixture
def session() -> Any:
    return SimulatedEngine().open(REQUEST)


def test_a_trial_holds_every_gap_and_what_was_asked(session: Any) -> None:
    trial = ProcessRun(OPENED, session).measure(planned(6))
    assert trial.status == "ok"
    assert trial.output_tokens == 6
    assert trial.decode_steps == 5
    assert trial.itl_s == pytest.approx([0.01] * 5)
    assert trial.decode_s == pytest.approx(0.05)
    assert (trial.process_run, trial.block, trial.repeat) == (4, 1, 2)
    assert trial.chunk_tokens is None
    assert trial.idle_before_s is None


def test_the_order_in_the_process_is_recorded(session: Any) -> None:
    run = ProcessRun(OPENED, session)
    assert [run.measure(planned(budget)).order_index for budget in (8, 4, 6)] == [0, 1, 2]


def test_a_warm_up_goes_on_until_its_time_has_passed_and_says_how_often(session: Any) -> None:
    trial = ProcessRun(OPENED, session).measure(planned(101, warmup=True))
    assert trial.warmup
    assert trial.decode_s == pytest.approx(1.0)
    assert trial.counters == {"warm_up_generations": 3.0, "warm_up_s": pytest.approx(3.0)}


def test_a_warm_up_longer_than_its_time_runs_once(session: Any) -> None:
    trial = ProcessRun(OPENED, session).measure(planned(1001, warmup=True))
    assert trial.counters is not None
    assert trial.counters["warm_up_generations"] == 1


def test_a_short_pause_is_recorded_and_left_alone(session: Any) -> None:
    run = ProcessRun(OPENED, session)
    run.measure(planned(8))
    session.clock.sleep(0.75)
    trial = run.measure(planned(8))
    assert trial.idle_before_s == pytest.approx(0.75)
    assert trial.counters is None


def test_a_long_pause_is_bridged_by_an_untimed_burst(session: Any) -> None:
    run = ProcessRun(OPENED, session)
    run.measure(planned(8))
    session.clock.sleep(5.0)
    trial = run.measure(planned(8))
    assert trial.idle_before_s == pytest.approx(0.0)
    assert trial.counters is not None
    assert trial.counters["idle_s"] == pytest.approx(5.0)
    assert trial.counters["burst_s"] >= 0.5
    assert decoded_tokens(trial) >= (trial.output_tokens or 0) + 32
    assert trial.decode_s == pytest.approx(0.07)


def filling(session: Any) -> list[tuple[int, Cell | None]]:
    """Let a session fill positions, which takes it two seconds; return what it is asked for."""
    asked: list[tuple[int, Cell | None]] = []
    decode = session.generate

    def generate(prompt_ids: Sequence[int], cell: Cell) -> Iterator[Step]:
        yield from decode(prompt_ids, replace(cell, depth=None))

    def fill(depth: int, cell: Cell | None = None) -> None:
        asked.append((depth, cell))
        session.clock.sleep(2.0)

    session.fill, session.generate = fill, generate
    return asked


def test_a_depth_is_filled_in_before_the_time_of_its_trial_begins(session: Any) -> None:
    asked = filling(session)
    deep = planned(6)
    deep = replace(deep, cell=replace(deep.cell, depth=100))
    trial = ProcessRun(OPENED, session).measure(deep)
    assert asked == [(100, deep.cell)]
    assert (trial.status, trial.message) == ("ok", None)
    assert trial.ttft_s == pytest.approx(0.0)
    assert trial.e2e_s == pytest.approx(0.05)
    assert trial.start_ns == pytest.approx(2e9)


def test_a_depth_of_zero_takes_an_older_fill_away_and_no_depth_asks_nothing(session: Any) -> None:
    asked = filling(session)
    shallow = planned(6)
    run = ProcessRun(OPENED, session)
    run.measure(shallow)
    assert asked == []
    run.measure(replace(shallow, cell=replace(shallow.cell, depth=0)))
    assert [depth for depth, _ in asked] == [0]


def test_a_fill_that_fails_makes_a_failed_trial(session: Any) -> None:
    def fill(depth: int, cell: Cell | None = None) -> None:
        raise EngineError("no memory for a KV cache")

    session.fill = fill
    deep = planned(6)
    trial = ProcessRun(OPENED, session).measure(replace(deep, cell=replace(deep.cell, depth=9)))
    assert trial.status == "failed"
    assert trial.message == "EngineError: no memory for a KV cache"


@pytest.mark.parametrize("error", [EngineError("broke"), RuntimeError("out of memory")])
def test_an_engine_that_fails_makes_a_failed_trial_and_the_process_goes_on(
    session: Any, error: Exception
) -> None:
    good = session.generate

    def generate(prompt_ids: Sequence[int], cell: Cell) -> Iterator[Step]:
        if cell.budget == 7:
            raise error
        yield from good(prompt_ids, cell)

    session.generate = generate
    run = ProcessRun(OPENED, session)
    failed = run.measure(planned(7))
    assert failed.status == "failed"
    assert str(error) in (failed.message or "")
    assert failed.e2e_s is None
    assert failed.itl_s is None
    assert run.measure(planned(8)).status == "ok"


def test_a_failing_warm_up_ends_instead_of_repeating_for_ever(session: Any) -> None:
    request = replace(REQUEST, options=REQUEST.options | {"fail_budgets": [9]})
    run = ProcessRun(OPENED, SimulatedEngine().open(request))
    assert run.measure(planned(9, warmup=True)).status == "failed"


def test_chunks_of_several_tokens_are_counted_and_kept(session: Any) -> None:
    session.generate = lambda prompt_ids, cell: iter([Step(1), Step(4), Step(3)])
    trial = ProcessRun(OPENED, session).measure(planned(8))
    assert trial.output_tokens == 8
    assert trial.chunk_tokens == [1, 4, 3]
