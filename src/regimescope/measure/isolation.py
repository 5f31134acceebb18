"""The parent's side of measuring: start a child, ask, wait, end it. Layer: ``measure``.

One seam with two implementations under the same contract: ``ChildProcess`` for everything that
takes real time, ``InlineProcess`` for engines with a virtual clock.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections import deque
from typing import IO, Protocol

from regimescope import errors
from regimescope.engines.base import EngineRequest
from regimescope.errors import (
    DeathCause,
    MeasurementError,
    UserError,
    WorkerError,
    WorkerTimeout,
)
from regimescope.measure import deaths, messages
from regimescope.measure.lifeline import Lifeline, kill_group
from regimescope.measure.messages import MAX_LINE_BYTES, Inspect, Measure, Open, Ping, Quit
from regimescope.measure.worker import Worker
from regimescope.records import ModelFacts, PlannedTrial, Status, Trial
from regimescope.units import seconds

# Loading weights from a slow disk or compiling kernels can take minutes; more is a hang.
OPEN_TIMEOUT_S = 1800.0
# A child that was asked to end and has nothing to measure ends within a second or not at all.
QUIT_TIMEOUT_S = 10.0
# What a dead child has written is read at once; a pipe still open then is held by another process.
LAST_WORDS_S = 1.0
# A listening thread answers a ping at once, unless its process is stopped, swapped out or inside
# native code that keeps the interpreter.
PING_TIMEOUT_S = 2.0
# The last lines of a dead child's standard error are what a user needs to see.
ERROR_LINES = 20
# A line of an error; longer ones are output of a library without line ends.
MAX_ERROR_LINE_BYTES = 10_000
# The child speaks once for each request; more than a few lines in advance is garbage, which is
# not collected.
MAX_WAITING_LINES = 8
WORKER_COMMAND = (sys.executable, "-m", "regimescope.measure.worker")


class MeasuredProcess(Protocol):
    """A process run as its parent sees it."""

    def ask(self, request: messages.Request, timeout_s: float) -> messages.Reply:
        """Send a request and wait for the answer.

        Raises:
            WorkerTimeout: No answer in time; the process has been ended.
            WorkerError: The process died or answered with something else than a message.
        """
        ...

    def quit(self) -> None:
        """Let the process release its model and end by itself; end it if it does not."""
        ...

    def end(self) -> None:
        """Make sure that the process is gone; safe to call twice."""
        ...


class ChildProcess:
    """A fresh Python process that measures; waited for to its end."""

    def __init__(self) -> None:
        """Start the process in a session of its own, out of reach of the terminal's Ctrl-C.

        Raises:
            MeasurementError: The system cannot start another process.
        """
        self._kills_before = deaths.kernel_kills()
        self._lifeline = Lifeline()
        try:
            self._process = subprocess.Popen(
                [*WORKER_COMMAND, *map(str, self._lifeline.passed)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=self._lifeline.passed,
            )
        except OSError as error:
            self._lifeline.cut()
            raise MeasurementError(
                f"the measured process cannot be started: {error.strerror}"
            ) from error
        finally:
            self._lifeline.let_go()
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._errors: deque[str] = deque(maxlen=ERROR_LINES)
        self._readers = [
            threading.Thread(target=self._read_replies, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        threading.Thread(target=self._watch, daemon=True).start()

    def ask(self, request: messages.Request, timeout_s: float) -> messages.Reply:
        """Send a request and wait for the answer; see ``MeasuredProcess.ask``."""
        try:
            self._refuse_early_lines()
            return messages.decode_reply(self._answer(request, timeout_s))
        except WorkerError:
            self.end()
            raise

    def _answer(self, request: messages.Request, timeout_s: float) -> bytes:
        """Send a request and return the line that answers it.

        Raises:
            WorkerError: There is none, or it is too long.
        """
        try:
            _pipe(self._process.stdin).write(messages.encode(request))
            _pipe(self._process.stdin).flush()
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise self._overdue(timeout_s) from None
        except OSError:
            line = b""  # the child closed its input: it is dead, and the same words explain it
        if len(line) >= MAX_LINE_BYTES:
            raise WorkerError(
                f"the measured process wrote a line of more than {MAX_LINE_BYTES:,} bytes, "
                "which is no message",
                cause=DeathCause.OVERSIZED,
            )
        if not line.endswith(b"\n"):  # nothing, or half a message of a process that died
            raise self._lost()
        return line

    def _refuse_early_lines(self) -> None:
        """Refuse an answer that came before its question; it would be taken for the next one.

        Raises:
            WorkerError: There is one, or the process is gone.
        """
        try:
            line = self._lines.get_nowait()
        except queue.Empty:
            return
        if not line.endswith(b"\n"):
            raise self._lost()
        raise WorkerError(
            "the measured process wrote a line that nobody asked for, which is no message",
            cause=DeathCause.GARBAGE,
        )

    def _overdue(self, timeout_s: float) -> WorkerTimeout:
        """Say whether a process whose answer is overdue still listens; its trial is lost anyway."""
        cause, how = DeathCause.HANG, "it still listens"
        try:
            _pipe(self._process.stdin).write(messages.encode(Ping()))
            _pipe(self._process.stdin).flush()
            self._lines.get(timeout=PING_TIMEOUT_S)
        except (queue.Empty, OSError):
            cause, how = DeathCause.NO_HEARTBEAT, "it does not listen either"
        return WorkerTimeout(f"no answer within {seconds(timeout_s)}; {how}", cause=cause)

    def _lost(self) -> WorkerError:
        """Make sure that the process is gone, and say how it was lost."""
        closed_its_pipe = not self._is_gone()
        self.end()
        if closed_its_pipe:
            return WorkerError(
                "the measured process closed its pipe without an answer", cause=DeathCause.GARBAGE
            )
        killed = deaths.kernel_kills() > self._kills_before
        death = deaths.of_process(self._process.returncode, self._errors, killed)
        return WorkerError(death.message, cause=death.cause)

    def _is_gone(self) -> bool:
        """Return whether the process ends by itself; its pipe closes just before it does."""
        try:
            self._process.wait(timeout=LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self) -> None:
        """End the process and everything it started, and wait until it is gone."""
        # Also when the process itself is dead: what it started holds its pipes open.
        kill_group(self._process.pid)
        self._process.wait()
        self._lifeline.cut()
        for reader in self._readers:
            reader.join(timeout=QUIT_TIMEOUT_S)
        if any(reader.is_alive() for reader in self._readers):
            return  # something left the group and keeps a pipe; closing it would wait for that
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            try:
                _pipe(pipe).close()
            except BrokenPipeError:
                continue  # unsent input of a dead process

    def quit(self) -> None:
        """Let the process release its model and end by itself; end it if it does not."""
        try:
            if self._process.poll() is None:
                self.ask(Quit(), QUIT_TIMEOUT_S)
                self._process.wait(timeout=QUIT_TIMEOUT_S)
        except (WorkerError, subprocess.TimeoutExpired):
            pass  # it had nothing left to measure, so that how it ends changes no result
        finally:
            self.end()

    def _read_replies(self) -> None:
        """Hand on each line of the child, and an empty one when it is gone.

        After a line that is too long, or too many of them, nothing more is read, so that a child
        gone wild fills its pipe and not this process.
        """
        pipe = _pipe(self._process.stdout)
        while line := pipe.readline(MAX_LINE_BYTES):
            self._lines.put(line)
            if len(line) >= MAX_LINE_BYTES or self._lines.qsize() > MAX_WAITING_LINES:
                return
        self._lines.put(b"")

    def _watch(self) -> None:
        """Tell that the child is gone even while something it started keeps its pipe open."""
        self._process.wait()
        self._readers[0].join(timeout=LAST_WORDS_S)
        self._lines.put(b"")

    def _read_errors(self) -> None:
        """Keep the last lines of the child's standard error."""
        pipe = _pipe(self._process.stderr)
        while line := pipe.readline(MAX_ERROR_LINE_BYTES):
            self._errors.append(line.decode("utf-8", "replace").rstrip())


class InlineProcess:
    """The same conversation without a process, for engines whose clock is virtual.

    Requests and replies pass through the same encoding as on a pipe.
    """

    def __init__(self) -> None:
        """Start without a model."""
        self._worker = Worker()

    def ask(self, request: messages.Request, timeout_s: float) -> messages.Reply:
        """Answer at once; virtual time knows no timeout."""
        del timeout_s
        decoded = messages.decode_request(messages.encode(request))
        return messages.decode_reply(messages.encode(self._worker.handle(decoded)))

    def quit(self) -> None:
        """Release the model."""
        self._worker.handle(Quit())

    def end(self) -> None:
        """Release the model."""
        self.quit()


class OpenRun:
    """A process run that is ready to measure; a context manager that leaves no process behind."""

    def __init__(self, process: MeasuredProcess, request: Open) -> None:
        """Load the model.

        Raises:
            UserError: The request cannot be met.
            MeasurementError: Loading failed or the process died.
        """
        self._process = process
        try:
            self.facts = _facts(process.ask(request, OPEN_TIMEOUT_S))
        except BaseException:
            process.end()
            raise

    def measure(self, planned: PlannedTrial, timeout_s: float) -> Trial:
        """Have one generation measured, and wait for it without using the machine.

        Raises:
            WorkerTimeout: The trial took longer than ``timeout_s``.
            WorkerError: The process died or answered with garbage.
        """
        reply = self._process.ask(Measure(trial=planned), timeout_s)
        if isinstance(reply, messages.Measured) and reply.trial.trial_id == planned.trial_id:
            return reply.trial
        cause = reply.cause if isinstance(reply, messages.Broken) else DeathCause.GARBAGE
        raise WorkerError(f"the measured process answered {_describe(reply)}", cause=cause)

    def __enter__(self) -> OpenRun:
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """End the process: politely when all went well, at once otherwise."""
        if kind is None:
            self._process.quit()
        else:
            self._process.end()


def lost_trial(
    request: Open,
    planned: PlannedTrial,
    status: Status,
    message: str,
    *,
    timeout_s: float | None = None,
) -> Trial:
    """Return the record of a trial whose process did not live to report it.

    Args:
        request: The process run.
        planned: The trial.
        status: ``timeout`` or ``failed``.
        message: What went wrong, for people.
        timeout_s: How long it was given, where it took longer.
    """
    return Trial(
        trial_id=planned.trial_id,
        occasion=request.occasion,
        series=request.series,
        cell=planned.cell,
        status=status,
        message=message,
        timeout_s=timeout_s,
        warmup=planned.warmup,
        sentinel=planned.sentinel,
        stage=planned.stage,
        phase="decode",
        process_run=request.process_run,
        block=planned.block,
        repeat=planned.repeat,
    )


def start_process(inline: bool) -> MeasuredProcess:
    """Start a process to measure in, or its stand-in for virtual clocks."""
    return InlineProcess() if inline else ChildProcess()


def inspect_model(engine: str, request: EngineRequest, *, inline: bool) -> ModelFacts:
    """Ask a short-lived process for the facts of a model, so that no library loads in this one.

    Raises:
        UserError: The request cannot be met; the message and remedy come from the engine.
        MeasurementError: The process died or failed.
    """
    process = start_process(inline)
    try:
        return _facts(process.ask(Inspect(engine=engine, request=request), OPEN_TIMEOUT_S))
    finally:
        process.end()


def _facts(reply: messages.Reply) -> ModelFacts:
    """Return the facts in a reply, or raise what it reports instead."""
    if isinstance(reply, messages.Facts):
        return reply.facts
    if isinstance(reply, messages.Refused):
        known: dict[str, type[UserError]] = {
            kind.__name__: kind
            for kind in (errors.SpecError, errors.CapabilityError, errors.MissingDependencyError)
        }
        raise known.get(reply.error, UserError)(reply.message, remedy=reply.remedy)
    if isinstance(reply, messages.Broken):
        raise MeasurementError(f"the engine failed ({reply.cause.value}): {reply.message}")
    raise MeasurementError(f"the engine failed: {_describe(reply)}")


def _describe(reply: messages.Reply) -> str:
    """Return what an unexpected reply says."""
    if isinstance(reply, (messages.Broken, messages.Refused)):
        return reply.message
    return type(reply).__name__


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    """Return a pipe that was asked for when the process was started."""
    if pipe is None:
        raise WorkerError("the measured process has no pipe")
    return pipe
