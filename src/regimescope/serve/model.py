"""The worker of the server: a session of an engine, one request after the other. Layer: ``serve``.

Runs in a process of its own that LitServe starts, so everything here travels by pickle.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any, TypedDict

from fastapi import HTTPException
from litserve import LitAPI

from regimescope.engines.base import EngineRequest, ReadsTokens, Session
from regimescope.engines.registry import get_engine
from regimescope.errors import CapabilityError, EngineError, UserError
from regimescope.records import Cell
from regimescope.serve.text import Codec, codec_of


class Job(TypedDict):
    """One request on its way to the worker.

    Attributes:
        prompt: Token ids, a text, or the messages of a chat.
        budget: Tokens to produce.
        slot: Where the client's going away is told.
    """

    prompt: Any
    budget: int
    slot: int


class ModelServer(LitAPI):  # type: ignore[misc]
    """Decodes what is asked, greedily and past any end-of-sequence token."""

    def __init__(
        self,
        engine: str,
        request: EngineRequest,
        gone: Any,
        spec: Any,
        capacity: int | None = None,
    ) -> None:
        """Keep what ``setup`` needs in the worker.

        Args:
            engine: Name of the engine.
            request: What it is asked to load.
            gone: Shared flags, one per slot: the client has gone and its request ends early.
            spec: The endpoints.
            capacity: KV positions allocated for each request; ``None`` leaves that to the engine.
        """
        super().__init__(stream=True, spec=spec)
        self._engine, self._request, self._gone = engine, request, gone
        self._capacity = capacity
        self._session: Session | None = None
        self._codec: Codec | None = None

    def setup(self, device: str) -> None:
        """Load the model; LitServe calls this once in the worker.

        Args:
            device: LitServe's choice, which does not count: the request names the device.
        """
        # Ctrl-C reaches the whole group; the server ends this process in its own time.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        session = get_engine(self._engine).open(self._request)
        self._codec = codec_of(self._request.model, session.facts().vocabulary)
        self._session = session

    def predict(self, job: Job) -> Iterator[dict[str, Any]]:
        """Yield a message per token, then one with the counts and times.

        Raises:
            HTTPException: 400 where the model cannot do what is asked, 500 where it failed.
        """
        session, codec = self._session, self._codec
        if session is None or codec is None:
            raise HTTPException(503, "The model is not loaded.")
        ids = _token_ids(codec, job["prompt"])
        cell = Cell(
            budget=job["budget"],
            prompt_tokens=len(ids),
            kv_cache="on",
            batch=1,
            capacity=self._capacity,
        )
        try:
            yield from self._decode(session, codec, ids, cell, job["slot"])
        except (CapabilityError, UserError) as error:
            raise HTTPException(400, str(error)) from error
        except EngineError as error:
            status = 400 if "token ids lie outside" in str(error) else 500
            text = str(error) if status == 400 else "The engine failed."
            raise HTTPException(status, text) from error

    def _decode(
        self, session: Session, codec: Codec, ids: list[int], cell: Cell, slot: int
    ) -> Iterator[dict[str, Any]]:
        """Yield tokens as they come to exist, and end early when nobody waits any longer."""
        shown, done, start = codec.stream(), 0, time.perf_counter_ns()
        first = last = start
        steps = session.generate(ids, cell)
        for _ in steps:
            last = time.perf_counter_ns()
            if done == 0:
                first = last
            token = _latest(session)
            done += 1
            yield {"token": token, "text": shown(token)}
            if self._gone[slot]:
                break
        close = getattr(steps, "close", None)
        if close is not None:
            close()
        yield {
            "prompt_tokens": len(ids),
            "completion_tokens": done,
            "prompt_ms": (first - start) / 1e6,
            "predicted_ms": (last - first) / 1e6,
        }


def _token_ids(codec: Codec, prompt: Any) -> list[int]:
    """Return the token ids of a prompt in any of its three forms."""
    if isinstance(prompt, str):
        return codec.encode(prompt)
    if prompt and isinstance(prompt[0], dict):
        return codec.chat(prompt)
    return list(prompt)


def _latest(session: Session) -> int:
    """Return the token that was produced last."""
    if not isinstance(session, ReadsTokens):
        raise EngineError("this engine does not tell its tokens")
    return session.output_ids()[0][-1]
