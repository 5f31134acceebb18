"""Consoles whose reader may leave. Layer: report."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from rich.console import Console


class LastingConsole(Console):
    """A console that falls silent when nobody reads any more.

    ``| head`` has seen enough, and a closed terminal is no reason to end a measurement.
    """

    def on_broken_pipe(self) -> None:
        """Print nothing more; the library would end the program and silence standard output."""
        self.quiet = True
        discard(self.file)


def discard(stream: Any) -> None:
    """Let whatever is still written to a stream vanish, so that flushing it at the end works."""
    with contextlib.suppress(OSError, ValueError):  # streams without a descriptor need no help
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)


def write_out(content: bytes) -> None:
    """Write to standard output; a reader that has left is no error."""
    try:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        discard(sys.stdout)
