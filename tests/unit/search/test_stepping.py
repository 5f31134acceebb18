"""A slowdown that stays is tested on the latest check alone, and what hangs is slow."""

from __future__ import annotations

import numpy as np

from regimescope.search.evidence import Evidence
from regimescope.search.screening import Place
from regimescope.search.stepping import STEP_ALPHA, STEP_PROCESSES, step_test

PLACE = Place("budget", 2)


def rows(first_block: int, before_s: float, first_s: float, *, late: bool = False) -> Evidence:
    """Return a round of checks at 511 and 512, each in processes of its own."""
    n = STEP_PROCESSES
    random = np.random.default_rng(first_block)
    noise = np.exp(0.02 * random.standard_normal(2 * n))
    value = np.repeat(np.array([511, 512], dtype=np.int64), n)
    hang = np.repeat([False, late], n)
    return Evidence(
        value,
        np.log(np.repeat([before_s, first_s], n) * noise),
        np.tile(np.arange(n, dtype=np.int64), 2) + first_block,
        ~hang,
        hang,
        ("final",) * (2 * n),
    )


def both(*parts: Evidence) -> Evidence:
    columns = [np.concatenate([np.asarray(part[k]) for part in parts]) for k in range(5)]
    return Evidence(*columns, tuple(stage for part in parts for stage in part.stage))


def test_a_jump_passes_and_none_does_not() -> None:
    jump = step_test(rows(0, 5.0, 10.0), 511, 512, PLACE)
    level = step_test(rows(0, 5.0, 5.0), 511, 512, PLACE)
    assert jump is not None
    assert level is not None
    assert jump.p_value < STEP_ALPHA < level.p_value


def test_only_the_latest_round_counts() -> None:
    # The first round chose the values: it must not decide on them as well.
    found = step_test(both(rows(0, 5.0, 10.0), rows(100, 5.0, 5.0)), 511, 512, PLACE)
    assert found is not None
    assert found.size == (STEP_PROCESSES, STEP_PROCESSES)
    assert found.p_value > STEP_ALPHA


def test_what_timed_out_is_ranked_last_and_not_dropped() -> None:
    # The time that they were given is short, so that only their rank shows that they are slow.
    found = step_test(rows(0, 5.0, 5.0, late=True), 511, 512, PLACE)
    assert found is not None
    assert found.p_value < STEP_ALPHA


def test_too_few_processes_decide_nothing() -> None:
    few = rows(0, 5.0, 10.0)
    assert step_test(few.where(few.block < STEP_PROCESSES - 1), 511, 512, PLACE) is None
