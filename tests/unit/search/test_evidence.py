"""What a trial says: how long it took, at least how long, or nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest

from regimescope.records import Cell, Series, Trial
from regimescope.search.evidence import attempt_of, gather, sentinel_of, standing

WARM = Series(engine="simulated", arm="warm")


def trial(**values: Any) -> Trial:
    made: dict[str, Any] = {
        "trial_id": "s000.000.000512",
        "occasion": "o",
        "series": WARM,
        "cell": Cell(budget=512),
        "status": "ok",
        "warmup": False,
        "phase": "decode",
        "block": 0,
        "output_tokens": 512,
        "decode_s": 5.0,
    }
    return Trial(**made | values)


def test_a_timeout_counts_as_long_as_it_was_given() -> None:
    hung = {"status": "timeout", "decode_s": None, "output_tokens": None}
    rows = gather([trial(**hung, timeout_s=60.0), trial(**hung)], "budget", timeout_s=3600.0)
    assert rows.log_s.tolist() == pytest.approx([math.log(60), math.log(3600)])
    assert rows.timed_out.tolist() == [True, True]
    assert rows.ranked.tolist() == [math.inf, math.inf]


def test_an_aborted_trial_is_neither_exact_nor_timed_out() -> None:
    rows = gather(
        [trial(status="aborted", projected_s=50.0, output_tokens=32)], "budget", timeout_s=60.0
    )
    assert rows.log_s.tolist() == pytest.approx([math.log(50)])
    assert (rows.exact.tolist(), rows.timed_out.tolist()) == ([False], [False])
    assert rows.ranked.tolist() == rows.log_s.tolist()


def test_failed_and_miscounted_trials_say_nothing() -> None:
    rows = gather([trial(status="failed"), trial(output_tokens=500)], "budget", timeout_s=60.0)
    assert rows.value.size == 0


def test_a_further_visit_belongs_to_the_attempt_of_its_sentinel() -> None:
    assert attempt_of("p000.b000.s001.r2.again1") == 2
    assert attempt_of("p000.b000.s001.r2") == 2
    assert attempt_of("r003.001.000512") == 0
    assert sentinel_of("p000.b000.s001.r2.again1") == "p000.b000.s001.r2"


def test_only_the_latest_attempt_at_a_vetoed_block_stands() -> None:
    ids = ["a", "a.r1", "b.r1.again1", "a.r2", "b.r2.again1"]
    left = standing([trial(trial_id=name) for name in ids], {0: 2})
    assert [t.trial_id for t in left] == ["a.r2", "b.r2.again1"]
