"""The promise of a search: in force, on conditions, or withdrawn."""

import pytest
from tests.unit.report.builders import make_conclusion, make_guarantee

from regimescope.reasons import Reason
from regimescope.report.promise import promise_sentences
from regimescope.results import Verdict


def sentences(**changes):
    conclusion = make_conclusion(
        Verdict.CLEAN, regimes=(), origin="search", guarantee=make_guarantee(**changes)
    )
    return promise_sentences(conclusion)


def test_without_a_search_nothing_is_promised_and_nothing_said():
    assert promise_sentences(make_conclusion()) == ()


def test_the_promise_names_width_slowdown_and_errors():
    text = "; ".join(sentences())
    assert "at least 40 wide, 1.25x or slower" in text
    assert "at most 1 of 1000 searches" in text
    assert "assumed: independent processes" in text


def test_one_process_speaks_for_itself_alone():
    text = "; ".join(sentences(processes=1))
    assert "was met by the screen in the one process measured" in text
    assert "assumed: other processes like this one" in text


@pytest.mark.parametrize("fresh", [2, 6])
def test_the_final_check_is_shown_with_its_processes(fresh):
    assert f"final check in {fresh} fresh processes" in "; ".join(sentences(final_processes=fresh))


def test_a_search_that_left_its_range_says_so():
    text = sentences(low=500, high=560, looked=(222, 840))[0]
    assert "searched budgets 500 to 560" in text
    assert "looked outside it, from 222 to 840" in text


def test_a_withdrawn_promise_gives_its_reasons_and_promises_nothing():
    lines = sentences(withdrawn=(Reason.LIMIT_REACHED, Reason.GAP_TOO_WIDE), final_processes=2)
    assert lines[-1] == (
        "nothing is promised about what was not found: planned trials are missing: the "
        "run ended early, or they were lost; --resume measures them; the grid has gaps wider than "
        "the regimes looked for"
    )
    assert not any("wide, 1.25x" in line for line in lines)
