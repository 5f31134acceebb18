"""From streamed chunks to counted tokens. Layer: ``engines``.

A chunk is a piece of text, not a token: servers hold text back until it is whole, and some send
several tokens at once. So each chunk is counted by the best evidence the server gives, and at the
end the sum must agree with what the server says it produced; otherwise there is no latency.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from regimescope.engines.base import Generation, Step
from regimescope.errors import EngineError
from regimescope.reasons import Reason

END = "[DONE]"
# Seen so far: about 600 bytes a chunk with timings; chunks with names of tools may be longer.
BYTES_PER_TOKEN = 16_384
BYTES_BESIDE = 1_000_000

Evidence = Literal["timings", "usage", "ids", "logprobs", "text"]


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Timings(msgspec.Struct):
    """What llama-server adds to its chunks."""

    predicted_n: int
    cache_n: int | None = None
    prompt_ms: float | None = None
    predicted_ms: float | None = None
    draft_n: int | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class _Logprobs(msgspec.Struct):
    content: list[msgspec.Raw] | None = None
    tokens: list[msgspec.Raw] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None

    def says(self) -> bool:
        """Return whether there is any text."""
        if self.text:
            return True
        delta = self.delta
        return delta is not None and bool(
            delta.content or delta.reasoning or delta.reasoning_content
        )

    def listed(self) -> int | None:
        """Return how many tokens are listed by their probabilities; ``None`` without a list."""
        if self.logprobs is None:
            return None
        tokens = self.logprobs.content if self.logprobs.tokens is None else self.logprobs.tokens
        return None if tokens is None else len(tokens)


class Event(msgspec.Struct):
    """One event of a stream, as far as it is read."""

    choices: list[_Choice] = []
    usage: _Usage | None = None
    timings: _Timings | None = None
    error: Any = None


_events = msgspec.json.Decoder(Event)


class TokenStream:
    """Counts the tokens of one generation and keeps what the server tells of it."""

    def __init__(self, prompt_tokens: int, budget: int, quote: Callable[[str], str]) -> None:
        """Begin to count.

        Args:
            prompt_tokens: Tokens that the prompt should have.
            budget: Tokens that were asked for.
            quote: Makes text of the server fit to be shown.
        """
        self._prompt_tokens, self._budget, self._quote = prompt_tokens, budget, quote
        self._evidence: Evidence | None = None
        self._seen = 0
        self._usage: _Usage | None = None
        self._timings: _Timings | None = None
        self._finish_reason: str | None = None

    def steps(self, events: Iterator[str]) -> Iterator[Step]:
        """Yield a step for each event that brings tokens, then check the sum.

        Raises:
            EngineError: The stream is malformed, reports an error, breaks off, or its tokens do
                not add up to the budget.
        """
        for data in events:
            if data.strip() == END:
                # Read to its very end, the connection serves the next request too.
                for _ in events:
                    pass
                break
            tokens = self._count(_decode(data))
            if tokens:
                yield Step(tokens)
        self._check_end()

    def known(self) -> Generation:
        """Return what the server tells of the generation so far."""
        timings, readings = self._timings, {}
        if timings is not None:
            for name, value_ms in (
                ("server_prefill_s", timings.prompt_ms),
                ("server_decode_s", timings.predicted_ms),
            ):
                if value_ms is not None and 0 <= value_ms < float("inf"):
                    readings[name] = value_ms / 1000
        drafted = timings is not None and bool(timings.draft_n)
        reasons = (Reason.SPECULATIVE_DECODING,) if drafted else ()
        return Generation(self._cached_tokens(), readings, reasons)

    def _cached_tokens(self) -> int | None:
        """Return the cached part of the prompt, where the server tells."""
        if self._timings is not None and self._timings.cache_n is not None:
            return self._timings.cache_n
        details = None if self._usage is None else self._usage.prompt_tokens_details
        return None if details is None else details.cached_tokens

    def _count(self, event: Event) -> int:
        """Return how many tokens an event brings."""
        if event.error is not None:
            error = event.error
            said = str(error.get("message", error) if isinstance(error, dict) else error)
            raise EngineError(f"the server reports in its answer: {self._quote(said)}")
        if len(event.choices) > 1 or any(choice.index for choice in event.choices):
            raise EngineError("the server sent more than one answer")
        self._usage = event.usage or self._usage
        self._timings = event.timings or self._timings
        if not event.choices:
            return 0
        (choice,) = event.choices
        self._finish_reason = choice.finish_reason or self._finish_reason
        if self._evidence is None:
            self._evidence = _best_evidence(event, choice)
        new = self._new(event, choice)
        if new < 0:
            raise EngineError("the server counts its tokens backwards")
        if new > 1 and self._seen == 0:
            raise EngineError(
                f"the first chunk holds {new} tokens, so that decoding cannot be told from prefill"
            )
        self._seen += new
        if self._seen > self._budget:
            raise EngineError(
                f"the server sent more than the {self._budget} tokens that were asked for",
                reason=Reason.TOKEN_COUNT_MISMATCH,
            )
        return new

    def _new(self, event: Event, choice: _Choice) -> int:
        """Return the new tokens of an event by the evidence that this stream gives."""
        if self._evidence == "timings":
            return 0 if event.timings is None else event.timings.predicted_n - self._seen
        if self._evidence == "usage":
            total = None if event.usage is None else event.usage.completion_tokens
            return 0 if total is None else total - self._seen
        if self._evidence == "ids":
            return len(choice.token_ids or ())
        if self._evidence == "logprobs":
            return choice.listed() or 0
        return int(choice.says())

    def _check_end(self) -> None:
        """Compare the sum with what the server says, and with what was asked for.

        Raises:
            EngineError: They differ, or the server does not say.
        """
        if self._finish_reason is None:
            raise EngineError("the stream ended before its generation did")
        usage = self._usage or _Usage()
        if usage.completion_tokens is None or usage.prompt_tokens is None:
            raise EngineError(
                "the server tells no token counts, so that its chunks cannot be verified",
                reason=Reason.TOKENS_NOT_VERIFIED,
            )
        if usage.completion_tokens != self._seen:
            raise EngineError(
                f"{self._seen} tokens arrived in chunks, but the server counts "
                f"{usage.completion_tokens}; which chunk held how many is unknown",
                reason=Reason.CHUNKED_STREAM,
            )
        if self._seen < self._budget:
            raise EngineError(
                f"the server stopped after {self._seen} of {self._budget} tokens "
                f"(finish_reason {self._quote(self._finish_reason)})",
                reason=Reason.TOKEN_COUNT_MISMATCH,
            )
        if usage.prompt_tokens != self._prompt_tokens:
            raise EngineError(
                f"the server counts {usage.prompt_tokens} tokens in a prompt of "
                f"{self._prompt_tokens}"
            )


def _best_evidence(event: Event, choice: _Choice) -> Evidence | None:
    """Return by what the tokens of a stream are counted, decided at its first event with any."""
    if event.timings is not None:
        return "timings"
    if event.usage is not None and event.usage.completion_tokens is not None:
        return "usage"
    if choice.token_ids is not None:
        return "ids"
    if choice.listed() is not None:
        return "logprobs"
    return "text" if choice.says() else None


def _decode(data: str) -> Event:
    """Read one event.

    Raises:
        EngineError: It is no JSON object of the expected form.
    """
    try:
        return _events.decode(data)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise EngineError("the server sent an event that is no completion chunk") from None
