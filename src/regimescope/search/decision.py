"""What a search wants next: visits to measure, or to end. Layer: ``search``."""

from __future__ import annotations

from typing import NamedTuple

from regimescope.reasons import Reason
from regimescope.records import Expectation, Stage


class Visit(NamedTuple):
    """One trial that is wanted.

    Attributes:
        value: Place on the swept axis.
        expectation: What its steps should take, where it may be ended early.
    """

    value: int
    expectation: Expectation | None = None


class Measure(NamedTuple):
    """Visits that are wanted next.

    Attributes:
        stage: Phase of the search.
        message: Why, in one line for people.
        processes: Visits of each process run, in any order: they are shuffled.
        goes_on: Whether the visits belong to the process run that is measuring now; there is one
            entry in ``processes`` then.
    """

    stage: Stage
    message: str
    processes: tuple[tuple[Visit, ...], ...]
    goes_on: bool = False


class Finish(NamedTuple):
    """Nothing more is wanted.

    Attributes:
        message: Why, in one line for people.
        reason: What could not be settled, if anything.
    """

    message: str
    reason: Reason | None = None


Decision = Measure | Finish
