"""A server of the OpenAI API on loopback that behaves, or misbehaves, as a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["Handler", dict[str, Any]], None]


class Handler(BaseHTTPRequestHandler):
    """One connection. Answers are functions of it and the request."""

    protocol_version = "HTTP/1.1"
    server: Server

    def version_string(self) -> str:
        return self.server.calls_itself

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""

    def do_GET(self) -> None:
        self.server.seen.append((self.path, dict(self.headers), None))
        if self.path.endswith("/models"):
            self.send_json(self.server.models)
        else:
            self.send_json({"error": {"message": "no such route"}}, status=404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.seen.append((self.path, dict(self.headers), body))
        self.server.answer(self, body)

    def send_json(self, value: object, status: int = 200, **headers: str) -> None:
        self.send_body(json.dumps(value).encode(), "application/json", status, **headers)

    def send_body(self, body: bytes, kind: str, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def begin_stream(self, **headers: str) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def send_part(self, part: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))

    def send_event(self, value: object) -> None:
        data = value if isinstance(value, str) else json.dumps(value)
        self.send_part(f"data: {data}\n\n".encode())

    def end_stream(self) -> None:
        self.send_part(b"")

    def break_off(self) -> None:
        self.close_connection = True


class Server(ThreadingHTTPServer):
    """Listens on a free port; ``answer`` may be changed at any time."""

    daemon_threads = True

    def __init__(self, answer: Answer, *, owner: str | None, calls_itself: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.calls_itself = answer, calls_itself
        entry = {"id": "small"} if owner is None else {"id": "small", "owned_by": owner}
        self.models: Any = {"object": "list", "data": [entry]}
        self.seen: list[tuple[str, dict[str, str], Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def asked(self) -> list[Any]:
        """The bodies of the requests so far."""
        return [body for _, _, body in self.seen if body is not None]

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that breaks off is no error here."""


@contextmanager
def serving(
    answer: Answer | None = None, *, owner: str | None = "sglang", calls_itself: str = "stub"
) -> Iterator[Server]:
    """Run a server for as long as the block lasts."""
    with Server(answer or well, owner=owner, calls_itself=calls_itself) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def prompt_tokens(body: dict[str, Any]) -> int:
    """Count a prompt: ids as they are, text by words; a chat has five tokens more."""
    if "messages" in body:
        return 5 + len(body["messages"][0]["content"].split())
    prompt = body["prompt"]
    return len(prompt.split() if isinstance(prompt, str) else prompt)


def chunk(text: str = " a", *, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """Return an event of a stream."""
    return {"choices": [{"index": 0, "text": text, "finish_reason": finish, **more}]}


def usage(body: dict[str, Any], produced: int, cached: int | None = 0) -> dict[str, Any]:
    """Return the last event of a stream."""
    counts: dict[str, Any] = {"prompt_tokens": prompt_tokens(body), "completion_tokens": produced}
    if cached is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": cached}
    return {"choices": [], "usage": counts}


def stream(handler: Handler, events: Sequence[object]) -> None:
    """Send a whole stream."""
    handler.begin_stream()
    for event in (*events, "[DONE]"):
        handler.send_event(event)
    handler.end_stream()


def well(handler: Handler, body: dict[str, Any], *, cached: int | None = 0) -> None:
    """Answer as a good server does: one chunk a token, and the counts at the end."""
    budget = body["max_tokens"]
    if not body.get("stream"):
        handler.send_json({**chunk(finish="length"), "usage": usage(body, 1)["usage"]})
        return
    events = [chunk() for _ in range(budget - 1)]
    stream(handler, [*events, chunk(finish="length"), usage(body, budget, cached)])


def status(code: int, said: object = None, **headers: str) -> Answer:
    """Answer with a status and perhaps some JSON."""
    return lambda handler, body: handler.send_json(said, status=code, **headers)
