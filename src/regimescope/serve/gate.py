"""What every request passes before the endpoints: token, size, patience, counting.

Layer: ``serve``. Plain ASGI, so that streams pass through it piece by piece.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from regimescope.serve.answers import error_body
from regimescope.serve.metrics import REQUESTS, route_of

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# Whoever may not use the server may still see whether it lives.
OPEN_PATHS = frozenset({"/health"})
# Seconds between two pieces of a body; a client that takes longer holds a connection for nothing.
BODY_PATIENCE_S = 10.0


class _Refused(Exception):
    """A request that ends here, with its status and what to tell."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Gate:
    """The outermost layer of the application."""

    def __init__(self, app: App, *, token: str | None, most_bytes: int) -> None:
        """Wrap an application.

        Args:
            app: What is wrapped.
            token: Bearer token that requests must bear; ``None`` asks for none.
            most_bytes: Longest body.
        """
        self._app, self._most_bytes = app, most_bytes
        self._expected = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with the error it deserves."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        statuses: list[int] = []

        async def counting_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            await send(message)

        try:
            self._check(scope)
            body = await self._read(receive)
            await self._app(scope, _replay(body, receive), counting_send)
        except _Refused as refused:
            if not statuses:
                await _answer(refused.status, refused.message, counting_send)
        finally:
            REQUESTS.labels(route_of(scope["path"]), str(statuses[0]) if statuses else "gone").inc()

    def _check(self, scope: Scope) -> None:
        """Refuse a request without the token, or one that announces too long a body.

        Raises:
            _Refused: 401, 400 or 413.
        """
        headers = dict(scope["headers"])
        if self._expected is not None and scope["path"] not in OPEN_PATHS:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                raise _Refused(401, "This server asks for a bearer token: Authorization: Bearer …")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            raise _Refused(400, "Content-Length is no number.")
        # Longer numbers are not converted: that alone can take long.
        if len(length) > 18 or int(length) > self._most_bytes:
            raise _Refused(413, self._too_long())

    async def _read(self, receive: Receive) -> bytes:
        """Return the whole body.

        Raises:
            _Refused: 413 or 408, or the client went away.
        """
        parts, size = [], 0
        while True:
            try:
                message = await asyncio.wait_for(receive(), BODY_PATIENCE_S)
            except asyncio.TimeoutError as error:
                raise _Refused(408, "The body did not arrive in time.") from error
            if message["type"] == "http.disconnect":
                raise _Refused(400, "The client went away.")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._most_bytes:
                raise _Refused(413, self._too_long())
            if not message.get("more_body", False):
                return b"".join(parts)

    def _too_long(self) -> str:
        return f"The body is longer than {self._most_bytes:,} bytes."


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a source that gives the body once and then what the connection says."""
    given = False

    async def source() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return source


async def _answer(status: int, message: str, send: Send) -> None:
    """Send an error, and close the connection: the rest of a refused body is not read."""
    content = json.dumps(error_body(message, status)).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
        (b"connection", b"close"),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
