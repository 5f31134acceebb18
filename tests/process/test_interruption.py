"""Killing a scan loses the trial in flight and nothing else; resuming finishes the same plan."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from regimescope.records import Run
from regimescope.store import load_header, load_run

# Virtual time passes at once, so enough trials are planned for a signal to fall among them.
SCAN = [
    *("scan", "smooth", "--engine", "simulated", "--isolation", "process"),
    *("--budgets", "16:256:16", "--processes", "3", "--repeats", "4", "--quiet"),
]
BUDGETS = range(16, 257, 16)


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "regimescope.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(*arguments: str) -> tuple[int, bytes]:
    """Run a command to its end and return its status and what it said on standard error."""
    process = start(*arguments)
    _, errors = process.communicate(timeout=300)
    return process.returncode, errors


def wait_for_trials(folder: Path, number: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until that many trials are on disk."""
    file = folder / "trials.jsonl"
    deadline = time.monotonic() + 120
    while not file.exists() or file.read_bytes().count(b"\n") < number:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def assert_plan_is_complete(run: Run) -> None:
    assert run.header.plan is not None
    planned = Counter(t.trial_id for p in run.header.plan.processes for t in p.trials if t.counts)
    measured = Counter(t.trial_id for t in run.trials if not t.warmup and not t.sentinel)
    assert measured == planned
    assert set(planned.values()) == {1}
    visits = Counter(t.cell.budget for t in run.trials if not t.warmup and not t.sentinel)
    assert visits == dict.fromkeys(BUDGETS, 12)


@pytest.mark.parametrize("at_trial", [3, 40, 120])
def test_a_killed_parent_loses_only_the_trial_in_flight(tmp_path: Path, at_trial: int) -> None:
    folder = tmp_path / "run"
    scan = start(*SCAN, "--out", str(folder))
    wait_for_trials(folder, at_trial, scan)
    children = psutil.Process(scan.pid).children()
    os.kill(scan.pid, signal.SIGKILL)
    scan.communicate()
    psutil.wait_procs(children, timeout=60)
    assert not any(child.is_running() for child in children)
    before = load_run(folder)
    assert len(before.trials) >= at_trial
    assert all(trial.status == "ok" for trial in before.trials)

    resumed = start("scan", "--resume", str(folder), "--quiet")
    output, errors = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, errors
    after = load_run(folder)
    assert after.trials[: len(before.trials)] == before.trials
    assert_plan_is_complete(after)
    assert len({trial.occasion for trial in after.trials}) == 2
    assert b"CLEAN" in output


@pytest.fixture
def heeded_interrupts() -> Iterator[None]:
    """Let children heed Ctrl-C even where the tests run in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded_interrupts")
def test_ctrl_c_keeps_a_valid_folder_and_says_how_to_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    scan = start(*SCAN, "--out", str(folder))
    wait_for_trials(folder, 3, scan)
    scan.send_signal(signal.SIGINT)
    _, errors = scan.communicate(timeout=60)
    assert scan.returncode == 130
    # Lines are wrapped at the width of the console.
    assert f"--resume {folder}" in " ".join(errors.decode().split())
    run = load_run(folder)
    assert run.torn_lines == 0
    assert run.events[-1].kind == "stop"
    resumed = start("scan", "--resume", str(folder), "--quiet")
    resumed.communicate(timeout=300)
    assert_plan_is_complete(load_run(folder))


def child_of(process: subprocess.Popen[bytes]) -> psutil.Process:
    """Return the measured process of a scan; between two of them there is none for a moment."""
    deadline = time.monotonic() + 120
    while not (children := psutil.Process(process.pid).children()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return children[0]


def test_a_dead_child_costs_one_trial_at_most_and_the_rest_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    scan = start(*SCAN, "--out", str(folder))
    wait_for_trials(folder, 40, scan)
    child_of(scan).send_signal(signal.SIGKILL)
    _, errors = scan.communicate(timeout=300)
    assert scan.returncode == 0, errors
    run = load_run(folder)
    lost = [trial for trial in run.trials if trial.status != "ok"]
    (death,) = (event for event in run.events if event.kind == "process_death")
    assert "SIGKILL" in death.message
    assert death.facts == {"cause": "signal"}
    assert [trial.trial_id for trial in lost] == ([death.trial_id] if death.trial_id else [])
    assert_plan_is_complete(run)


def test_resuming_a_finished_run_measures_nothing_more(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    small = ("scan", "smooth", "--engine", "simulated", "--budgets", "16:128:16", "--quiet")
    assert finish(*small, "--out", str(folder))[0] == 0
    before = (folder / "trials.jsonl").read_bytes()
    assert finish("scan", "--resume", str(folder), "--quiet")[0] == 0
    assert (folder / "trials.jsonl").read_bytes() == before


def test_a_resume_under_other_conditions_is_refused_and_named(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    small = ("scan", "smooth", "--engine", "simulated", "--budgets", "16:128:16", "--quiet")
    assert finish(*small, "--out", str(folder))[0] == 0
    header = (folder / "run.json").read_text()
    version = load_header(folder).versions["numpy"]
    (folder / "run.json").write_text(header.replace(version, "0.0.1"))
    status, errors = finish("scan", "--resume", str(folder))
    assert status == 2
    assert b"numpy was 0.0.1" in errors
