"""Consoles whose reader may leave. Layer: report."""

from __future__ import annotations

import contextlib
import os
import sys
import textwrap
from typing import Any

from rich.console import Console
from rich.text import Text

# On a narrower terminal an indent costs too much of the line.
LEAST_INDENTED = 40


class LastingConsole(Console):
    """A console that falls silent when nobody reads any more.

    ``| head`` has seen enough, and a closed terminal is no reason to end a measurement.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; where there is no terminal, without the blanks that fill a line up."""
        if self.is_terminal:
            super().print(*objects, **options)
            return
        with self.capture() as captured:
            super().print(*objects, **options)
        text = "\n".join(line.rstrip(" ") for line in captured.get().split("\n"))
        super().print(Text(text), end="", highlight=False, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        """Print nothing more; the library would end the program and silence standard output."""
        self.quiet = True
        discard(self.file)


def wrapped(text: str, width: int) -> str:
    """Return text whose lines end before a column; a word or a path is never broken.

    Args:
        text: Lines; each is broken by itself, and goes on indented.
        width: Most characters of a line, 1 or more.
    """
    lines = []
    for line in text.splitlines():
        lines += textwrap.wrap(
            line,
            width=max(width, 1),
            subsequent_indent="  " if width > LEAST_INDENTED else "",
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return "\n".join(lines)


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
