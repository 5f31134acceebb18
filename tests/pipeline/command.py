"""What a command of the command line printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Done(NamedTuple):
    """What a command printed."""

    stdout: str
    stderr: str

    @property
    def told(self) -> str:
        """What it said on standard error, with every line break as a blank."""
        return " ".join(self.stderr.split())


Command = Callable[..., Done]
