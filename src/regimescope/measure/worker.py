"""The measured child: one engine, one model, one request at a time. Layer: ``measure``.

Run as ``python -m regimescope.measure.worker`` it reads requests from standard input and answers on
what was standard output. It ends when its input does, even in the middle of a trial, so that no
orphan survives a parent that was killed.
"""

from __future__ import annotations

import gc
import os
import queue
import sys
import threading
import traceback
from typing import BinaryIO

from regimescope.engines.registry import get_engine
from regimescope.errors import UserError, WorkerError
from regimescope.measure import messages
from regimescope.measure.messages import Broken, Done, Facts, Inspect, Measure, Measured, Open
from regimescope.measure.process_run import ProcessRun, one_line


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
            return Broken(message=one_line(error))

    def _answer(self, request: messages.Request) -> messages.Reply:
        """Do what is asked."""
        if isinstance(request, Measure):
            if self._process_run is None:
                raise WorkerError("a trial was asked for before a model was opened")
            return Measured(trial=self._process_run.measure(request.trial))
        if isinstance(request, Open):
            session = get_engine(request.engine).open(request.request)
            self._process_run = ProcessRun(request, session)
            return Facts(facts=session.facts())
        if isinstance(request, Inspect):
            return Facts(facts=get_engine(request.engine).inspect(request.request))
        if self._process_run is not None:
            self._process_run.close()
            self._process_run = None
        return Done()


def main() -> None:
    """Answer requests until told to quit or until the parent is gone."""
    replies = _claim_standard_output()
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(requests,), daemon=True).start()
    worker = Worker()
    while True:
        request = messages.decode_request(requests.get())
        # The collector is off during a trial, so garbage goes before it. What a loaded model
        # consists of is taken out of its sight: looking at it anew takes longer than a short trial.
        gc.collect()
        reply = worker.handle(request)
        if isinstance(request, Open):
            gc.freeze()
        replies.write(messages.encode(reply))
        replies.flush()
        if isinstance(reply, Done):
            # The reading thread holds standard input, which a normal exit would want to close.
            sys.stderr.flush()
            os._exit(0)


def _claim_standard_output() -> BinaryIO:
    """Keep standard output for replies and send whatever libraries print to standard error."""
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return channel


def _read_lines(requests: queue.SimpleQueue[bytes]) -> None:
    """Hand on each line; end the process at once when the parent is gone.

    The thread sleeps inside a read while a trial runs and so costs it nothing.
    """
    for line in sys.stdin.buffer:
        requests.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
