"""The endpoints: requests to the worker, its tokens to the client. Layer: ``serve``."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from datetime import datetime, timezone
from typing import Any, NamedTuple

from fastapi import HTTPException, Request, Response
from fastapi.responses import StreamingResponse
from litserve.specs.base import LitSpec
from litserve.utils import LitAPIStatus, ResponseBufferItem

from regimescope.records import ModelFacts
from regimescope.serve import answers, metrics
from regimescope.serve.model import Job
from regimescope.serve.requests import ChatRequest, CompletionRequest

# Seconds between two looks whether the client of an unstreamed answer is still there.
LOOK_S = 0.5


class _Work(NamedTuple):
    """A request in the worker's hands.

    Attributes:
        uid: Its name in the response buffer.
        slot: Where its end is asked for.
        messages: What the worker says, with a status each.
    """

    uid: uuid.UUID
    slot: int
    messages: AsyncIterator[Any]


class Completions(LitSpec):  # type: ignore[misc]
    """Completions and chat completions, streamed and whole."""

    def __init__(self, model: str, gone: Any, facts: ModelFacts) -> None:
        """Name the model that is served, its facts, and the flags, one per request in hand."""
        super().__init__()
        self.api_path = "/v1/completions"
        self._model, self._gone, self._facts = model, gone, facts
        self._free = list(range(len(gone)))
        self._draining: set[asyncio.Task[None]] = set()

    @property
    def stream(self) -> bool:
        """The worker always streams; an answer that is not streamed is gathered here."""
        return True

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what only the process with the endpoints has."""
        state: dict[str, Any] = super().__getstate__()
        return state | {"_draining": set()}

    def pre_setup(self, lit_api: Any) -> None:
        """Register the routes."""
        self.add_endpoint("/v1/completions", self.complete, ["POST"])
        self.add_endpoint("/v1/chat/completions", self.chat, ["POST"])
        self.add_endpoint("/v1/models", self.models, ["GET"])
        self.add_endpoint("/metrics", self.show_metrics, ["GET"])

    def decode_request(self, request: Job, context_kwargs: dict[str, Any] | None = None) -> Job:
        """Hand a job to the worker as it is."""
        return request

    def encode_response(
        self, output: Iterator[dict[str, Any]], context_kwargs: dict[str, Any] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Hand the worker's messages over as they are."""
        yield from output

    async def complete(self, body: CompletionRequest, request: Request) -> Response:
        """Complete a prompt."""
        return await self._answer(body, body.prompt, request, chat=False)

    async def chat(self, body: ChatRequest, request: Request) -> Response:
        """Answer a chat."""
        messages = [{"role": m.role, "content": m.content} for m in body.messages]
        return await self._answer(body, messages, request, chat=True)

    async def models(self) -> dict[str, Any]:
        """List the one model that is served."""
        # The names of llama.cpp's server; a client needs both numbers to ask for what fits.
        meta = {"n_vocab": self._facts.vocabulary}
        if self._facts.positions is not None:
            meta["n_ctx"] = self._facts.positions
        model = {"id": self._model, "object": "model", "created": 0, "owned_by": "regimescope"}
        return {"object": "list", "data": [model | {"meta": meta}]}

    async def show_metrics(self) -> Response:
        """Show what was counted."""
        metrics.WAITING.set(len(self._gone) - len(self._free))
        return Response(metrics.exposition(), media_type=metrics.CONTENT_TYPE)

    async def _answer(
        self, body: CompletionRequest | ChatRequest, prompt: Any, request: Request, *, chat: bool
    ) -> Response:
        """Hand a request to the worker and answer with what it says.

        Raises:
            HTTPException: The worker refused or failed before the first token, or too many wait.
        """
        created = int(datetime.now(timezone.utc).timestamp())
        reply = answers.Reply(f"cmpl-{uuid.uuid4().hex}", self._model, chat, created)
        work = self._submit(prompt, body.budget())
        if body.stream:
            # The first token is waited for, so that what goes wrong before it has its own status.
            parts = self._parts(work)
            try:
                first = await anext(parts)
            except BaseException:
                await parts.aclose()
                raise
            usage = body.stream_options is not None and body.stream_options.include_usage
            events = _events(reply, first, parts, usage=usage)
            return StreamingResponse(events, media_type="text/event-stream")
        gathered = await self._gather(work, request)
        return _json(answers.whole(reply, gathered[:-1], gathered[-1]))

    def _submit(self, prompt: Any, budget: int) -> _Work:
        """Put a request into the worker's queue.

        Raises:
            HTTPException: 429, as many are in hand as may be.
        """
        if not self._free:
            raise HTTPException(
                429,
                f"{len(self._gone)} requests are waiting; try again later.",
                headers={"Retry-After": "1"},
            )
        slot, uid = self._free.pop(), uuid.uuid4()
        self._gone[slot] = 0
        messages: deque[Any] = deque()
        event = asyncio.Event()
        self.response_buffer[uid] = ResponseBufferItem(response_queue=messages, event=event)
        job = Job(prompt=prompt, budget=budget, slot=slot)
        self.request_queue.put((self.response_queue_id, uid, time.monotonic(), job))
        return _Work(uid, slot, self.data_streamer(messages, event, send_status=True))

    async def _parts(self, work: _Work) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the worker's messages; whoever stops listening ends the work.

        Raises:
            HTTPException: The worker refused or failed.
        """
        ended = False
        try:
            async for data, status in work.messages:
                if status == LitAPIStatus.ERROR:
                    ended = True
                    raise data if isinstance(data, HTTPException) else _failure()
                yield json.loads(data)
            ended = True
        finally:
            if ended:
                self._release(work)
            else:
                # The slot is in the worker's hands until it says that it is done.
                self._gone[work.slot] = 1
                task = asyncio.ensure_future(self._drain(work))
                self._draining.add(task)
                task.add_done_callback(self._draining.discard)

    async def _drain(self, work: _Work) -> None:
        """Wait for the worker to end what nobody listens to, then free its slot."""
        item = self.response_buffer[work.uid]
        rest = self.data_streamer(item.response_queue, item.event, send_status=True)
        async for _ in rest:
            pass
        self._release(work)

    def _release(self, work: _Work) -> None:
        """Free what a request held."""
        self.response_buffer.pop(work.uid, None)
        self._free.append(work.slot)

    async def _gather(self, work: _Work, request: Request) -> list[dict[str, Any]]:
        """Return all messages of a request; end it when the client goes away."""
        parts = self._parts(work)

        async def all_parts() -> list[dict[str, Any]]:
            return [part async for part in parts]

        task = asyncio.ensure_future(all_parts())
        try:
            while not (await asyncio.wait({task}, timeout=LOOK_S))[0]:
                if await request.is_disconnected():
                    self._gone[work.slot] = 1
        finally:
            if not task.done():
                task.cancel()
        gathered = task.result()
        metrics.count_end(gathered[-1])
        return gathered


async def _events(
    reply: answers.Reply,
    first: dict[str, Any],
    parts: AsyncGenerator[dict[str, Any], None],
    *,
    usage: bool,
) -> AsyncIterator[str]:
    """Yield the events of a stream."""
    part = first
    try:
        while "token" in part:
            yield answers.chunk(reply, part)
            part = await anext(parts)
        metrics.count_end(part)
        yield answers.ending(reply, part, usage=usage)
        # Let the worker's end arrive, which frees the slot.
        async for _ in parts:
            pass
    except HTTPException as error:
        yield answers.error_event(str(error.detail), error.status_code)
    finally:
        await parts.aclose()


def _failure() -> HTTPException:
    """Return the error for what the worker says nothing about; its words may hold paths."""
    return HTTPException(500, "The engine failed.")


def _json(body: dict[str, Any]) -> Response:
    return Response(json.dumps(body), media_type="application/json")
