"""Sentinels over several invocations: each part of a block is judged, each attempt by itself."""

from __future__ import annotations

import pytest

from regimescope.records import Cell, Series, Trial
from regimescope.stopping import Speed


def sentinel(decode_s: float, *, process: int, block: int = 0, attempt: int = 0) -> Trial:
    return Trial(
        trial_id="s.r" + str(attempt) if attempt else "s",
        occasion="o",
        series=Series(engine="simulated"),
        cell=Cell(budget=32),
        status="ok",
        warmup=False,
        sentinel=True,
        phase="decode",
        process_run=process,
        block=block,
        decode_s=decode_s,
    )


def test_a_block_in_two_processes_is_judged_by_its_worse_part() -> None:
    steady = [sentinel(1.0, process=0), sentinel(1.0, process=0)]
    moved = [sentinel(2.0, process=1), sentinel(3.0, process=1)]
    assert Speed(steady).drift(0) is None
    assert Speed([*steady, *moved]).drift(0) == pytest.approx(1.5)
    assert Speed([*moved, *steady]).drift(0) == pytest.approx(1.5)
    assert Speed([*steady, *moved]).drift(1) is None


def test_levels_of_different_processes_are_not_compared() -> None:
    assert Speed([sentinel(1.0, process=0), sentinel(3.0, process=1)]).drift(0) is None


def test_a_speedup_weighs_like_a_slowdown() -> None:
    parts = [(0, 1.0), (0, 1.2), (1, 3.0), (1, 1.0)]
    found = Speed(sentinel(level, process=process) for process, level in parts).drift(0)
    assert found == pytest.approx(1 / 3)


def test_a_vetoed_attempt_is_not_judged_again() -> None:
    first = [sentinel(1.0, process=0), sentinel(2.0, process=0)]
    second = [sentinel(1.0, process=1, attempt=1), sentinel(1.0, process=1, attempt=1)]
    assert Speed([*first, *second], {0: 1}).drift(0) is None
    assert Speed([*first, *second]).drift(0) == pytest.approx(2.0)


def test_a_block_that_is_forgotten_starts_anew() -> None:
    speed = Speed([sentinel(1.0, process=0), sentinel(2.0, process=0)])
    speed.forget(0)
    assert speed.drift(0) is None
    for level in (2.0, 2.0):
        speed.add(sentinel(level, process=1, attempt=1))
    assert speed.drift(0) is None
