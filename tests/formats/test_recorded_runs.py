"""One recorded run folder per schema version, which loads for ever."""

from __future__ import annotations

import copy
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from regimescope.api import analyze
from regimescope.errors import RunFolderError
from regimescope.records import SCHEMA_VERSION
from regimescope.store import EVENTS, HEADER, TRIALS, RunFolder, load_run
from regimescope.store.migrations import STEPS, migrate_event, migrate_header, migrate_trial

DATA = Path(__file__).parent / "data"
VERSIONS = range(1, SCHEMA_VERSION + 1)
# What was recorded: trials by status, and events.
TRIALS_BY_STATUS = {"ok": 48, "failed": 5}
EVENTS_BY_KIND = {
    "process_start": 5,
    "process_end": 3,
    "process_death": 1,
    "veto": 1,
    "done": 1,
}


def recorded(version: int) -> Path:
    return DATA / f"schema_{version}"


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_recorded_and_small(version: int) -> None:
    table = json.loads((recorded(version) / HEADER).read_text())
    assert table["schema_version"] == version
    assert sum(file.stat().st_size for file in recorded(version).iterdir()) < 60_000


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_loads_whole(version: int) -> None:
    run = load_run(recorded(version))
    assert run.header.schema_version == SCHEMA_VERSION
    assert run.torn_lines == 0
    assert Counter(trial.status for trial in run.trials) == TRIALS_BY_STATUS
    assert Counter(event.kind for event in run.events) == EVENTS_BY_KIND
    assert run.header.plan is not None
    assert len(run.header.plan.processes) == 3
    assert {trial.stage for trial in run.trials} == {None}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_gives_a_verdict(version: int) -> None:
    found = analyze(recorded(version))
    # One block was vetoed: its eight trials are left out, and said to be.
    assert (found.counts.trials, found.counts.failed, found.counts.dropped) == (32, 3, 8)
    assert found.noise is not None
    assert found.noise.vetoed == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_going_on_raises_the_header_and_keeps_every_line(version: int, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(recorded(version), folder)
    before = load_run(folder)
    with RunFolder.reopen(folder).locked() as torn:
        assert torn == 0
    assert json.loads((folder / HEADER).read_text())["schema_version"] == SCHEMA_VERSION
    assert load_run(folder) == before
    assert (folder / TRIALS).read_bytes() == (recorded(version) / TRIALS).read_bytes()
    assert (folder / EVENTS).read_bytes() == (recorded(version) / EVENTS).read_bytes()


def test_there_is_a_step_from_every_older_version() -> None:
    assert sorted(STEPS) == list(range(1, SCHEMA_VERSION))


def test_steps_are_pure_and_leave_alone_what_is_new_already() -> None:
    header: dict[str, Any] = json.loads((recorded(1) / HEADER).read_text())
    line: dict[str, Any] = json.loads((recorded(1) / TRIALS).read_text().splitlines()[0])
    event: dict[str, Any] = json.loads((recorded(1) / EVENTS).read_text().splitlines()[0])
    for table, migrate in (
        (header, migrate_header),
        (line, migrate_trial),
        (event, migrate_event),
    ):
        before = copy.deepcopy(table)
        once = migrate(table, 1)
        assert table == before
        assert migrate(once, 1) == once


def test_a_newer_version_is_refused_for_reading_and_for_writing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(recorded(SCHEMA_VERSION), folder)
    table = json.loads((folder / HEADER).read_text())
    newer = table | {"schema_version": SCHEMA_VERSION + 1, "plan": "of another shape"}
    (folder / HEADER).write_text(json.dumps(newer))
    for open_it in (load_run, RunFolder.reopen):
        with pytest.raises(RunFolderError, match="reads up to") as caught:
            open_it(folder)
        assert "pip install --upgrade" in caught.value.remedy
    with pytest.raises(RunFolderError, match="reads up to"), RunFolder(folder).locked():
        pass


def test_a_search_of_version_2_loads_with_its_phases() -> None:
    run = load_run(DATA / "schema_2_search")
    stages = Counter(trial.stage for trial in run.trials if trial.stage)
    assert stages == {"calibrate": 9, "screen": 4, "rerun": 6, "confirm": 6}
    assert Counter(event.kind for event in run.events)["phase"] == 4
    aborted = [trial for trial in run.trials if trial.status == "aborted"]
    assert len(aborted) == 3
    assert all(trial.abort_at and trial.projected_s for trial in aborted)
