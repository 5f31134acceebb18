"""Putting the server together, and running it. Layer: ``serve``."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import msgspec
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from litserve import LitServer
from msgspec.structs import replace
from starlette.exceptions import HTTPException

from regimescope.engines.base import EngineRequest
from regimescope.engines.registry import get_engine
from regimescope.errors import CapabilityError, EngineError, SpecError
from regimescope.records import ModelFacts
from regimescope.serve.answers import error_body
from regimescope.serve.description import describe
from regimescope.serve.endpoints import Completions
from regimescope.serve.gate import Gate
from regimescope.serve.model import ModelServer

# LitServe binds these and no others; the open ones are offered, never the default.
HOSTS = ("127.0.0.1", "0.0.0.0", "::")  # noqa: S104  # nosec B104
LOWEST_PORT, HIGHEST_PORT = 1024, 65535
MAX_WAITING = 64
# A prompt of 128k token ids takes about 1 MB; text of the same length 4 MB.
MAX_BODY_BYTES = 16 * 2**20
HEADER_BYTES = 64 * 1024


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is served.

    Attributes:
        engine: Name of the engine.
        request: What it is asked to load.
        host: Address to listen at; only this machine by default.
        port: Port, 1024 to 65535.
        token: Bearer token that requests must bear; ``None`` asks for none.
        max_waiting: Requests in hand at once, waiting ones included; one more is answered by 429.
        max_body_bytes: Longest body of a request.
        capacity: KV positions allocated for each request; ``None`` leaves that to the engine.
    """

    engine: str
    request: EngineRequest
    host: str = HOSTS[0]
    port: int = 8000
    token: str | None = None
    max_waiting: int = MAX_WAITING
    max_body_bytes: int = MAX_BODY_BYTES
    capacity: int | None = None


def serve(options: ServeOptions, facts: ModelFacts) -> None:
    """Serve a model until the process is interrupted.

    Raises:
        EngineError: Loading failed.
    """
    server = make_server(options, facts)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt_here_only(os.getpid()))
    try:
        server.run(
            host=options.host,
            port=options.port,
            num_api_servers=1,
            generate_client_file=False,
            log_level="warning",
            access_log=False,
            server_header=False,
            http="h11",
            h11_max_incomplete_event_size=HEADER_BYTES,
        )
    except RuntimeError as error:
        # LitServe's word for a worker that did not come up; its own cause stands in the log above.
        raise EngineError(f"loading {options.request.model} failed: {error}") from error


def _interrupt_here_only(pid: int) -> Callable[[int, FrameType | None], None]:
    """Return a handler that ends this process; those forked from it are ended by it."""

    def handler(_signal: int, _frame: FrameType | None) -> None:
        if os.getpid() == pid:
            raise KeyboardInterrupt

    return handler


def make_server(options: ServeOptions, facts: ModelFacts) -> Any:
    """Return the LitServe server, not yet running."""
    # Shared without a lock: one process writes a flag, the other reads it, and a byte is whole.
    gone = multiprocessing.get_context("spawn").RawArray("b", options.max_waiting)
    name = options.request.model
    spec = Completions(name, gone, _as_served(facts, options.capacity))
    model = ModelServer(options.engine, options.request, gone, spec, options.capacity)
    # One worker: a latency instrument measures one request at a time. Where it computes is the
    # engine's choice, so LitServe is told of no accelerator.
    server = LitServer(
        model,
        accelerator="cpu",
        devices=1,
        workers_per_device=1,
        timeout=False,
        middlewares=[(Gate, {"token": options.token, "most_bytes": options.max_body_bytes})],
    )
    server.app.title = "regimescope serve"
    describe(server.app)
    server.app.add_exception_handler(RequestValidationError, _invalid)
    server.app.add_exception_handler(HTTPException, _refused)
    return server


def _as_served(facts: ModelFacts, capacity: int | None) -> ModelFacts:
    """Return the facts of a model with the positions that a capacity leaves of its own."""
    limits = [n for n in (facts.positions, capacity) if n is not None]
    return replace(facts, positions=min(limits, default=None))


def check_options(options: ServeOptions) -> ModelFacts:
    """Refuse what cannot work, before any process is started; return the facts of the model.

    Raises:
        UserError: Naming what is wrong.
    """
    if options.host not in HOSTS:
        raise SpecError(
            f"The server cannot listen at {options.host!r}.", remedy=f"Use {', '.join(HOSTS)}."
        )
    if not LOWEST_PORT <= options.port <= HIGHEST_PORT:
        raise SpecError(
            f"Port {options.port} is out of range.",
            remedy=f"Use a port from {LOWEST_PORT} to {HIGHEST_PORT}.",
        )
    if options.max_waiting < 1 or options.max_body_bytes < 1:
        raise SpecError(
            "The server must take at least one request of one byte.",
            remedy="Use 1 or more for --max-waiting and --max-body.",
        )
    engine = get_engine(options.engine)
    if engine.capabilities().virtual_clock:
        raise CapabilityError(
            f"Engine {options.engine!r} takes no real time, so there is nothing to serve.",
            remedy="Use another engine.",
        )
    facts = engine.inspect(options.request)
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    with socket.socket(family) as probe:
        if sys.platform != "win32":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((options.host, options.port))
        except OSError as error:
            raise SpecError(
                f"Port {options.port} at {options.host} cannot be used: {error.strerror}.",
                remedy="Use another --port, or end what listens there.",
            ) from error
    return facts


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    """Answer a request that is malformed, naming the field and never repeating what it held."""
    problems = error.errors() if isinstance(error, RequestValidationError) else []
    first = problems[0] if problems else {"loc": (), "type": "", "msg": "invalid"}
    names = [str(part) for part in first["loc"][1:] if first["type"] != "json_invalid"]
    text = f"{'.'.join(names) or 'body'}: {first['msg']}"
    return JSONResponse(error_body(text, 400), 400)


async def _refused(_: Request, error: Exception) -> JSONResponse:
    """Answer in the form of all other answers."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = str(error.detail) if isinstance(error, HTTPException) else "The server failed."
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    return JSONResponse(error_body(detail, status), status, headers)
