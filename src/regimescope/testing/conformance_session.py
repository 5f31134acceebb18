"""Checks of how a session behaves: its clock, its counters, what it survives, how it ends.

Layer: ``testing``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from regimescope.doctor import check_synchronization
from regimescope.engines.base import Fills, Generation, Session, TellsGeneration, Waits
from regimescope.errors import RegimescopeError
from regimescope.records import Cell
from regimescope.testing.conformance_subject import (
    BrokenRuleError,
    Subject,
    apply_if,
    demand,
)
from regimescope.units import NS_PER_S

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
# Readings of memory get their unit when they are stored; a second one would be wrong.
_UNITS = ("_bytes", "_s", "_ns", "_w", "_c", "_hz")


def abandoned_generation(subject: Subject) -> None:
    """A generation that nobody reads to its end can be closed, and another one follows."""
    cell = subject.cell()
    ids = subject.ids(cell.prompt_tokens or 1)
    for read in (0, 1, 2):
        steps: Any = subject.session.generate(ids, cell)
        for _ in range(read):
            next(steps)
        closable = callable(getattr(steps, "close", None))
        demand(closable, "generate() gives an iterator that cannot be closed")
        steps.close()
        subject.works(f"after a generation was abandoned at step {read}")


def failing_request(subject: Subject) -> None:
    """A senseless request fails with an error of the package and leaves the session usable."""
    cell = subject.cell()
    length = cell.prompt_tokens or 1
    cases: list[tuple[str, Cell, Sequence[int]]] = [
        ("a budget of 0", subject.cell(budget=0), subject.ids(length)),
        ("an empty prompt", subject.cell(prompt_tokens=0), []),
    ]
    if subject.capabilities.prompt_by_ids:
        cases.append(("a negative token id", cell, [-1] * length))
        cases.append(("a token id beyond the vocabulary", cell, [subject.facts.vocabulary]))
    for what, asked, ids in cases:
        refused = subject.refusal(asked, ids)
        if refused is None:
            raise BrokenRuleError(f"{what} does not fail")
        demand(refused.tokens == 0, f"{what} fails only after {refused.tokens} tokens")
        subject.works(f"after {what}")


def counters(subject: Subject) -> None:
    """Counters are whole numbers of zero or more, plainly named, and counts never fall."""
    before: Any = subject.session.counters()
    subject.run(subject.cell())
    after: Any = subject.session.counters()
    for found in (before, after):
        demand(isinstance(found, dict), f"counters() gives a {type(found).__name__}")
        for name, value in found.items():
            demand(type(value) is int and value >= 0, f"counter {name} reads {value!r}")
            demand(bool(_NAME.fullmatch(str(name))), f"counter {name!r} is no plain name")
            demand(not name.endswith(_UNITS), f"counter {name} has a unit in its name")
    for name in before.keys() & after.keys():
        falls = name.endswith("_count") and after[name] < before[name]
        demand(not falls, f"counter {name} falls from {before[name]} to {after[name]}")


def waiting(subject: Subject) -> None:
    """``wait`` returns, when idle, twice in a row, and between two steps."""
    session = subject.session
    if not isinstance(session, Waits):
        apply_if(False, "the session has no wait")
        return
    session.wait()
    session.wait()
    cell, tokens = subject.cell(), 0
    for step in session.generate(subject.ids(cell.prompt_tokens or 1), cell):
        session.wait()
        tokens += step.tokens
    demand(tokens == cell.budget, f"with waits between steps there are {tokens} tokens")


def synchronization(subject: Subject) -> None:
    """A step is yielded only when its token exists on the host."""
    virtual = subject.capabilities.virtual_clock
    apply_if(not virtual, "the clock is virtual; see the check of the clock")
    subject.run(subject.cell())
    found = check_synchronization(subject.session, unstamped=subject.capabilities.unstamped)
    apply_if(found.verdict != "cannot tell", f"cannot tell: {found.reason}")
    demand(found.verdict == "waits", f"the engine {found.verdict}: {found.reason}")


def clock(subject: Subject) -> None:
    """The clock counts nanoseconds and never goes back; a virtual one moves only for a reason."""
    session = subject.session
    now_ns = session.clock.now_ns
    stamps: list[Any] = [now_ns()]
    cell = subject.cell()
    for _ in session.generate(subject.ids(cell.prompt_tokens or 1), cell):
        stamps.append(now_ns())
    demand(all(type(stamp) is int for stamp in stamps), f"now_ns gives {stamps[0]!r}")
    demand(stamps == sorted(stamps), "the clock goes back during a generation")
    demand(stamps[-1] > stamps[0], "the clock stands still during a generation")
    if subject.capabilities.virtual_clock:
        _moves_only_for_a_reason(session)


def _moves_only_for_a_reason(session: Session) -> None:
    """Demand that a virtual clock stands still between generations, and sleeps exactly."""
    before = session.clock.now_ns()
    session.facts(), session.counters()
    demand(session.clock.now_ns() == before, "the virtual clock moves without a generation")
    session.clock.sleep(1.0)
    slept = session.clock.now_ns() - before
    demand(slept == NS_PER_S, f"a virtual second takes {slept:,} ns")


def last_generation(subject: Subject) -> None:
    """What a session tells of its latest generation is well formed."""
    session = subject.session
    if not isinstance(session, TellsGeneration):
        apply_if(False, "the session tells no more of a generation than its steps")
        return
    subject.run(subject.cell())
    told: Any = session.last_generation()
    demand(isinstance(told, Generation), f"last_generation() gives a {type(told).__name__}")
    cached = told.cached_tokens
    fits = cached is None or (type(cached) is int and cached >= 0)
    demand(fits, f"cached_tokens reads {cached!r}")
    for name, value in told.readings.items():
        demand(isinstance(value, (int, float)), f"reading {name} is {value!r}")


def closing(subject: Subject) -> None:
    """A session can be closed twice, and another one opened after it."""
    subject.works("before the end")
    session = subject.session
    session.close()
    try:
        session.close()
    except RegimescopeError as error:
        raise BrokenRuleError(f"the second close fails: {error}") from error
    with subject.another() as fresh:
        subject.works("after another one was closed", fresh)


def fill_without_claim(subject: Subject) -> None:
    """A session that can fill says so in its capabilities."""
    if not isinstance(subject.session, Fills):
        apply_if(False, "the session has no fill")
        return
    demand(subject.capabilities.synthetic_depth, "fill is there, but synthetic_depth not claimed")
