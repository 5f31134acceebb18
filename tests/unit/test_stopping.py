"""Limits stop before the trial they forbid; the sentinel tells drift from scatter."""

from __future__ import annotations

import math

import numpy as np
import pytest

from regimescope.errors import SpecError
from regimescope.plan import make_plan
from regimescope.reasons import Reason
from regimescope.records import Cell, Event, PlannedTrial, Run, RunHeader, Series, Trial
from regimescope.search.evidence import AGAIN
from regimescope.spec import ScanSpec
from regimescope.stopping import (
    MAX_LOSSES,
    MOST_AGAIN,
    Limits,
    Losses,
    Speed,
    StopMeasuring,
    granted,
    vetoes,
)

SPEC = ScanSpec(budgets=(16, 32), sentinel_every=0)


def trial(
    decode_s: float,
    *,
    process: int = 0,
    block: int = 0,
    sentinel: bool = True,
    trial_id: str = "t",
) -> Trial:
    return Trial(
        trial_id=trial_id,
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


def test_a_resumed_run_judges_drift_as_the_one_that_went_on() -> None:
    # A block that was vetoed, then an attempt whose second sentinel was slow by accident.
    first = [trial(level, trial_id=f"s{k}") for k, level in enumerate((1.0, 1.0, 1.5, 1.5))]
    second = [
        trial(level, process=1, trial_id=name)
        for name, level in (
            ("s0.r1", 1.0),
            ("s1.r1", 1.0),
            ("s2.r1", 1.5),
            (f"s2.r1{AGAIN}1", 1.0),
            ("s3.r1", 1.5),
            (f"s3.r1{AGAIN}1", 1.0),
        )
    ]
    live = Speed()
    for made in first:
        live.add(made)
    assert live.drift(0) == pytest.approx(1.5)
    live.forget(0)
    for made in second:
        live.add(made)
    resumed = Speed([*first, *second], {0: 1})
    assert live.drift(0) is None
    assert resumed.drift(0) is None
    for speed in (live, resumed):
        speed.add(trial(1.2, process=2, block=1))
    assert live.doubts(2, 1) == resumed.doubts(2, 1)


def test_scatter_of_vetoed_blocks_is_known_after_a_resume() -> None:
    noisy = [
        trial(level, process=k, trial_id=f"s{n}")
        for k in range(4)
        for n, level in enumerate((1.0, 1.4, 1.0, 1.4))
    ]
    attempt = [trial(level, process=9, trial_id=f"s{n}.r1") for n, level in enumerate((1.0, 1.25))]
    assert Speed(attempt, {0: 1}).drift(0) == pytest.approx(1.25)
    assert Speed([*noisy, *attempt], {0: 1}).drift(0) is None


def test_a_sentinel_is_doubted_against_others_and_not_against_itself() -> None:
    speed = Speed()
    for level in (1.0, 1.0, 1.0, 1.5):
        speed.add(trial(level))
    speed.forget(0)
    speed.add(trial(1.0, process=1, block=1))
    assert not speed.doubts(1, 1)
    # The only other part: without its own level among those it is compared with, it stands out.
    alone = Speed()
    for level in (1.0, 1.0):
        alone.add(trial(level))
    alone.forget(0)
    alone.add(trial(1.3, process=1, block=1))
    assert alone.doubts(1, 1)


def test_further_visits_are_bounded_by_their_number() -> None:
    speed = Speed([trial(1.0)])
    speed.add(trial(2.0, block=1, trial_id="s"))
    assert speed.doubts(0, 1)
    for visit in range(1, MOST_AGAIN + 1):
        speed.add(trial(2.0, block=1, trial_id=f"s{AGAIN}{visit}"))
    assert not speed.doubts(0, 1)


def test_a_value_is_given_up_after_losses_in_a_row_only() -> None:
    losses = Losses(Run(header=RunHeader(schema_version=1, run="r", created_utc="now"), trials=()))
    for _ in range(MAX_LOSSES - 1):
        assert not losses.lost(512)
    losses.survived(512)
    assert [losses.lost(512) for _ in range(MAX_LOSSES)] == [False, False, True]
    assert not losses.lost(None)


def resumed(**facts: object) -> Event:
    return Event(kind="resume", at_utc="now", message="", facts=facts or None)


def test_the_latest_limits_that_a_run_was_taken_up_with_hold() -> None:
    spec = ScanSpec(max_tokens=100, max_seconds=5.0)
    assert granted(spec, [resumed()]) == spec
    found = granted(
        spec, [resumed(max_tokens=200), resumed(max_seconds=9), resumed(max_tokens=300)]
    )
    assert (found.max_tokens, found.max_seconds) == (300, 9.0)


def test_a_token_limit_names_the_option_that_lets_the_run_go_on() -> None:
    with pytest.raises(StopMeasuring) as caught:
        limits(max_tokens=100).check(planned(101))
    assert caught.value.options == "--max-tokens 200"
