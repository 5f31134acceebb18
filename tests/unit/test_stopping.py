"""Limits stop before the trial they forbid; the sentinel tells drift from scatter."""

from __future__ import annotations

import math

import numpy as np
import pytest

from regimescope.errors import SpecError
from regimescope.plan import make_plan
from regimescope.reasons import Reason
from regimescope.records import Cell, Event, PlannedTrial, Run, RunHeader, Series, Trial
from regimescope.spec import ScanSpec
from regimescope.stopping import Limits, Speed, StopMeasuring, vetoes

SPEC = ScanSpec(budgets=(16, 32), sentinel_every=0)


def trial(decode_s: float, *, process: int = 0, block: int = 0, sentinel: bool = True) -> Trial:
    return Trial(
        trial_id="t",
        occasion="o",
        series=Series(engine="simulated"),
        cell=Cell(budget=32),
        status="ok",
        warmup=False,
        sentinel=sentinel,
        phase="decode",
        process_run=process,
        block=block,
        decode_s=decode_s,
        e2e_s=decode_s,
        output_tokens=32,
    )


def planned(budget: int) -> PlannedTrial:
    return PlannedTrial(trial_id="p", cell=Cell(budget=budget), block=0, repeat=0)


def limits(done: int = 0, **values: float) -> Limits:
    spec = ScanSpec(budgets=(16, 32), sentinel_every=0, **values)  # type: ignore[arg-type]
    return Limits(spec, [trial(1.0)] * done, virtual=True)


def test_without_limits_nothing_stops() -> None:
    unlimited = limits(done=1000)
    unlimited.check(planned(10**6))
    assert unlimited.timeout_s(planned(10**6)) == SPEC.trial_timeout_s


def test_the_token_limit_counts_earlier_invocations_and_looks_ahead() -> None:
    limits(max_tokens=100).check(planned(100))
    limits(done=2, max_tokens=100).check(planned(36))
    with pytest.raises(StopMeasuring, match="100 tokens") as caught:
        limits(done=2, max_tokens=100).check(planned(37))
    assert caught.value.reason is Reason.LIMIT_REACHED


def test_the_time_limit_stops_after_the_trial_that_met_it() -> None:
    spent = limits(max_seconds=10.0)
    plan = make_plan(SPEC)
    spent.count(trial(9.5), plan)
    spent.check(planned(16))
    spent.count(trial(0.6), plan)
    with pytest.raises(StopMeasuring, match=r"10\.0 s"):
        spent.check(planned(16))


def warm_up(e2e_s: float) -> Trial:
    made = trial(e2e_s, sentinel=False)
    return Trial(
        **{name: getattr(made, name) for name in made.__struct_fields__} | {"warmup": True}
    )


def test_a_time_limit_without_room_for_a_block_is_refused_once_the_speed_is_known() -> None:
    with pytest.raises(SpecError, match="no room") as caught:
        # 32 tokens took 8 s, so that a block of 32 + 16 + 32 needs 20 s.
        limits(max_seconds=19.0).count(warm_up(8.0), make_plan(SPEC))
    assert "20.0 s" in caught.value.remedy
    limits(max_seconds=21.0).count(warm_up(8.0), make_plan(SPEC))


def test_the_timeout_follows_the_warm_up_within_its_bounds() -> None:
    for warm_up_s, expected in ((0.1, 60.0), (10.0, 500.0), (100.0, 3600.0)):
        scaled = limits()
        assert scaled.timeout_s(planned(32)) == 3600.0
        scaled.count(warm_up(warm_up_s), make_plan(SPEC))
        assert scaled.timeout_s(planned(32)) == pytest.approx(expected)


def test_a_warm_up_may_take_its_repetitions_too() -> None:
    first = PlannedTrial(trial_id="w", cell=Cell(budget=32), block=0, repeat=0, warmup=True)
    assert limits(trial_timeout_s=2.0, warm_up_s=100.0).timeout_s(first) > 100.0


def shift_of(*levels: float, before: Speed | None = None) -> float | None:
    speed = before or Speed()
    for level in levels:
        speed.add(trial(level, process=99))
    return speed.shift(99, 0)


def test_a_sentinel_that_slows_down_within_a_block_is_seen() -> None:
    assert shift_of(1.0, 1.0, 1.3, 1.3) == pytest.approx(1.3)
    assert shift_of(1.3, 1.3, 1.0, 1.0) == pytest.approx(1 / 1.3)


def test_less_than_a_tenth_is_no_shift_and_one_sentinel_tells_nothing() -> None:
    assert shift_of(1.0, 1.0, 1.09, 1.09) is None
    assert shift_of(1.0) is None
    assert shift_of() is None


def test_a_noisy_sentinel_must_move_by_more_than_its_scatter() -> None:
    random = np.random.default_rng(3)
    noisy = Speed()
    for process in range(12):
        for _ in range(4):
            noisy.add(trial(math.exp(0.3 * random.standard_normal()), process=process))
    assert shift_of(1.0, 1.0, 1.3, 1.3, before=noisy) is None
    assert shift_of(1.0, 1.0, 1.3, 1.3) is not None


def test_a_slow_process_is_no_drift() -> None:
    speed = Speed()
    for process, level in enumerate([1.0, 3.0, 1.0]):
        for _ in range(4):
            speed.add(trial(level, process=process))
    assert [speed.shift(process, 0) for process in range(3)] == [None] * 3


def test_other_trials_are_not_sentinels() -> None:
    speed = Speed()
    for level in (1.0, 1.0, 5.0, 5.0):
        speed.add(trial(level, sentinel=False))
    assert speed.shift(0, 0) is None


def test_vetoes_are_read_back_from_events() -> None:
    header = RunHeader(schema_version=1, run="r", created_utc="now")
    events = tuple(
        Event(kind=kind, at_utc="now", message="", facts={"block": block})  # type: ignore[arg-type]
        for kind, block in (("veto", 4), ("veto", 4), ("stop", 4), ("veto", 1))
    )
    assert vetoes(Run(header=header, trials=(), events=events)) == {4: 2, 1: 1}
