"""An engine behind an OpenAI-compatible HTTP server, made to be measured.

Layer: beside ``doctor``. The modules here load LitServe and FastAPI as soon as they are imported;
this one loads them on use.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable

from regimescope.engines.base import EngineRequest
from regimescope.errors import MissingDependencyError, SpecError
from regimescope.spec import ScanSpec
from regimescope.units import listing

NEEDED = ("litserve", "prometheus_client")


def run_server(
    given: ScanSpec,
    *,
    host: str,
    port: int,
    token_env: str | None,
    max_waiting: int,
    say: Callable[[str], None],
) -> None:
    """Serve the model of a spec until the process is interrupted.

    Args:
        given: Engine, model, device, element type, seed, capacity and engine options; the rest is
            unused.
        host: Address to listen at.
        port: Port, 1024 to 65535.
        token_env: Environment variable that holds the bearer token; ``None`` asks for none.
        max_waiting: Requests in hand at once.
        say: Told what a person should know.

    Raises:
        UserError: Something asked for cannot be had.
        EngineError: Loading failed.
    """
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        raise MissingDependencyError(
            f"Serving needs {listing(absent)}, which is not installed.",
            remedy="Install it: pip install 'regimescope[serve]'",
        )
    from regimescope.engines.registry import get_engine
    from regimescope.feasible import check_cache, check_reserved
    from regimescope.serve.application import ServeOptions, check_options, serve

    token = None if token_env is None else _token(token_env)
    request = EngineRequest(
        model=given.model,
        device=given.device,
        dtype=given.dtype,
        seed=given.seed,
        options=given.engine_options,
    )
    options = ServeOptions(
        engine=given.engine,
        request=request,
        host=host,
        port=port,
        token=token,
        max_waiting=max_waiting,
        capacity=given.capacity,
    )
    check_reserved(given, get_engine(given.engine).capabilities())
    facts = check_options(options)
    check_cache(given, facts)
    if host != "127.0.0.1" and token is None:
        say("Warning: anyone who reaches this address can use the model; --token-env asks for one.")
    shown = f"[{host}]" if ":" in host else "127.0.0.1"
    say(f"Serving {given.model} at http://{shown}:{port}/v1; Ctrl-C ends it.")
    serve(options, facts)


def _token(name: str) -> str:
    """Return the bearer token from the environment.

    Raises:
        SpecError: The variable is not set, or holds what no header can.
    """
    token = os.environ.get(name, "")
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise SpecError(
            f"The environment variable {name} holds no token.",
            remedy="Set it to a secret of printable ASCII characters without spaces.",
        )
    return token
