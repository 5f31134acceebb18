"""The measured child: one engine, one model, one request at a time. Layer: ``measure``.

Run as ``python -m regimescope.measure.worker`` it reads requests from standard input and answers on
what was standard output. It ends when its input does, even in the middle of a trial, so that no
orphan survives a parent that was killed; a guard sees to it where this process cannot.
"""

from __future__ import annotations

import gc
import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from typing import BinaryIO

from msgspec.structs import replace

from regimescope.engines.base import KnowsDevice, Session
from regimescope.engines.registry import get_engine
from regimescope.errors import UserError, WorkerError
from regimescope.host.counters import HostCounters, host_readers
from regimescope.measure import deaths, messages
from regimescope.measure.messages import (
    Broken,
    Done,
    Facts,
    Inspect,
    Measure,
    Measured,
    Open,
    Ping,
    Pong,
)
from regimescope.measure.process_run import ProcessRun, one_line
from regimescope.measure.sampling import TrialCounters
from regimescope.records import ModelFacts


class Worker:
    """Answers requests; holds one process run at most. Serves both ways of isolation."""

    def __init__(self) -> None:
        """Start without a model."""
        self._process_run: ProcessRun | None = None

    def handle(self, request: messages.Request) -> messages.Reply:
        """Answer one request; whatever goes wrong is an answer too."""
        try:
            return self._answer(request)
        except UserError as error:
            return messages.Refused(
                error=type(error).__name__, message=error.message, remedy=error.remedy
            )
        except Exception as error:  # noqa: BLE001 - the boundary of the process: told, not hidden
            traceback.print_exc(file=sys.stderr)
            return Broken(message=one_line(error), cause=deaths.of_error(error))

    def _answer(self, request: messages.Request) -> messages.Reply:
        """Do what is asked."""
        if isinstance(request, Measure):
            if self._process_run is None:
                raise WorkerError("a trial was asked for before a model was opened")
            return Measured(trial=self._process_run.measure(request.trial))
        if isinstance(request, Open):
            return Facts(facts=self._open(request))
        if isinstance(request, Inspect):
            return Facts(facts=get_engine(request.engine).inspect(request.request))
        if isinstance(request, Ping):
            return Pong()
        if self._process_run is not None:
            self._process_run.close()
            self._process_run = None
        return Done()

    def _open(self, request: Open) -> ModelFacts:
        """Load a model; what can be read of the machine meanwhile stands among its settings."""
        session = get_engine(request.engine).open(request.request)
        counters, facts = _counters(request, session), session.facts()
        self._process_run = ProcessRun(request, session, counters)
        if counters is None:
            return facts
        return replace(facts, settings=facts.settings | {"counters": counters.facts()})


def _counters(request: Open, session: Session) -> TrialCounters | None:
    """Return the counters of a process that measures a real machine."""
    if get_engine(request.engine).capabilities().virtual_clock:
        return None
    device_id = session.device_id() if isinstance(session, KnowsDevice) else None
    readers = host_readers(session.facts().device, device_id)
    return TrialCounters(session, HostCounters(readers), request.counters_every)


class Replies:
    """The way back to the parent, shared by the thread that measures and the one that listens."""

    def __init__(self, channel: BinaryIO) -> None:
        """Write to a channel that nothing else writes to."""
        self._channel = channel
        self._lock = threading.Lock()

    def send(self, reply: messages.Reply) -> None:
        """Write a reply through, as one piece."""
        line = messages.encode(reply)
        with self._lock:
            self._channel.write(line)
            self._channel.flush()


def main() -> None:
    """Answer requests until told to quit or until the parent is gone."""
    if len(sys.argv) > 1:
        start_guard(int(sys.argv[1]))
    replies = Replies(_claim_standard_output())
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(requests, replies), daemon=True).start()
    worker = Worker()
    while True:
        request = messages.decode_request(requests.get())
        # The collector is off during a trial, so garbage goes before it. What a loaded model
        # consists of is taken out of its sight: looking at it anew takes longer than a short trial.
        gc.collect()
        reply = worker.handle(request)
        if isinstance(request, Open):
            gc.freeze()
        replies.send(reply)
        if isinstance(reply, Done):
            # The reading thread holds standard input, which a normal exit would want to close.
            sys.stderr.flush()
            os._exit(0)


def start_guard(lifeline: int) -> None:
    """Start a shell that ends this process, and what it has started, when the parent is gone.

    It sleeps in a read of a pipe whose other end only the parent holds. The reading thread below
    does the same, but not while native code keeps the interpreter; and a signal of the kernel at
    the parent's death, which only Linux has, would leave alone what this process has started.

    Args:
        lifeline: Descriptor of the end to read from; it is closed in this process.
    """
    if os.getpgrp() == os.getpid():  # the whole group is ended, so it must be our own
        subprocess.Popen(
            ["/bin/sh", "-c", "read -r _; kill -KILL 0"],
            stdin=lifeline,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    os.close(lifeline)


def _claim_standard_output() -> BinaryIO:
    """Keep standard output for replies and send whatever libraries print to standard error."""
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return channel


def _read_lines(requests: queue.SimpleQueue[bytes], replies: Replies) -> None:
    """Hand on each line and answer pings; end the process at once when the parent is gone.

    The thread sleeps inside a read while a trial runs and so costs it nothing.
    """
    for line in sys.stdin.buffer:
        if line == _PING:
            replies.send(Pong())
        else:
            requests.put(line)
    _end_all()


_PING = messages.encode(Ping())


def _end_all() -> None:
    """End this process, and what it has started where they share a group."""
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
