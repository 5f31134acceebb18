"""Checks of what an engine decodes: exact budgets, the same tokens, what it refuses to decode.

Layer: ``testing``.
"""

from __future__ import annotations

from functools import partial
from typing import Any, get_args

from regimescope.engines.base import Fills, Session, Step
from regimescope.errors import CapabilityError, UserError
from regimescope.records import Cell
from regimescope.spec import KvCache
from regimescope.testing.conformance_subject import (
    BUDGET,
    PROMPT_TOKENS,
    BrokenRuleError,
    Subject,
    apply_if,
    demand,
    has_remedy,
    tokens_of,
)

BATCH = 2
# Not a multiple of anything that caches are rounded to.
DEPTH = 37
# Random weights may answer a few prompts alike, but not so many.
DIFFERENT_PROMPTS = 8
# The longest prompt that is worth its time on a slow machine.
MOST_PROMPT_TOKENS = 1024


def exact_budget(subject: Subject) -> None:
    """Budgets of 1, 2 and more give so many tokens, in steps of at least one."""
    for budget in (1, 2, BUDGET):
        cell = subject.cell(budget=budget)
        steps: list[Any] = list(subject.run(cell))
        wrong = [step for step in steps if not isinstance(step, Step) or step.tokens < 1]
        demand(not wrong, f"budget {budget} gave a step without a token: {wrong[:1]}")
        subject.has_budget(steps, cell, "a generation")
        if subject.capabilities.prefill_observable:
            first = steps[0].tokens
            demand(first == 1, f"the first step brings {first} tokens, so that none is timed apart")


def unstamped(subject: Subject) -> None:
    """Without stamps the first token comes by itself, then all others together."""
    apply_if(subject.capabilities.unstamped, "the engine does not claim unstamped generations")
    subject.run(subject.cell())
    wanted = _tokens_if_any(subject.session)
    for budget in (1, 2, BUDGET):
        chunks = [step.tokens for step in subject.run(subject.cell(budget=budget), stamped=False)]
        expected = [1] if budget == 1 else [1, budget - 1]
        demand(chunks == expected, f"budget {budget} comes in steps of {chunks}, not {expected}")
    tokens = _tokens_if_any(subject.session)
    demand(tokens == wanted, f"stamped tokens are {wanted}, unstamped {tokens}")


def same_tokens(subject: Subject) -> None:
    """The same prompt and seed give the same tokens, also in another session."""
    found = []
    for _ in range(2):
        subject.run(subject.cell())
        found.append(tokens_of(subject.session))
    _well_formed(found[0], 1, subject.facts.vocabulary)
    with subject.another() as session:
        subject.run(subject.cell(), session)
        found.append(tokens_of(session))
    demand(found[0] == found[1], f"one prompt gave {found[0]}, then {found[1]}")
    demand(found[0] == found[2], f"another session gave {found[2]} instead of {found[0]}")


def prompt_matters(subject: Subject) -> None:
    """Different prompts give different tokens."""
    outputs = set()
    for number in range(DIFFERENT_PROMPTS):
        ids = subject.ids(PROMPT_TOKENS, f"different.{number}")
        list(subject.session.generate(ids, subject.cell()))
        outputs.add(str(tokens_of(subject.session)))
    demand(len(outputs) > 1, f"{DIFFERENT_PROMPTS} prompts all gave {outputs.pop()}")


def prompt_lengths(subject: Subject) -> None:
    """Prompts of one token, of many, and up to the last position are taken."""
    positions = subject.facts.positions
    room = MOST_PROMPT_TOKENS if positions is None else positions
    longest = min(room, MOST_PROMPT_TOKENS) - 1
    for length in sorted({1, min(2 * PROMPT_TOKENS, longest), longest}):
        # The last token is produced but never read, so it takes no position.
        cell = subject.cell(prompt_tokens=length, budget=2)
        steps = subject.can(f"a prompt of {length} tokens", partial(subject.run, cell))
        subject.has_budget(steps, cell, f"after a prompt of {length} tokens, a generation")


def beyond_positions(subject: Subject) -> None:
    """What the model has no positions for is refused before any work."""
    positions = subject.facts.positions
    apply_if(positions is not None, "nothing limits the positions, or the engine does not know")
    room = positions or 0
    # With prompt 1 the last of these tokens would be read at the position after the last.
    subject.refuses(subject.cell(prompt_tokens=1, budget=room + 1), "a budget beyond the positions")
    long = subject.cell(prompt_tokens=room + 1, budget=1)
    subject.refuses(long, "a prompt beyond the positions")


def kv_cache(subject: Subject) -> None:
    """Each setting of the KV cache that is named works; each other one is refused."""
    for setting in get_args(KvCache):
        cell = subject.cell(kv_cache=setting)
        if setting not in subject.capabilities.kv_cache:
            subject.refuses(cell, f"KV cache {setting}, which the capabilities do not name,")
            continue
        steps = subject.can(f"KV cache {setting}", partial(subject.run, cell))
        subject.has_budget(steps, cell, f"with KV cache {setting}, a generation")


def cache_changes_no_token(subject: Subject) -> None:
    """The tokens are the same with and without the KV cache."""
    both = set(subject.capabilities.kv_cache) == {"on", "off"}
    apply_if(both, "the engine has one setting of the KV cache")
    exact = subject.facts.dtype == "float32"
    apply_if(exact, "with fewer bits the two ways may round to different tokens")
    found: dict[str, list[list[int]]] = {}
    for setting in get_args(KvCache):
        cell = subject.cell(kv_cache=setting)
        subject.can(f"KV cache {setting}", partial(subject.run, cell))
        found[setting] = tokens_of(subject.session)
    demand(found["on"] == found["off"], f"with the cache {found['on']}, without {found['off']}")


def cache_kinds(subject: Subject) -> None:
    """Each kind of cache that is named can be chosen by the option ``cache``, and no other."""
    kinds = subject.capabilities.cache_kinds
    apply_if(bool(kinds), "the engine has one kind of cache")
    refused = {}
    for kind in kinds:
        try:
            with subject.another(cache=kind) as session:
                subject.works(f"with a {kind} cache", session)
        except UserError as error:
            # A device or a missing library may rule one out; the error has to say what helps.
            has_remedy(error, f"a {kind} cache")
            refused[kind] = error.message
    demand(len(refused) < len(kinds), f"no kind of cache can be used here: {refused}")
    try:
        with subject.another(cache="no_such_kind"):
            pass
    except UserError as error:
        has_remedy(error, "an unknown kind of cache")
    else:
        raise BrokenRuleError("an unknown kind of cache is not refused")


def batch(subject: Subject) -> None:
    """Several sequences are decoded together where that is claimed, and refused elsewhere."""
    cell = subject.cell(batch=BATCH)
    if not subject.capabilities.batch:
        subject.refuses(cell, "a batch, which the capabilities do not claim,")
        return
    steps = subject.can(f"batch {BATCH}", partial(subject.run, cell))
    subject.has_budget(steps, cell, f"with batch {BATCH}, a generation")
    tokens = _tokens_if_any(subject.session)
    if tokens is not None:
        _well_formed(tokens, BATCH, subject.facts.vocabulary)


def depth(subject: Subject) -> None:
    """A synthetic cache stands before one prompt, is used up by it, and is counted."""
    cell = subject.cell(depth=DEPTH)
    if not subject.capabilities.synthetic_depth:
        subject.refuses(cell, "a depth, which the capabilities do not claim,")
        return
    session = subject.session
    if not isinstance(session, Fills):
        raise BrokenRuleError("synthetic_depth is claimed, but the session has no fill")
    subject.run(subject.cell())
    plain = _tokens_if_any(session)
    subject.can("a depth", lambda: session.fill(DEPTH, cell))
    behind = f"a prompt of {PROMPT_TOKENS} tokens behind {DEPTH} positions"
    subject.has_budget(
        subject.can(behind, partial(subject.run, cell)), cell, f"after {behind}, a generation"
    )
    subject.works("after a fill was used up")
    demand(_tokens_if_any(session) == plain, "a fill is not used up by one generation")
    session.fill(DEPTH, cell)
    session.fill(0, subject.cell())
    subject.works("after a fill was taken away")
    demand(_tokens_if_any(session) == plain, "a fill of 0 does not take a fill away")
    _refuses_to_fill_all(subject, session)


def capacity(subject: Subject) -> None:
    """A capacity is allocated where that is claimed, what exceeds it refused."""
    cell = subject.cell(capacity=PROMPT_TOKENS + BUDGET)
    if not subject.capabilities.capacity:
        subject.refuses(cell, "a capacity, which the capabilities do not claim,")
        return
    try:
        with_capacity(subject, cell, subject.session)
    except CapabilityError as plain:
        for kind in subject.capabilities.cache_kinds:
            try:
                with subject.another(cache=kind) as session:
                    with_capacity(subject, cell, session)
                return
            except UserError:
                continue
        subject.ruled_out("a capacity", plain)


def with_capacity(subject: Subject, cell: Cell, session: Session) -> None:
    """Generate within a capacity, then beyond it.

    Raises:
        BrokenRuleError: The second is not refused by a CapabilityError.
    """
    subject.has_budget(subject.run(cell, session), cell, "within a capacity, a generation")
    # The last token is never read: this budget needs one position more than there is.
    beyond = subject.cell(capacity=cell.capacity, budget=BUDGET + 2)
    try:
        subject.run(beyond, session)
    except CapabilityError as error:
        has_remedy(error, "a budget beyond the capacity")
    else:
        raise BrokenRuleError("a budget beyond the capacity is not refused")


def _refuses_to_fill_all(subject: Subject, session: Fills) -> None:
    """Demand that a depth which leaves no room for the prompt is refused."""
    positions = subject.facts.positions
    if positions is None:
        return
    cell = subject.cell(depth=positions)
    try:
        session.fill(positions, cell)
        subject.run(cell)
    except CapabilityError as error:
        has_remedy(error, "a depth beyond the positions")
    else:
        raise BrokenRuleError("a depth that leaves no room for the prompt is not refused")
    subject.works("after a depth was refused")


def _tokens_if_any(session: Session) -> list[list[int]] | None:
    """Return the tokens of the latest generation where the session keeps them."""
    read = getattr(session, "output_ids", None)
    return read() if callable(read) else None


def _well_formed(tokens: list[list[int]], rows: int, vocabulary: int) -> None:
    """Demand one row per sequence, each of the usual budget, all ids within the vocabulary."""
    demand(len(tokens) == rows, f"output_ids has {len(tokens)} rows for {rows} sequences")
    lengths = {len(row) for row in tokens}
    demand(lengths == {BUDGET}, f"output_ids has rows of {lengths} tokens, not {BUDGET}")
    outside = [token for row in tokens for token in row if not 0 <= token < vocabulary]
    demand(not outside, f"output_ids has ids outside the vocabulary: {outside[:3]}")
