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
from regimescope.errors import CapabilityError, SpecError, WorkerError, WorkerTimeout
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
    with pytest.raises(WorkerError, match="SIGKILL"):
        child.ask(Quit(), 60)


def test_a_child_that_cannot_start_is_reported_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child = scripted(monkeypatch, "raise ImportError('no such library')")
    with pytest.raises(WorkerError, match="status 1: ImportError: no such library"):
        child.ask(Quit(), 60)


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
    with pytest.raises(WorkerError, match="no message"):
        child.ask(Quit(), 60)
    assert not psutil.pid_exists(child._process.pid)


def test_a_line_without_end_is_cut_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "MAX_LINE_BYTES", 1000)
    child = scripted(
        monkeypatch,
        "import sys; sys.stdin.readline(); sys.stdout.write('x' * 10**6); sys.stdout.flush();"
        "sys.stdin.read()",
    )
    with pytest.raises(WorkerError, match="no message"):
        child.ask(Quit(), 60)


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
    with pytest.raises(WorkerTimeout, match="no answer within"):
        child.ask(Quit(), 3.0)
    assert not psutil.pid_exists(child._process.pid)
    grandchild = int(child._errors[-1])
    assert not psutil.pid_exists(grandchild) or (
        psutil.Process(grandchild).status() == psutil.STATUS_ZOMBIE
    )


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
