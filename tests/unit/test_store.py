"""The run folder: what is written comes back, what is not ours is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regimescope.errors import RunFolderError
from regimescope.plan import make_plan
from regimescope.records import SCHEMA_VERSION, Cell, Event, RunHeader, Series, Trial
from regimescope.spec import ScanSpec
from regimescope.store import RunFolder, check_free, is_run_folder, load_header, load_run

SPEC = ScanSpec(budgets=(16, 32))
HEADER = RunHeader(
    schema_version=SCHEMA_VERSION,
    run="a",
    created_utc="2026-01-01T00:00:00+00:00",
    spec=SPEC,
    plan=make_plan(SPEC),
)


def trial(name: str) -> Trial:
    return Trial(
        trial_id=name,
        occasion="o",
        series=Series(engine="simulated"),
        cell=Cell(budget=16, kv_cache="on"),
        status="ok",
        warmup=False,
        phase="decode",
        itl_s=[0.25, 0.5],
    )


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder.create(tmp_path / "run", HEADER)
    made.append_trial(trial("one"))
    made.append_event(Event(kind="done", at_utc="now", message="x"))
    made.append_trial(trial("two"))
    return made


def test_what_is_written_comes_back(folder: RunFolder) -> None:
    run = load_run(folder.path)
    assert run.header == HEADER
    assert run.trials == (trial("one"), trial("two"))
    assert [event.kind for event in run.events] == ["done"]
    assert run.torn_lines == 0


def test_lines_name_what_a_reader_filters_by_and_hold_no_null(folder: RunFolder) -> None:
    text = (folder.path / "trials.jsonl").read_text()
    assert "null" not in text
    first = json.loads(text.splitlines()[0])
    assert first["status"] == "ok"
    assert first["warmup"] is False
    assert first["cell"] == {"budget": 16, "kv_cache": "on"}
    assert first["itl_s"] == [0.25, 0.5]


def test_an_existing_path_is_never_overwritten(folder: RunFolder, tmp_path: Path) -> None:
    before = {p.name: p.read_bytes() for p in folder.path.iterdir()}
    with pytest.raises(RunFolderError, match="exists already") as caught:
        RunFolder.create(folder.path, HEADER)
    assert "--resume" in caught.value.remedy
    assert before == {p.name: p.read_bytes() for p in folder.path.iterdir()}
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(RunFolderError, match="exists already"):
        check_free(file)
    dangling = tmp_path / "link"
    dangling.symlink_to(tmp_path / "nowhere")
    with pytest.raises(RunFolderError, match="exists already"):
        check_free(dangling)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot be written"):
        RunFolder.create(tmp_path / "file" / "run", HEADER)


@pytest.mark.parametrize("cut", [1, 20, 100])
def test_a_torn_last_line_is_passed_over_counted_and_cut_off(folder: RunFolder, cut: int) -> None:
    file = folder.path / "trials.jsonl"
    whole = file.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    file.write_bytes(whole[:-cut])
    run = load_run(folder.path)
    assert run.trials == (trial("one"),)
    assert run.torn_lines == 1
    with RunFolder.reopen(folder.path).locked() as torn:
        assert torn == 1
        folder.append_trial(trial("three"))
    assert [t.trial_id for t in load_run(folder.path).trials] == ["one", "three"]
    assert len(last) > cut


def test_a_damaged_line_in_the_middle_is_named(folder: RunFolder) -> None:
    file = folder.path / "trials.jsonl"
    file.write_bytes(b'{"half": \n' + file.read_bytes())
    with pytest.raises(RunFolderError, match=r"trials\.jsonl, line 1"):
        load_run(folder.path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "damaged"),
        (b"[]", "damaged"),
        (b'{"run": "a"}', "no schema version"),
        (b'{"schema_version": true}', "no schema version"),
        (b'{"schema_version": "1"}', "no schema version"),
        (b'{"schema_version": 99}', "reads up to"),
        (b'{"schema_version": 1}', "damaged"),
        (b"[" * 100_000, "damaged"),
        (b"\xff", "damaged"),
        (b"\xff\xfe{\x00}\x00", "byte order mark"),
        (b'\xef\xbb\xbf{"schema_version": 1}', "byte order mark"),
    ],
)
def test_a_header_that_is_not_ours_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(RunFolderError, match=says):
        load_run(tmp_path)


def test_a_folder_without_a_header_is_refused(tmp_path: Path) -> None:
    assert not is_run_folder(tmp_path)
    with pytest.raises(RunFolderError, match="no run folder"):
        load_header(tmp_path)


def test_a_missing_trials_file_is_refused(folder: RunFolder) -> None:
    (folder.path / "trials.jsonl").unlink()
    with pytest.raises(RunFolderError, match="cannot be read"):
        load_run(folder.path)


def test_the_header_is_replaced_in_one_step(folder: RunFolder) -> None:
    folder.write_header(HEADER)
    assert sorted(p.name for p in folder.path.iterdir()) == [
        "events.jsonl",
        "run.json",
        "trials.jsonl",
    ]


def test_a_second_writer_is_kept_out_until_the_first_is_done(folder: RunFolder) -> None:
    other = RunFolder.reopen(folder.path)
    with folder.locked(), pytest.raises(RunFolderError, match="Another process"), other.locked():
        pass
    with other.locked() as torn:
        assert torn == 0


def test_a_run_without_events_is_still_a_run(folder: RunFolder) -> None:
    (folder.path / "events.jsonl").unlink()
    assert len(load_run(folder.path).trials) == 2
