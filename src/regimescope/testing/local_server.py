"""``regimescope serve`` on loopback for as long as a measurement needs it. Layer: ``testing``."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

# A model of a few hundred million parameters with random weights is made in half a minute.
READY_S = 240.0
_LOOK_EVERY_S = 0.2


@contextmanager
def local_server(*arguments: str) -> Iterator[str]:
    """Start a server, give its root URL once it answers, and end it.

    Args:
        arguments: What follows ``regimescope serve``, without the port.

    Raises:
        RuntimeError: It ended, or did not answer in time.
    """
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "regimescope.cli", "serve", *arguments, "--port", str(port)]
    server = subprocess.Popen(command, start_new_session=True)
    try:
        _wait_for(url, server)
        yield url
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGINT)
        server.wait(60)


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    """Return when the server answers."""
    import httpx

    for _ in range(int(READY_S / _LOOK_EVERY_S)):
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with status {server.returncode}")
        try:
            if httpx.get(f"{url}/health").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass  # not yet there
        Event().wait(_LOOK_EVERY_S)
    raise RuntimeError(f"the server did not answer within {READY_S:.0f} s")


def _free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
