"""What parent and child say to each other: one JSON object a line, one reply per request.

The child does nothing until it is asked, and the parent does nothing while the child measures, so
that the two never share a core during a timed step. For the same reason there is no regular
heartbeat: a ``Ping`` is sent only to a child whose answer is overdue, when nothing that it still
measures can count.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from regimescope.engines.base import EngineRequest
from regimescope.errors import DeathCause, WorkerError
from regimescope.records import ModelFacts, PlannedTrial, Series, Trial

# A trial of 2**20 tokens, the largest budget, is about 12 MB of JSON; beyond this a line is no
# message. A run folder takes no longer lines either.
MAX_LINE_BYTES = 32 * 1024 * 1024


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of every message; the type's name travels with it."""


class Inspect(Message, frozen=True, kw_only=True):
    """Ask for the facts of a model, without loading its weights."""

    engine: str
    request: EngineRequest


class Open(Message, frozen=True, kw_only=True):
    """Ask to load a model for one process run."""

    engine: str
    request: EngineRequest
    occasion: str
    process_run: int
    series: Series
    seed: int
    warm_up_s: float
    counters_every: int = 0


class Measure(Message, frozen=True, kw_only=True):
    """Ask for one generation."""

    trial: PlannedTrial


class Quit(Message, frozen=True, kw_only=True):
    """Ask to release everything and end."""


class Ping(Message, frozen=True, kw_only=True):
    """Ask for a sign of life, in the middle of whatever the child does."""


class Facts(Message, frozen=True, kw_only=True):
    """The answer to ``Inspect`` and ``Open``."""

    facts: ModelFacts


class Measured(Message, frozen=True, kw_only=True):
    """The answer to ``Measure``: a trial, whatever its status."""

    trial: Trial


class Refused(Message, frozen=True, kw_only=True):
    """The answer to a request that the user must mend: name of the error, message, remedy."""

    error: str
    message: str
    remedy: str


class Broken(Message, frozen=True, kw_only=True):
    """The answer to a request that failed for another reason."""

    message: str
    cause: DeathCause = DeathCause.ENGINE_FAILURE


class Pong(Message, frozen=True, kw_only=True):
    """The answer to ``Ping``."""


class Done(Message, frozen=True, kw_only=True):
    """The answer to ``Quit``."""


Request = Inspect | Open | Measure | Quit | Ping
Reply = Facts | Measured | Refused | Broken | Done | Pong

_AnyMessage = TypeVar("_AnyMessage")

_encoder = msgspec.json.Encoder()
_requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_replies: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


def encode(message: Request | Reply) -> bytes:
    """Return a message as one line of JSON."""
    return _encoder.encode(message) + b"\n"


def decode_request(line: bytes) -> Request:
    """Read a request.

    Raises:
        WorkerError: The line is no request.
    """
    return _decode(_requests, line)


def decode_reply(line: bytes) -> Reply:
    """Read a reply.

    Raises:
        WorkerError: The line is no reply.
    """
    return _decode(_replies, line)


def _decode(decoder: msgspec.json.Decoder[_AnyMessage], line: bytes) -> _AnyMessage:
    """Read one line, or say in one short line what stood there instead."""
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        start = line[:80].decode("utf-8", "replace").strip()
        raise WorkerError(
            f"the measured process wrote {start!r}, which is no message", cause=DeathCause.GARBAGE
        ) from error
