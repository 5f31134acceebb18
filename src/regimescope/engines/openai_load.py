"""Equal requests beside the measured one. Layer: ``engines``.

They are made by a process of their own: in this one they would take the interpreter from the thread
that stamps. It is run as ``python -m regimescope.engines.openai_load`` and takes orders as lines of
JSON: what to ask for, or to stop. It ends when its input does.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from regimescope.engines.openai_client import Client, parse_address, read_key
from regimescope.engines.openai_request import Request
from regimescope.engines.openai_stream import BYTES_BESIDE, BYTES_PER_TOKEN, TokenStream
from regimescope.errors import EngineError

# A process whose input is closed has only connections to close.
QUIT_TIMEOUT_S = 10.0
# A server that refuses is not asked again at once, which would be another load than the one wanted.
PAUSE_S = 0.1


class LoadFacts(msgspec.Struct, frozen=True):
    """Where to send the other requests; the key is read from the environment anew.

    Attributes:
        url: Base of the API.
        api_key_env: Variable that the user named.
        timeout_s: Longest silence of the server.
        concurrency: Requests at the same time, the measured one included.
    """

    url: str
    api_key_env: str | None
    timeout_s: float
    concurrency: int


class Order(msgspec.Struct, frozen=True):
    """What the other requests ask for: a body of JSON for each of them; none means stop."""

    path: str = ""
    bodies: tuple[str, ...] = ()
    prompt_tokens: int = 0
    budget: int = 0


class Tally(msgspec.Struct):
    """What came of an order: generations that were whole, and that failed."""

    finished: int = 0
    failed: int = 0


class Load:
    """The other requests, as the measured process sees them."""

    def __init__(self, facts: LoadFacts) -> None:
        """Start the process where there is anything to ask for."""
        self._others = facts.concurrency - 1
        self._process: subprocess.Popen[bytes] | None = None
        self._tally: Tally | None = None
        if self._others:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._tell(facts)
            self._hear()

    def readings(self) -> dict[str, float]:
        """Return what came of the requests beside the latest generation."""
        if self._tally is None:
            return {}
        return {
            "load_finished_count": float(self._tally.finished),
            "load_failed_count": float(self._tally.failed),
        }

    @contextmanager
    def during(self, request: Request, prompt_ids: Sequence[int], budget: int) -> Iterator[None]:
        """Keep the other requests going, each begun anew when it is finished.

        Raises:
            EngineError: They cannot be made, or one of them failed, so that the load was another.
        """
        if not self._others:
            yield
            return
        turned = ([*prompt_ids[k:], *prompt_ids[:k]] for k in range(1, self._others + 1))
        bodies = tuple(request.streamed(ids, budget).decode() for ids in turned)
        self._tell(Order(request.path, bodies, len(prompt_ids), budget))
        try:
            yield
        finally:
            self._tell(Order())
            self._tally = self._hear()
        if self._tally.failed:
            raise EngineError(f"{self._tally.failed} of the requests beside it failed")

    def close(self) -> None:
        """End the process; safe to call twice."""
        process, self._process = self._process, None
        if process is None or process.stdin is None or process.stdout is None:
            return
        process.stdin.close()
        try:
            process.wait(QUIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _tell(self, what: LoadFacts | Order) -> None:
        """Send a line.

        Raises:
            EngineError: The process is gone.
        """
        pipe = None if self._process is None else self._process.stdin
        try:
            if pipe is None:
                raise EngineError("the requests beside it are closed")
            pipe.write(msgspec.json.encode(what) + b"\n")
            pipe.flush()
        except OSError as error:
            raise EngineError("the process with the requests beside it is gone") from error

    def _hear(self) -> Tally:
        """Wait for the answer to the latest line but an order.

        Raises:
            EngineError: The process is gone.
        """
        pipe = None if self._process is None else self._process.stdout
        line = b"" if pipe is None else pipe.readline()
        try:
            return msgspec.json.decode(line, type=Tally)
        except msgspec.DecodeError as error:
            raise EngineError("the process with the requests beside it is gone") from error


async def serve() -> None:
    """Take facts, then orders, until the input ends."""
    import httpx

    facts = msgspec.json.decode(await _line(), type=LoadFacts)
    address = parse_address(facts.url)
    key = read_key(address, facts.api_key_env)
    async with httpx.AsyncClient(
        headers=Client.headers(key),
        timeout=facts.timeout_s,
        follow_redirects=False,
        trust_env=False,
        limits=httpx.Limits(max_connections=None),
    ) as client:
        _answer(Tally())
        tally, tasks = Tally(), list[asyncio.Task[None]]()
        while line := await _line():
            order = msgspec.json.decode(line, type=Order)
            if order.bodies:
                tally = Tally()
                ask = _Asking(client, address.url + order.path, order, tally)
                tasks = [asyncio.create_task(ask.forever(body)) for body in order.bodies]
                continue
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            _answer(tally)


class _Asking:
    """One order that is being carried out."""

    def __init__(self, client: Any, url: str, order: Order, tally: Tally) -> None:
        """Keep what all of its requests share."""
        self._client, self._url, self._order, self._tally = client, url, order, tally

    async def forever(self, body: str) -> None:
        """Ask for the same thing again and again."""
        import httpx

        while True:
            try:
                await self._once(body)
                self._tally.finished += 1
            except (EngineError, httpx.HTTPError, httpx.StreamError):
                self._tally.failed += 1
                await asyncio.sleep(PAUSE_S)

    async def _once(self, body: str) -> None:
        """Ask once and see that the answer is whole.

        Raises:
            EngineError: It is not.
        """
        events, room = [], BYTES_BESIDE + BYTES_PER_TOKEN * self._order.budget
        headers = {"content-type": "application/json"}
        async with self._client.stream("POST", self._url, content=body, headers=headers) as answer:
            if answer.status_code != 200:
                raise EngineError("refused")
            async for line in answer.aiter_lines():
                room -= len(line)
                if room < 0:
                    raise EngineError("endless")
                if line.startswith("data:"):
                    events.append(line.removeprefix("data:"))
        tokens = TokenStream(self._order.prompt_tokens, self._order.budget, str)
        for _ in tokens.steps(iter(events)):
            pass


async def _line() -> bytes:
    """Wait for a line without keeping anybody."""
    return await asyncio.to_thread(sys.stdin.buffer.readline)


def _answer(tally: Tally) -> None:
    """Write a line."""
    sys.stdout.buffer.write(msgspec.json.encode(tally) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(serve())
