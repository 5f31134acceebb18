"""The measured child: however it ends, the parent says how and leaves none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import psutil
import pytest

from regimescope.engines.base import EngineRequest
from regimescope.errors import (
    CapabilityError,
    DeathCause,
    SpecError,
    WorkerError,
    WorkerTimeout,
)
from regimescope.measure import isolation
from regimescope.measure.isolation import ChildProcess, InlineProcess, OpenRun, inspect_model
from regimescope.measure.messages import Broken, Facts, Inspect, Measure, Open, Quit
from regimescope.records import Cell, PlannedTrial, Series

REQUEST = EngineRequest(
    model="smooth", device="virtual", dtype="float32", seed=0, options={"noise": "none"}
)
OPEN = Open(
    engine="simulated",
    request=REQUEST,
    occasion="o",
    process_run=0,
    series=Series(engine="simulated"),
    seed=0,
    warm_up_s=0.0,
)
CELL = Cell(budget=9, prompt_tokens=4, kv_cache="on", batch=1)
PLANNED = PlannedTrial(trial_id="t", cell=CELL, block=0, repeat=0)


def assert_ends(pid: int) -> None:
    """Wait until a process that was killed is gone, or waits for somebody to take note of it."""
    deadline = time.monotonic() + 60
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def scripted(monkeypatch: pytest.MonkeyPatch, program: str) -> ChildProcess:
    """Start a child that runs a program of the test instead of the worker."""
    real = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return real([sys.executable, "-c", program], **options)

    monkeypatch.setattr(isolation.subprocess, "Popen", start)
    return ChildProcess()


@pytest.mark.parametrize("kind", [ChildProcess, InlineProcess])
def test_both_ways_of_isolation_measure_the_same(kind: type[ChildProcess]) -> None:
    with OpenRun(kind(), OPEN) as child:
        assert child.facts.device == "virtual"
        trial = child.measure(PLANNED, 60)
    assert trial.status == "ok"
    assert trial.output_tokens == 9
    assert trial.decode_s == pytest.approx(sum(0.01 + 5e-6 * n for n in range(5, 13)), abs=1e-6)


def test_the_child_is_gone_after_a_run() -> None:
    with OpenRun(ChildProcess(), OPEN) as child:
        process = child._process._process
        child.measure(PLANNED, 60)
    assert not psutil.pid_exists(process.pid)
    assert process.returncode == 0


def test_a_wrong_request_is_told_in_the_words_of_the_engine() -> None:
    wrong = EngineRequest(model="nobody", device="virtual", dtype="float32", seed=0)
    for inline in (True, False):
        with pytest.raises(SpecError, match="nobody") as caught:
            inspect_model("simulated", wrong, inline=inline)
        assert "smooth" in caught.value.remedy


def test_an_unknown_engine_is_refused_by_the_child() -> None:
    with pytest.raises(SpecError, match="nothing"):
        inspect_model("nothing", REQUEST, inline=False)


def test_a_trial_before_a_model_is_answered_not_crashed() -> None:
    child = ChildProcess()
    try:
        assert isinstance(child.ask(Measure(trial=PLANNED), 60), Broken)
        assert isinstance(child.ask(Inspect(engine="simulated", request=REQUEST), 60), Facts)
    finally:
        child.end()


def test_a_child_that_dies_is_reported_with_its_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    child = scripted(monkeypatch, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(WorkerError, match="SIGKILL") as caught:
        child.ask(Quit(), 60)
    assert caught.value.cause is DeathCause.SIGNAL


def test_a_child_that_cannot_start_is_reported_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child = scripted(monkeypatch, "raise ImportError('no such library')")
    with pytest.raises(WorkerError, match="status 1: ImportError: no such library") as caught:
        child.ask(Quit(), 60)
    assert caught.value.cause is DeathCause.IMPORT_FAILURE
    assert "reinstall" in str(caught.value)


@pytest.mark.parametrize(
    "program",
    [
        "import sys; sys.stdin.readline(); print('hello')",
        'import sys; sys.stdin.readline(); print(\'{"type": "Facts"}\')',
        "import sys; sys.stdin.readline(); sys.stdout.buffer.write(bytes([255, 254, 10]))",
    ],
)
def test_garbage_on_the_pipe_is_reported_and_the_child_ended(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    child = scripted(monkeypatch, program + "\nsys.stdout.flush()\nsys.stdin.read()")
    with pytest.raises(WorkerError, match="no message") as caught:
        child.ask(Quit(), 60)
    assert caught.value.cause is DeathCause.GARBAGE
    assert not psutil.pid_exists(child._process.pid)


def test_a_line_without_end_is_cut_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "MAX_LINE_BYTES", 1000)
    child = scripted(
        monkeypatch,
        "import sys; sys.stdin.readline(); sys.stdout.write('x' * 10**6); sys.stdout.flush();"
        "sys.stdin.read()",
    )
    with pytest.raises(WorkerError, match="more than 1,000 bytes") as caught:
        child.ask(Quit(), 60)
    assert caught.value.cause is DeathCause.OVERSIZED


def test_a_child_that_hangs_is_ended_with_everything_it_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = (
        "import subprocess, sys, time\n"
        "kid = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(kid.pid, file=sys.stderr, flush=True)\n"
        "time.sleep(600)\n"
    )
    child = scripted(monkeypatch, program)
    with pytest.raises(WorkerTimeout, match="no answer within") as caught:
        child.ask(Quit(), 3.0)
    assert caught.value.cause is DeathCause.NO_HEARTBEAT
    assert not psutil.pid_exists(child._process.pid)
    assert_ends(int(child._errors[-1]))


def test_what_a_dead_child_started_is_ended_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    )
    child = scripted(monkeypatch, program)
    started = time.monotonic()
    with pytest.raises(WorkerError, match="status 0"):
        child.ask(Quit(), 300)
    assert time.monotonic() - started < 290  # it did not wait for what the child left behind


def test_what_libraries_print_does_not_reach_the_messages() -> None:
    request = EngineRequest(model="smooth", device="virtual", dtype="float32", seed=0)
    program = (
        "import os\n"
        "import regimescope.engines.simulated as s\n"
        "inspect = s.SimulatedEngine.inspect\n"
        "def noisy(self, request):\n"
        "    print('from python'); os.system('echo from a library')\n"
        "    return inspect(self, request)\n"
        "s.SimulatedEngine.inspect = noisy\n"
        "from regimescope.measure.worker import main\n"
        "main()\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        child = scripted(patch, program)
    try:
        assert isinstance(child.ask(Inspect(engine="simulated", request=request), 60), Facts)
    finally:
        child.end()
    assert "from a library" in child._errors


def test_the_child_ends_when_its_parent_is_killed() -> None:
    program = (
        "import time\n"
        "from regimescope.measure.isolation import ChildProcess\n"
        "child = ChildProcess()\n"
        "print(child._process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        child = psutil.Process(pid)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        child.wait(timeout=60)
    finally:
        parent.kill()
        parent.stdout.close()
    assert not psutil.pid_exists(pid)


def test_a_device_that_is_absent_is_refused_before_anything_is_measured() -> None:
    request = EngineRequest(model="tiny", device="cuda:63", dtype="float32", seed=0)
    with pytest.raises(CapabilityError, match="cuda"):
        inspect_model("hf", request, inline=False)


def test_a_trial_that_hangs_is_told_from_a_process_that_is_deaf(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hanging = (
        "import time\n"
        "import regimescope.measure.worker as w\n"
        "w.Worker.handle = lambda self, request: time.sleep(600)\n"
        "import sys; sys.argv = ['worker']\n"
        "w.main()\n"
    )
    child = scripted(monkeypatch, hanging)
    with pytest.raises(WorkerTimeout, match="still listens") as caught:
        child.ask(Inspect(engine="simulated", request=REQUEST), 10.0)
    assert caught.value.cause is DeathCause.HANG
    assert not psutil.pid_exists(child._process.pid)


def test_a_stopped_process_is_deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "PING_TIMEOUT_S", 0.2)
    child = ChildProcess()
    assert isinstance(child.ask(Inspect(engine="simulated", request=REQUEST), 60), Facts)
    os.kill(child._process.pid, signal.SIGSTOP)
    with pytest.raises(WorkerTimeout, match="does not listen") as caught:
        child.ask(Inspect(engine="simulated", request=REQUEST), 0.2)
    assert caught.value.cause is DeathCause.NO_HEARTBEAT
    assert not psutil.pid_exists(child._process.pid)


def test_an_answer_before_its_question_is_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = (
        "import sys\n"
        "sys.stdin.readline()\n"
        'print(\'{"type": "Done"}\'); print(\'{"type": "Done"}\', flush=True)\n'
        "sys.stdin.read()\n"
    )
    child = scripted(monkeypatch, twice)
    child.ask(Quit(), 60)
    deadline = time.monotonic() + 60
    while child._lines.empty():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(WorkerError, match="nobody asked for") as caught:
        child.ask(Quit(), 60)
    assert caught.value.cause is DeathCause.GARBAGE


def test_a_flood_of_lines_is_not_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    child = scripted(monkeypatch, "while True: print('x' * 1000, flush=True)")
    with pytest.raises(WorkerError, match="no message"):
        child.ask(Quit(), 60)
    assert child._lines.qsize() <= isolation.MAX_WAITING_LINES + 2


def test_a_closed_pipe_of_a_living_process_is_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    child = scripted(monkeypatch, "import os, sys; os.close(1); sys.stdin.read()")
    with pytest.raises(WorkerError, match="closed its pipe") as caught:
        child.ask(Inspect(engine="simulated", request=REQUEST), 60)
    assert caught.value.cause is DeathCause.GARBAGE
    assert not psutil.pid_exists(child._process.pid)


def test_an_answer_about_another_trial_is_garbage() -> None:
    with OpenRun(InlineProcess(), OPEN) as child:
        answer = child._process.ask(Measure(trial=PLANNED), 60)
        child._process.ask = lambda request, timeout_s: answer  # type: ignore[method-assign]
        other = PlannedTrial(trial_id="other", cell=CELL, block=0, repeat=0)
        with pytest.raises(WorkerError, match="answered Measured") as caught:
            child.measure(other, 60)
    assert caught.value.cause is DeathCause.GARBAGE


def test_what_a_child_started_ends_with_a_parent_that_is_killed() -> None:
    # The child holds the interpreter in native code, so that only its guard can act.
    busy = (
        "import subprocess, sys, threading\n"
        "kid = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "import regimescope.measure.worker as w\n"
        "w.start_guard(int(sys.argv[1]))\n"
        "print(kid.pid, flush=True)\n"
        "import ctypes\n"
        "ctypes.PyDLL(None).sleep(600)\n"
    )
    program = (
        "import sys, time\n"
        "from regimescope.measure import isolation\n"
        f"isolation.WORKER_COMMAND = (sys.executable, '-c', {busy!r})\n"
        "child = isolation.ChildProcess()\n"
        "print(child._process.pid, int(child._lines.get()), flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
    finally:
        parent.kill()
        parent.communicate()
    assert len(pids) == 2
    for pid in pids:
        assert_ends(pid)
