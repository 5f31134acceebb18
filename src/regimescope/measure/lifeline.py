"""What ends a child whose parent is gone, and a child that has to go. Layer: ``measure``."""

from __future__ import annotations

import os
import signal


class Lifeline:
    """A pipe that closes when this process is gone, however it went.

    The child gives its end to a guard that sleeps in a read; see ``worker.start_guard``.

    Attributes:
        passed: Descriptors to pass on to the child, whose numbers it is told.
    """

    def __init__(self) -> None:
        """Open the pipe; there is none where descriptors cannot be passed on."""
        self.passed: tuple[int, ...] = ()
        self._held: tuple[int, ...] = ()
        if os.name != "nt":  # there the end of the child's input has to do
            theirs, ours = os.pipe()
            self.passed, self._held = (theirs,), (ours,)

    def let_go(self) -> None:
        """Close the end that the child holds by now; safe to call twice."""
        passed, self.passed = self.passed, ()
        for descriptor in passed:
            os.close(descriptor)

    def cut(self) -> None:
        """Close the end that is held here, as the end of this process would; safe to call twice."""
        held, self._held = self._held, ()
        for descriptor in held:
            os.close(descriptor)


def kill_group(pid: int) -> None:
    """Kill a process and whatever it started."""
    try:
        if hasattr(os, "killpg"):
            os.killpg(pid, signal.SIGKILL)
        else:  # pragma: no cover - Windows has no process groups in this sense
            os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return  # it ended by itself in the meantime
