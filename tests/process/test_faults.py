"""Whatever goes wrong in one trial costs that trial; whatever takes the disk costs nothing done."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from regimescope.api import resume, scan
from regimescope.errors import MeasurementError, RunFolderError
from regimescope.measure import isolation
from regimescope.records import Event, Run
from regimescope.report.lasting import LastingObserver
from regimescope.report.progress import SilentObserver
from regimescope.spec import ScanSpec
from regimescope.store import load_run

SPEC = ScanSpec(
    engine="simulated",
    model="smooth",
    budgets=(8, 16, 24, 32),
    prompt_tokens=4,
    processes=1,
    repeats=4,
    warm_up_s=0.0,
    trial_timeout_s=120.0,
    sentinel_every=0,
    isolation="process",
    engine_options={"noise": "none"},
)
# A worker whose engine does something else at one budget.
WORKER = """
import ctypes, os, resource, signal, sys, time
import regimescope.engines.simulated as s
import regimescope.measure.worker as w
generate = s.SimulatedSession.generate
count = 0
def faulty(self, prompt_ids, cell, **how):
    global count
    if cell.budget == 16:
        count += 1
        {fault}
    yield from generate(self, prompt_ids, cell, **how)
s.SimulatedSession.generate = faulty
w.main()
"""


def measure(
    monkeypatch: pytest.MonkeyPatch, folder: Path, fault: str, **values: Any
) -> tuple[Run, list[str]]:
    """Scan with a faulty worker; return the run and the causes of its events."""
    program = WORKER.format(fault=fault)
    monkeypatch.setattr(isolation, "WORKER_COMMAND", (sys.executable, "-c", program))
    spec = ScanSpec(**{name: getattr(SPEC, name) for name in SPEC.__struct_fields__} | values)
    run = scan(spec, out=folder)
    return run, [(event.facts or {}).get("cause", "") for event in run.events]


def statuses(run: Run) -> dict[int | None, Counter[str]]:
    """Return the statuses of the measurements by budget."""
    found: dict[int | None, Counter[str]] = {}
    for trial in run.trials:
        if not trial.warmup:
            found.setdefault(trial.cell.budget, Counter())[trial.status] += 1
    return found


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "signal"),
        ("sys.stderr.write('MemoryError\\n'); sys.stderr.flush(); os._exit(1)", "host_memory"),
        ("os.write(channel(), b'garbage\\n'); time.sleep(600)", "garbage"),
        ("os.write(channel(), b'half a mess'); os._exit(3)", "exit"),
        ("[os.write(channel(), b'x' * 2**20) for _ in range(33)]; time.sleep(600)", "oversized"),
        ("os._exit(0)", "exit"),
    ],
)
def test_three_deaths_in_a_row_end_their_cell_and_not_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str, cause: str
) -> None:
    # The channel of replies is the highest descriptor of the worker that is a pipe for writing.
    channel = "max(int(f) for f in os.listdir('/proc/self/fd') if is_reply(f))"
    define = (
        "is_reply = lambda f: os.path.exists('/proc/self/fd/' + f)"
        " and 'pipe' in os.readlink('/proc/self/fd/' + f) and int(f) > 2"
        f"; channel = lambda: {channel}; "
    )
    run, causes = measure(monkeypatch, tmp_path / "run", define + fault)
    found = statuses(run)
    assert found.pop(16) == {"failed": 3}
    assert found == {budget: {"ok": 4} for budget in (8, 24, 32)}
    assert Counter(causes)[f"{cause}_message" if cause == "oversized" else cause] == 3
    kinds = Counter(event.kind for event in run.events)
    assert kinds["process_death"] == 3
    assert kinds["skip"] == 1
    assert run.events[-1].kind == "done"
    lost = [trial for trial in run.trials if trial.status == "failed"]
    assert all((trial.message or "").startswith(cause) for trial in lost)


def test_deaths_that_are_not_in_a_row_do_not_end_their_cell(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Each process measures the budget once, and dies at the second time.
    fault = "count > 1 and os._exit(1)"
    run, _ = measure(monkeypatch, tmp_path / "run", fault, repeats=8)
    found = statuses(run)
    assert found[16]["failed"] >= 3
    assert found[16].total() == 8
    assert "skip" not in {event.kind for event in run.events}


def test_a_trial_that_hangs_is_ended_and_recorded_as_a_timeout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run, causes = measure(
        monkeypatch, tmp_path / "run", "time.sleep(600)", repeats=1, trial_timeout_s=3.0
    )
    assert statuses(run)[16] == {"timeout": 1}
    assert "hang" in causes
    assert "timeout" in {event.kind for event in run.events}


def test_a_generation_that_takes_all_memory_is_a_failed_trial(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # 2 GB of addresses in all: the process goes on until the system refuses it more.
    fault = (
        "resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30, 2 * 2**30)); "
        "hoard = [bytearray(2**26) for _ in range(100)]"
    )
    run, _ = measure(monkeypatch, tmp_path / "run", fault)
    found = statuses(run)
    assert found[16] == {"failed": 4}
    assert found[32] == {"ok": 4}
    failed = [trial for trial in run.trials if trial.status == "failed"]
    assert all("MemoryError" in (trial.message or "") for trial in failed)


def test_a_worker_that_cannot_start_is_named_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = "import a_library_that_nobody_has"
    monkeypatch.setattr(isolation, "WORKER_COMMAND", (sys.executable, "-c", program))
    with pytest.raises(MeasurementError, match="a_library_that_nobody_has") as caught:
        scan(SPEC, out=tmp_path / "run")
    assert "reinstall" in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_process_lost_while_it_starts_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The second process to start after the inspection dies before it is ready."""
    marker = tmp_path / "died"
    program = (
        "import os, sys\n"
        f"marker = {str(marker)!r}\n"
        "starts = int(open(marker).read()) if os.path.exists(marker) else 0\n"
        "open(marker, 'w').write(str(starts + 1))\n"
        "starts == 1 and os._exit(7)\n"
        "from regimescope.measure.worker import main\n"
        "main()\n"
    )
    monkeypatch.setattr(isolation, "WORKER_COMMAND", (sys.executable, "-c", program))
    run = scan(SPEC, out=tmp_path / "run")
    (death,) = (event for event in run.events if event.kind == "process_death")
    assert death.facts == {"cause": "exit"}
    assert "while it started" in death.message
    assert run.events[-1].kind == "done"
    assert all(trial.status == "ok" for trial in run.trials)


FULL_DISK = """
import resource, sys
from pathlib import Path
from regimescope.api import scan
from regimescope.errors import RunFolderError
from regimescope.spec import ScanSpec
spec = ScanSpec(engine="simulated", model="smooth", budgets=(64, 128, 256), prompt_tokens=4,
                processes=2, repeats=6)
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))
try:
    scan(spec, out=sys.argv[1])
except RunFolderError as error:
    print(error.message, error.remedy)
"""


def test_a_full_disk_ends_the_run_and_keeps_what_is_done(tmp_path: Path) -> None:
    """A limit on the size of files refuses writing as a full disk does, for every user."""
    folder = tmp_path / "run"
    ended = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "cannot be written: File too large" in ended.stdout
    assert "free some space; finished trials are kept" in ended.stdout
    before = load_run(folder)
    assert len(before.trials) > 3
    assert before.torn_lines == 0
    assert all(trial.status == "ok" for trial in before.trials)
    after = resume(folder)
    assert after.trials[: len(before.trials)] == before.trials
    assert after.events[-1].kind == "done"


def test_a_half_written_line_is_reported_and_cut_when_the_run_goes_on(tmp_path: Path) -> None:
    inline = {"isolation": "auto", "processes": 2}
    spec = ScanSpec(**{name: getattr(SPEC, name) for name in SPEC.__struct_fields__} | inline)
    folder = tmp_path / "run"
    scan(spec, out=folder)
    whole = (folder / "trials.jsonl").read_bytes()
    (folder / "trials.jsonl").write_bytes(whole[:-40])
    assert load_run(folder).torn_lines == 1
    after = resume(folder)
    assert after.torn_lines == 0
    (torn,) = (event for event in after.events if event.kind == "torn_line")
    assert "1 half-written line" in torn.message
    assert len({t.trial_id for t in after.trials if not t.warmup}) == 32


READ_ONLY = """
import ctypes, os, sys
from regimescope.api import resume, scan
from regimescope.errors import RunFolderError
from regimescope.spec import ScanSpec
if os.geteuid() == 0:
    # The superuser may write everywhere, by a capability that is given up here.
    header, no_capability = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, no_capability) == 0
for call in (lambda: resume(sys.argv[1]), lambda: scan(ScanSpec(engine="simulated",
             model="smooth", budgets=(8, 16)), out=sys.argv[1] + "/new")):
    try:
        call()
    except RunFolderError as error:
        print(error.message)
"""


def test_a_read_only_folder_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    inline = {"isolation": "auto"}
    spec = ScanSpec(**{name: getattr(SPEC, name) for name in SPEC.__struct_fields__} | inline)
    folder = tmp_path / "run"
    scan(spec, out=folder)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)
    try:
        ended = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(folder)],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    finally:
        folder.chmod(0o755)
    assert ended.stdout.count("cannot be written: Permission denied") == 2
    assert before == {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_system_without_room_for_a_process_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*command: object, **options: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    descriptors = len(list(Path("/dev/fd").iterdir()))
    monkeypatch.setattr(isolation.subprocess, "Popen", refused)
    with pytest.raises(MeasurementError, match="cannot be started: Resource temporarily"):
        isolation.ChildProcess()
    assert len(list(Path("/dev/fd").iterdir())) == descriptors


class Unreachable(SilentObserver):
    """Someone whose terminal was closed."""

    def __init__(self) -> None:
        self.calls = 0

    def event(self, event: Event) -> None:
        self.calls += 1
        raise BrokenPipeError(32, "Broken pipe")


def test_an_observer_that_cannot_be_reached_does_not_end_the_scan(tmp_path: Path) -> None:
    inline = {"isolation": "auto"}
    spec = ScanSpec(**{name: getattr(SPEC, name) for name in SPEC.__struct_fields__} | inline)
    gone = Unreachable()
    run = scan(spec, out=tmp_path / "run", observer=gone)
    assert run.events[-1].kind == "done"
    assert gone.calls == 1


def test_an_observer_with_a_mistake_of_its_own_is_heard() -> None:
    class Wrong(SilentObserver):
        def finished(self, message: str) -> None:
            raise ValueError(message)

    with pytest.raises(ValueError, match="the end"):
        LastingObserver(Wrong()).finished("the end")


@pytest.mark.parametrize("closed", ["stderr", "stdout"])
def test_a_reader_that_leaves_ends_neither_scan_nor_report(tmp_path: Path, closed: str) -> None:
    command = [
        *(sys.executable, "-m", "regimescope.cli", "scan", "smooth", "--engine", "simulated"),
        *("--budgets", "16:128:16", "--out", str(tmp_path / "run")),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    pipes = {"stdout": process.stdout, "stderr": process.stderr}
    pipes.pop(closed).close()
    (rest,) = pipes.values()
    with rest:
        said = rest.read()
    assert process.wait(timeout=120) == 0
    assert load_run(tmp_path / "run").events[-1].kind == "done"
    assert (b"CLEAN" in said) if closed == "stderr" else (b"Traceback" not in said)


def test_a_refused_folder_says_so_for_a_wrong_name() -> None:
    with pytest.raises(RunFolderError, match="cannot be looked up"):
        scan(SPEC, out="a\x00b")
