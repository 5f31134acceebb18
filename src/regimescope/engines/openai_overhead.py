"""What the client adds to a time stamp: from a chunk sent to its step. Layer: ``engines``."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from statistics import median

from regimescope.engines.base import MonotonicClock
from regimescope.engines.openai_client import Client, parse_address
from regimescope.engines.openai_stream import BYTES_BESIDE, TokenStream
from regimescope.errors import EngineError
from regimescope.units import NS_PER_S

# The median of as many is steady, and they take some ten milliseconds.
CHUNKS = 64
# Nobody else speaks on this connection; a second without a byte means that something is broken.
TIMEOUT_S = 5.0
_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    b"Connection: close\r\n\r\n"
)
_CHUNK = b'data: {"choices":[{"index":0,"text":" word","finish_reason":null}]}\n\n'
_LAST = (
    b'data: {"choices":[{"index":0,"text":"","finish_reason":"length"}],'
    b'"usage":{"prompt_tokens":1,"completion_tokens":%d}}\n\ndata: [DONE]\n\n'
)


def measure_overhead() -> float | None:
    """Return the median seconds from a chunk leaving a server to its step being there.

    The server is a thread of this process that sends a chunk once the one before was received, so
    that the loopback connection and the change of threads are part of it: a bound from above.
    ``None`` where no loopback connection can be made.
    """
    try:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.settimeout(TIMEOUT_S)
            stub = _Stub(listening)
            thread = threading.Thread(target=stub.serve, daemon=True)
            thread.start()
            try:
                received_ns = _receive(listening.getsockname()[1], stub.go_on)
            finally:
                stub.go_on()
                thread.join(TIMEOUT_S)
    except (OSError, EngineError):
        return None
    pairs = zip(stub.sent_ns, received_ns, strict=False)
    return median(after - before for before, after in pairs) / NS_PER_S


def _receive(port: int, go_on: Callable[[], None]) -> list[int]:
    """Return the time stamp of each step, taken as in a trial."""
    clock, received_ns = MonotonicClock(), []
    client = Client(parse_address(f"http://127.0.0.1:{port}/v1"), None, TIMEOUT_S)
    tokens = TokenStream(1, CHUNKS, str)
    try:
        with client.stream("/completions", b"{}", BYTES_BESIDE) as events:
            for _ in tokens.steps(events):
                received_ns.append(clock.now_ns())
                go_on()
    finally:
        client.close()
    return received_ns


class _Stub:
    """A server of one answer, whose chunks follow each other by arrangement."""

    def __init__(self, listening: socket.socket) -> None:
        """Wait for nothing yet."""
        self._listening = listening
        self._received = threading.Semaphore(0)
        self.sent_ns: list[int] = []

    def go_on(self) -> None:
        """Let the next chunk be sent."""
        self._received.release()

    def serve(self) -> None:
        """Answer one request; a client that is gone ends it."""
        now_ns = MonotonicClock().now_ns
        try:
            connection, _ = self._listening.accept()
            with connection:
                connection.settimeout(TIMEOUT_S)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.recv(65_536)
                connection.sendall(_HEAD)
                chunk = _framed(_CHUNK)
                for _ in range(CHUNKS):
                    self.sent_ns.append(now_ns())
                    connection.sendall(chunk)
                    self._received.acquire(timeout=TIMEOUT_S)
                connection.sendall(_framed(_LAST % CHUNKS) + _framed(b""))
        except OSError:
            return


def _framed(part: bytes) -> bytes:
    """Return a part of a chunked answer."""
    return b"%x\r\n%s\r\n" % (len(part), part)
