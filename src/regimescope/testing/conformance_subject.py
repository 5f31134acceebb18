"""An engine under examination, and what every check needs to put it to work. Layer: ``testing``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple, NoReturn, TypeVar

from msgspec.structs import replace

from regimescope.engines.base import (
    Capabilities,
    Engine,
    EngineRequest,
    ReadsTokens,
    Session,
    Step,
)
from regimescope.errors import CapabilityError, RegimescopeError, UserError
from regimescope.measure.trial import prompt
from regimescope.records import Cell, ModelFacts
from regimescope.spec import KvCache

T = TypeVar("T")

# Long enough that two gaps exist and a repeated token shows; short enough for a slow machine.
BUDGET = 8
PROMPT_TOKENS = 7


class BrokenRuleError(Exception):
    """A rule of the contract that an engine breaks; the message says which and how."""


class NotApplicable(Exception):
    """A check that says nothing about this engine; the message says why."""


class Refusal(NamedTuple):
    """How a generation was refused: the error, and the tokens that had come by then."""

    error: RegimescopeError
    tokens: int


def demand(holds: bool, otherwise: str) -> None:
    """Go on where a rule holds.

    Raises:
        BrokenRuleError: It does not; ``otherwise`` says what was seen.
    """
    if not holds:
        raise BrokenRuleError(otherwise)


def apply_if(holds: bool, reason: str) -> None:
    """Go on where a check applies.

    Raises:
        NotApplicable: It does not, for this reason.
    """
    if not holds:
        raise NotApplicable(reason)


class Subject:
    """An engine with a request that it can meet, and one session shared by the checks."""

    def __init__(self, engine: Engine, request: EngineRequest) -> None:
        """Open nothing yet."""
        self.engine = engine
        self.request = request
        self._session: Session | None = None

    @property
    def capabilities(self) -> Capabilities:
        """What the engine says that it can do."""
        return self.engine.capabilities()

    @property
    def session(self) -> Session:
        """The shared session, opened when it is first needed."""
        if self._session is None:
            self._session = self.engine.open(self.request)
        return self._session

    @property
    def facts(self) -> ModelFacts:
        """What the shared session has loaded."""
        return self.session.facts()

    def close(self) -> None:
        """Close the shared session; the next check that needs one opens another."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    @contextmanager
    def another(self, **options: Any) -> Iterator[Session]:
        """Open a session of its own, with more options, and close it at the end."""
        self.close()  # two models may not fit into memory
        session = self.engine.open(
            replace(self.request, options={**self.request.options, **options})
        )
        try:
            yield session
        finally:
            session.close()

    def ids(self, length: int, name: str = "conformance") -> list[int]:
        """Return a random prompt; the same name and length give the same one."""
        return prompt(self.request.seed, name, length, self.facts.vocabulary)

    def cell(self, **changes: Any) -> Cell:
        """Return a small cell in which the engine does the first thing that it offers."""
        kv_cache: KvCache = "on" if "on" in self.capabilities.kv_cache else "off"
        usual = Cell(budget=BUDGET, prompt_tokens=PROMPT_TOKENS, kv_cache=kv_cache, batch=1)
        return replace(usual, **changes)

    def run(self, cell: Cell, session: Session | None = None, **how: Any) -> list[Step]:
        """Return the steps of a whole generation; endless ones are cut off."""
        session = session or self.session
        steps = session.generate(self.ids(cell.prompt_tokens or 1), cell, **how)
        # Twice as many as asked for is as wrong as any number above that.
        return list(islice(steps, 2 * (cell.budget or 0) + 2))

    def works(self, what: str, session: Session | None = None) -> None:
        """Demand that a session still generates as usual.

        Raises:
            BrokenRuleError: It does not.
        """
        cell = self.cell()
        try:
            steps = self.run(cell, session)
        except RegimescopeError as error:
            raise BrokenRuleError(f"{what} the session no longer generates: {error}") from error
        self.has_budget(steps, cell, f"{what} a generation")

    def has_budget(self, steps: Sequence[Step], cell: Cell, what: str) -> None:
        """Demand that steps add up to the budget, which no end-of-sequence token may cut short.

        Raises:
            BrokenRuleError: They do not.
        """
        tokens, budget = sum(step.tokens for step in steps), cell.budget or 0
        if self.capabilities.forced_length:
            demand(tokens == budget, f"{what} of budget {budget} gave {tokens} tokens")
        demand(0 < tokens <= budget, f"{what} of budget {budget} gave {tokens} tokens")

    def refusal(self, cell: Cell, prompt_ids: Sequence[int] | None = None) -> Refusal | None:
        """Return how a generation is refused; ``None`` where it is not."""
        session = self.session
        given = self.ids(cell.prompt_tokens or 1) if prompt_ids is None else prompt_ids
        tokens = 0
        try:
            for step in islice(session.generate(given, cell), 2 * (cell.budget or 0) + 2):
                tokens += step.tokens
        except RegimescopeError as error:
            return Refusal(error, tokens)
        return None

    def refuses(self, cell: Cell, what: str) -> None:
        """Demand that a generation is refused before any work, by an error with a remedy.

        Raises:
            BrokenRuleError: It is not.
        """
        refused = self.refusal(cell)
        if refused is None:
            raise BrokenRuleError(f"{what} is not refused")
        error, tokens = refused
        demand(
            isinstance(error, CapabilityError),
            f"{what} is refused by {type(error).__name__}, not by a CapabilityError",
        )
        has_remedy(error, what)
        demand(tokens == 0, f"{what} is refused only after {tokens} tokens")

    def can(self, what: str, attempt: Callable[[], T]) -> T:
        """Return what an attempt gives that the capabilities promise.

        Raises:
            NotApplicable: Options of the request rule it out; the engine says so with a remedy.
            BrokenRuleError: It is refused although no option rules it out.
        """
        try:
            return attempt()
        except CapabilityError as error:
            self.ruled_out(what, error)

    def ruled_out(self, what: str, error: CapabilityError) -> NoReturn:
        """Say what it means that something promised by the capabilities was refused.

        Raises:
            NotApplicable: Options of the request rule it out; the engine says so with a remedy.
            BrokenRuleError: It is refused although no option rules it out.
        """
        if self.request.options and error.remedy:
            said = f"options of the request rule out {what}: {error.message}"
            raise NotApplicable(said) from error
        raise BrokenRuleError(f"{what} is claimed, but refused: {error.message}") from error


def has_remedy(error: RegimescopeError, what: str) -> None:
    """Demand that an error of the user says what is wrong and what to do.

    Raises:
        BrokenRuleError: It does not.
    """
    demand(
        isinstance(error, UserError) and bool(error.message.strip()) and bool(error.remedy.strip()),
        f"the error for {what} names no remedy",
    )


def tokens_of(session: Session) -> list[list[int]]:
    """Return the tokens of the latest generation.

    Raises:
        NotApplicable: The session does not keep them.
    """
    if not isinstance(session, ReadsTokens):
        raise NotApplicable("the session has no output_ids, so its tokens cannot be seen")
    return session.output_ids()
