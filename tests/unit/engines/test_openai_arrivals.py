"""Tokens that had been waiting are told from tokens that came one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from regimescope.engines.base import Step
from regimescope.engines.openai_arrivals import WAITED_NS, Arrivals
from regimescope.errors import EngineError
from regimescope.reasons import Reason


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.value_ns = 0

    def now_ns(self) -> int:
        return self.value_ns

    def sleep(self, duration_s: float) -> None:
        self.value_ns += round(duration_s * 1e9)


def watch(waits: Sequence[int], tokens: Sequence[int] | None = None) -> tuple[Arrivals, list[Step]]:
    """Let each step come so many nanoseconds after it was asked for."""
    clock = Hand()
    arrivals = Arrivals(clock)

    def steps() -> Iterator[Step]:
        for wait, count in zip(waits, tokens or [1] * len(waits), strict=True):
            clock.value_ns += wait
            yield Step(count)

    return arrivals, list(arrivals.watch(steps()))


SLOW, FAST = WAITED_NS, WAITED_NS - 1


def test_tokens_one_by_one_pass_unchanged() -> None:
    arrivals, steps = watch([0] + [SLOW] * 9)
    assert steps == [Step()] * 10
    assert (arrivals.bunched, arrivals.reasons()) == (0, ())


@pytest.mark.parametrize(
    ("waits", "told"),
    [
        ([SLOW, FAST, SLOW, SLOW], "1 arrived together with the first one and 0"),
        ([SLOW, SLOW, SLOW, FAST], "0 arrived together with the first one and 1"),
        ([SLOW, FAST, SLOW, FAST], "1 arrived together with the first one and 1"),
        ([SLOW, FAST, FAST, FAST], "3 arrived together with the first one and 0"),
        ([SLOW, FAST], "1 arrived together"),
    ],
)
def test_tokens_that_waited_at_an_end_leave_no_total(waits: list[int], told: str) -> None:
    with pytest.raises(EngineError, match=told) as error:
        watch(waits)
    assert error.value.reason is Reason.CHUNKED_STREAM


def test_one_token_of_twenty_at_an_end_is_borne_and_counted() -> None:
    arrivals, _ = watch([SLOW, FAST] + [SLOW] * 19)
    assert (arrivals.bunched, arrivals.reasons()) == (1, ())
    with pytest.raises(EngineError, match="1 arrived"):
        watch([SLOW, FAST] + [SLOW] * 18)


def test_tokens_that_waited_in_the_middle_spoil_the_gaps_only() -> None:
    arrivals, steps = watch([SLOW, SLOW, FAST, FAST, SLOW, SLOW])
    assert len(steps) == 6
    assert arrivals.bunched == 2
    assert arrivals.reasons() == (Reason.CHUNKED_STREAM,)


def test_tokens_are_judged_not_chunks() -> None:
    with pytest.raises(EngineError, match="of 41 tokens 20 arrived"):
        watch([SLOW, FAST, SLOW], [1, 20, 20])


def test_a_single_token_has_nothing_to_be_judged() -> None:
    arrivals, steps = watch([0])
    assert (steps, arrivals.bunched, arrivals.reasons()) == ([Step()], 0, ())
