"""``regimescope serve``."""

from __future__ import annotations

from typing import Annotated

import typer

from regimescope.cli.options import (
    Capacity,
    Device,
    ElementType,
    EngineName,
    EngineOptions,
    Model,
    Positions,
    TrustRemoteCode,
)
from regimescope.cli.output import REMOTE_CODE, say
from regimescope.spec import DEFAULT_ENGINE, DEFAULT_MODEL, make_spec


def serve(
    context: typer.Context,
    model: Model = DEFAULT_MODEL,
    engine: EngineName = DEFAULT_ENGINE,
    device: Device = "auto",
    dtype: ElementType = "float32",
    host: Annotated[str, typer.Option(help="Address; only this machine.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port, 1024 to 65535.")] = 8000,
    token_env: Annotated[
        str | None,
        typer.Option(help="Environment variable with the bearer token that clients must send."),
    ] = None,
    max_waiting: Annotated[int, typer.Option(help="Requests in hand; one more gets 429.")] = 64,
    seed: Annotated[int, typer.Option(help="Seed of random weights.")] = 0,
    capacity: Capacity = None,
    positions: Positions = None,
    engine_option: EngineOptions = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Serve a model over HTTP, OpenAI-compatible, one request at a time, to be measured."""
    from regimescope.serve import run_server

    given = make_spec(context.params)
    if trust_remote_code:
        say(REMOTE_CODE)
    run_server(given, host=host, port=port, token_env=token_env, max_waiting=max_waiting, say=say)
