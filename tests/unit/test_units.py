"""Quantities as people read them."""

from __future__ import annotations

import pytest

from regimescope.units import count


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "process", "1 process"),
        (2, "process", "2 processes"),
        (0, "trial", "0 trials"),
        (1200, "half-written line", "1,200 half-written lines"),
        (3, "batch", "3 batches"),
        (2, "query", "2 queries"),
        (2, "day", "2 days"),
    ],
)
def test_a_noun_is_in_the_plural_unless_there_is_one(number: int, noun: str, text: str) -> None:
    assert count(number, noun) == text
