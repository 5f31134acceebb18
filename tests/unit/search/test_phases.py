"""A search ends whatever fails, and says what it could not settle."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.unit.search.machine import Law, Searched, searched, slow_between, spec_of

from regimescope.reasons import Reason
from regimescope.records import Stage
from regimescope.search.confirming import Core
from regimescope.search.known import MOST_ATTEMPTS
from regimescope.search.phases import Search
from regimescope.spec import MAX_BUDGET
from regimescope.stats.confirm import ConfirmationRule

SLOW = (512, 640)


def failing(stage: Stage, value: int | None = None, *, first: int = 0) -> Law:
    """Return a slow machine that fails in a phase, from the given visit on."""
    law = slow_between(*SLOW)

    def broken(at: Stage, place: int, before: int) -> float | None:
        hit = at == stage and value in (None, place) and before >= first
        return None if hit else law(at, place, before)

    return broken


@pytest.fixture(scope="module")
def whole() -> Searched:
    return searched(slow_between(*SLOW))


def test_a_machine_without_failures_is_searched_to_both_edges(whole: Searched) -> None:
    assert whole.finish.reason is None
    assert whole.finish.message.endswith("from 512")
    assert len(_cores(whole)) == 1


def test_boundary_values_that_always_fail_are_given_up_and_said_so() -> None:
    law = slow_between(*SLOW)

    def broken(stage: Stage, value: int, before: int) -> float | None:
        return None if stage == "boundary" and value < 560 else law(stage, value, before)

    found = searched(broken)
    asked = found.asked("boundary")
    assert max(n for value, n in asked.items() if value < 560) == MOST_ATTEMPTS
    assert found.finish.reason is Reason.BACKEND_FAILURES
    # The other edge is not lost with it.
    assert 640 in asked


def test_a_confirmation_in_which_everything_fails_ends() -> None:
    found = searched(failing("confirm"))
    assert found.finish.reason is Reason.BACKEND_FAILURES
    assert max(found.asked("confirm").values()) == ConfirmationRule().looks[0]
    assert not found.asked("boundary")


def test_a_tested_value_that_fails_does_not_hold_up_the_others(whole: Searched) -> None:
    middle = sorted(v for v in whole.asked("confirm") if SLOW[0] <= v < SLOW[1])[1]
    found = searched(failing("confirm", middle))
    assert found.asked("confirm")[middle] <= ConfirmationRule().looks[-1]
    assert found.asked("boundary")


@pytest.mark.parametrize("stage", ["calibrate", "screen", "rerun", "extend", "final", "adjacency"])
def test_a_phase_in_which_everything_fails_ends(stage: Stage) -> None:
    found = searched(failing(stage))
    assert max(found.asked(stage).values(), default=0) <= 6


def test_nothing_measured_is_no_clean_machine() -> None:
    found = searched(lambda stage, value, before: None)
    assert found.finish.reason is Reason.BACKEND_FAILURES
    assert "too few values" in found.finish.message


def test_a_contradiction_whose_repeats_fail_is_not_asked_for_ever() -> None:
    law = slow_between(*SLOW)

    def odd(stage: Stage, value: int, before: int) -> float | None:
        inside = SLOW[0] <= value < SLOW[1]
        if stage == "confirm" and not before and not inside:
            return 0.125 * value  # labels that err, so that a single one decides nothing
        if stage != "adjacency":
            return law(stage, value, before)
        # The opposite of what the edges say, once; then nothing.
        return None if before else 0.0125 * value * (1.0 if inside else 10.0)

    found = searched(odd)
    assert max(found.asked("adjacency").values()) == 3


def test_values_that_are_not_tried_again_are_never_asked(whole: Searched) -> None:
    skipped = {t.cell.budget or 0 for t in whole.trials if t.stage in ("screen", "boundary")}
    found = searched(slow_between(*SLOW), skipped=skipped)
    assert not skipped & {t.cell.budget for t in found.trials}


@pytest.mark.parametrize(
    ("low", "high", "width"), [(100, 105, 40), (64, 70, 1), (64, 1024, 900), (64, 1024, 960)]
)
def test_a_coarse_or_short_search_ends_with_six_values(low: int, high: int, width: int) -> None:
    found = searched(slow_between(1, 1), spec_of(low=low, high=high, min_width=width))
    assert found.finish.reason is None
    assert len({t.cell.budget for t in found.trials}) >= 6


def test_a_stretch_that_fills_the_range_is_looked_at_beyond_both_ends() -> None:
    found = searched(slow_between(*SLOW), spec_of(low=500, high=600))
    looked = found.asked("extend")
    assert min(looked) < 500
    assert max(looked) > 600
    assert set(looked.values()) == {2}
    (core,) = _cores(found, low=500, high=600)
    assert (core.recovery or (0, 0))[0] < 640 <= (core.recovery or (0, 0))[1]


def test_the_range_is_not_extended_past_the_largest_budget() -> None:
    spec = spec_of(low=MAX_BUDGET - 1000, high=MAX_BUDGET - 10, min_width=500)
    found = searched(slow_between(MAX_BUDGET - 300, 2 * MAX_BUDGET, 3.0), spec)
    assert max(t.cell.budget or 0 for t in found.trials) <= MAX_BUDGET


def test_timeouts_of_a_core_give_a_lower_bound_and_no_failure() -> None:
    law = slow_between(*SLOW)

    def hanging(stage: Stage, value: int, before: int) -> float | None:
        late = stage == "confirm" and SLOW[0] <= value < SLOW[1]
        return math.inf if late else law(stage, value, before)

    found = searched(hanging)
    (core,) = _cores(found)
    assert core.bounded_below
    assert all(math.isfinite(z) for z in core.log_slowdown)
    assert not _cores(searched(law))[0].bounded_below


def _cores(found: Searched, **values: Any) -> tuple[Core, ...]:
    confirmation = Search(spec_of(**values)).findings(found.plan, found.trials).confirmation
    assert confirmation is not None
    return confirmation.cores


def test_a_block_cut_short_is_no_look(whole: Searched) -> None:
    confirming = [t for t in whole.trials if t.stage == "confirm"]
    last = max(t.block or 0 for t in confirming)
    cut = [t for t in whole.trials if t.stage != "confirm" or t.block != last]
    cut += [t for t in confirming if t.block == last][:-1]
    before = Search(spec_of()).findings(whole.plan, whole.trials).confirmation
    after = Search(spec_of()).findings(whole.plan, cut).confirmation
    assert before is not None
    assert after is not None
    assert (before.state.looks, after.state.looks) == (1, 0)
    assert after.state.codes == ("too_few_processes",)
    assert after.cores == ()
