"""A run folder from a stranger: refused by name, or read; nothing else happens."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regimescope.api import analyze, default_folder, resume
from regimescope.engines.base import EngineRequest
from regimescope.engines.hf import HfEngine
from regimescope.errors import RunFolderError, SpecError
from regimescope.growth import replayed
from regimescope.records import Cell, Event, Series, Trial
from regimescope.report.page import page_content
from regimescope.spec import ScanSpec, to_command
from regimescope.store import EVENTS, HEADER, TRIALS, RunFolder, limits, load, load_run

RECORDED = Path(__file__).parent.parent / "formats" / "data" / "schema_2"
NAMES = (HEADER, TRIALS, EVENTS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copied = tmp_path / "run"
    shutil.copytree(RECORDED, copied)
    return copied


def refusal(folder: Path) -> RunFolderError:
    """Load a folder that must be refused, and check that the error names file and remedy."""
    with pytest.raises(RunFolderError) as caught:
        load_run(folder)
    assert str(folder) in caught.value.message
    assert caught.value.remedy
    return caught.value


def header_with(folder: Path, **values: Any) -> None:
    table = json.loads((folder / HEADER).read_text())
    (folder / HEADER).write_text(json.dumps(table | values))


@pytest.mark.parametrize("name", NAMES)
def test_a_link_is_not_followed_for_reading_or_writing(
    folder: Path, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes((folder / name).read_bytes())
    before = outside.read_bytes()
    (folder / name).unlink()
    (folder / name).symlink_to(outside)
    assert "is a link" in refusal(folder).message
    with pytest.raises(RunFolderError, match="is a link"), RunFolder(folder).locked():
        pass
    if name != HEADER:
        made = RunFolder(folder)
        with pytest.raises(RunFolderError, match="is a link"):
            append_to(made, name)
    assert outside.read_bytes() == before


def append_to(folder: RunFolder, name: str) -> None:
    if name == TRIALS:
        folder.append_trial(trial())
    else:
        folder.append_event(Event(kind="done", at_utc="now", message="x"))


@pytest.mark.parametrize("name", NAMES)
def test_a_dangling_link_makes_no_file_elsewhere(folder: Path, tmp_path: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).symlink_to(tmp_path / "new")
    assert "is a link" in refusal(folder).message
    with pytest.raises(RunFolderError, match="is a link"), RunFolder(folder).locked():
        pass
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", NAMES)
def test_a_named_pipe_and_a_folder_are_refused_without_waiting(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert "no regular file" in refusal(folder).message
    (folder / name).unlink()
    (folder / name).mkdir()
    assert "no regular file" in refusal(folder).message


def trial(**values: Any) -> Trial:
    fixed: dict[str, Any] = {
        "trial_id": "t",
        "occasion": "o",
        "series": Series(engine="simulated"),
        "cell": Cell(budget=16),
        "status": "ok",
        "warmup": False,
        "phase": "decode",
    }
    return Trial(**(fixed | values))


LINE = (
    b'{"trial_id":"t","occasion":"o","series":{"engine":"e"},"cell":{},"status":"ok",'
    b'"warmup":false,"phase":"decode"%s}'
)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\x00\x00\x00",
        b"\xff\xfe\xfa",
        b"null",
        b"[]",
        LINE % b',"e2e_s":NaN',
        LINE % b',"e2e_s":Infinity',
        LINE % b',"e2e_s":1e999',
        LINE % b',"itl_s":[0.1,null]',
        LINE % b',"block":100000000000000000000',
        LINE % b',"env":{"deep":{"x":[-9223372036854775809]}}',
        LINE % (b',"env":{"x":' + b"9" * 5000 + b"}"),
        LINE % (b',"env":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        LINE % b',"block":1,"block":2',
        LINE % b',"env":{"x":1,"x":2}',
        LINE % b',"message":"\\ud800"',
        LINE % b',"message":"\xe9"',
        LINE % b',"status":"fine"',
        (LINE % b"").decode().encode("utf-16-le"),
    ],
)
def test_a_damaged_line_is_named_by_file_and_number(folder: Path, line: bytes) -> None:
    with (folder / TRIALS).open("ab") as file:
        file.write(line + b"\n")
    number = (folder / TRIALS).read_bytes()[: -len(line) - 1].count(b"\n") + 1
    assert f"{TRIALS}, line {number}: " in refusal(folder).message


def test_line_ends_of_another_system_are_read(folder: Path) -> None:
    whole = load_run(folder)
    for name in NAMES:
        (folder / name).write_bytes((folder / name).read_bytes().replace(b"\n", b"\r\n"))
    assert load_run(folder) == whole


def test_64_bit_integers_and_many_digits_are_read(folder: Path) -> None:
    extra = b',"start_ns":9223372036854775807,"e2e_s":0.12345678901234567890123'
    (folder / TRIALS).write_bytes(LINE % extra + b"\n")
    (read,) = load_run(folder).trials
    assert read.start_ns == 2**63 - 1


def test_an_empty_trials_file_is_a_run_that_has_just_begun(folder: Path) -> None:
    (folder / TRIALS).write_bytes(b"")
    assert load_run(folder).trials == ()


@pytest.mark.parametrize(
    ("limit", "most", "says"),
    [
        ("MAX_LINES", 3, "3 lines"),
        ("MAX_VALUES", 100, "100 values"),
        ("MAX_FILE_BYTES", 2000, "2,000 bytes"),
        ("MAX_LINE_BYTES", 300, "longer than 300 bytes"),
    ],
)
def test_limits_are_named_in_reading_and_in_writing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, says: str
) -> None:
    monkeypatch.setattr(limits, limit, most)
    error = refusal(folder)
    assert says in error.message
    assert f"{TRIALS}, line " in error.message
    size = (folder / TRIALS).stat().st_size
    with pytest.raises(RunFolderError, match=says):
        RunFolder(folder).append_trial(trial(itl_s=[0.1] * 200))
    assert (folder / TRIALS).stat().st_size == size


def test_a_line_without_end_is_not_read_into_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (limits, load):
        monkeypatch.setattr(module, "MAX_LINE_BYTES", 1000)
    (folder / TRIALS).write_bytes(b"x" * 1_000_000)
    assert max(map(len, load.read_lines(folder / TRIALS))) == 1001
    assert "longer than 1,000 bytes" in refusal(folder).message


def test_the_largest_trial_fits_into_a_line() -> None:
    whole = trial(itl_s=[0.123456789] * (2**20 - 1), synced=True)
    assert len(load.msgspec.json.encode(whole)) < limits.MAX_LINE_BYTES


def test_a_header_beyond_its_limits_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "MAX_HEADER_BYTES", 1000)
    assert "1,000 bytes of a header" in refusal(folder).message
    monkeypatch.setattr(load, "MAX_HEADER_BYTES", 10**6)
    monkeypatch.setattr(load, "MAX_VALUES", 500)
    assert "more than 100 values" in refusal(folder).message


@pytest.mark.parametrize(
    "cell", [{"budget": 2**20 + 1}, {"budget": -1}, {"prompt_tokens": 10**9}, {"batch": 10**6}]
)
def test_a_plan_that_no_spec_can_make_is_refused(folder: Path, cell: dict[str, int]) -> None:
    planned = {"trial_id": "t", "cell": cell, "block": 0, "repeat": 0}
    header_with(folder, plan={"seed": 0, "processes": [{"arm": "warm", "trials": [planned]}]})
    assert "asks for what cannot be" in refusal(folder).message


def test_a_phase_that_asks_for_what_cannot_be_is_refused_when_the_run_goes_on(
    folder: Path,
) -> None:
    planned = {"trial_id": "t", "cell": {"budget": 10**12}, "block": 0, "repeat": 0}
    facts = {"goes_on": False, "processes": [{"arm": "warm", "trials": [planned]}]}
    phase = Event(kind="phase", at_utc="now", message="x", facts=facts)
    with RunFolder.reopen(folder).locked():
        RunFolder(folder).append_event(phase)
    run = load_run(folder)
    assert run.header.plan is not None
    with pytest.raises(RunFolderError, match="asks for what cannot be"):
        replayed(run.header.plan, run.events)


def test_a_doubled_key_in_the_header_is_refused(folder: Path) -> None:
    text = (folder / HEADER).read_text()
    (folder / HEADER).write_text(text.replace("{", '{"schema_version": 1,', 1))
    assert "names a key twice" in refusal(folder).message


def test_a_stored_spec_cannot_say_which_remote_code_is_meant() -> None:
    # The flag itself is refused on resuming: tests/pipeline/test_remote_code.py.
    for option in ("code_revision", "auto_map"):
        request = EngineRequest(
            model="tiny", device="cpu", dtype="float32", seed=0, options={option: True}
        )
        with pytest.raises(SpecError, match=option):
            HfEngine().inspect(request)


def test_resuming_shows_what_would_be_measured_before_it_is_loaded(folder: Path) -> None:
    seen: list[str] = []

    class Watcher:
        def event(self, event: Event) -> None:
            seen.append(event.message)

    spec = json.loads((folder / HEADER).read_text())["spec"]
    header_with(folder, spec=spec | {"engine": "nobody", "model": "evil/model"})
    with pytest.raises(SpecError, match="nobody"):
        resume(folder, observer=Watcher())  # type: ignore[arg-type]
    assert "model evil/model on engine nobody" in seen[0]


def test_names_in_a_spec_become_one_folder_below_runs_and_no_option() -> None:
    evil = ScanSpec(model="--out=/x", device="../../../etc", budgets=(8, 16))
    path = default_folder(evil)
    assert path.parent == Path("runs")
    assert len(path.parts) == 2
    command = to_command(evil)
    assert command[-2:] == ["--", "--out=/x"]
    assert command.count("--out=/x") == 1


def test_a_command_of_another_program_is_not_shown(folder: Path) -> None:
    assert page_content(load_run(folder), analyze(folder))["command"]
    for command in (["curl", "evil.example"], [], ["regimescope"]):
        header_with(folder, command=command)
        assert page_content(load_run(folder), analyze(folder))["command"] is None


def test_the_name_in_a_header_is_no_path(folder: Path, tmp_path: Path) -> None:
    header_with(folder, run="../../elsewhere")
    run = load_run(folder)
    assert run.header.run == "../../elsewhere"
    with RunFolder.reopen(folder).locked():
        RunFolder(folder).append_event(Event(kind="done", at_utc="now", message="x"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copied = tmp_path_factory.mktemp("fuzz") / "run"
    shutil.copytree(RECORDED, copied)
    return copied


_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["ok", "warm", "budget", "decode", "phase", "\ud800", "\x00", "../x"]),
)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(NAMES), content=st.binary(max_size=200), at=st.floats(0, 1))
def test_spliced_bytes_are_read_or_refused_by_name(
    scratch: Path, name: str, content: bytes, at: float
) -> None:
    whole = (RECORDED / name).read_bytes()
    place = int(at * len(whole))
    check_exchanged(scratch, name, whole[:place] + content + whole[place + len(content) :])


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(NAMES), value=_JSON, random=st.randoms(use_true_random=False))
def test_exchanged_values_are_read_or_refused_by_name(
    scratch: Path, name: str, value: Any, random: Any
) -> None:
    whole = (RECORDED / name).read_bytes()
    line = whole if name == HEADER else whole.splitlines()[0]
    table = json.loads(line)
    place = table
    key = random.choice(list(place))
    while isinstance(place[key], dict) and place[key] and random.random() < 0.7:
        place = place[key]
        key = random.choice(list(place))
    place[key] = value
    check_exchanged(scratch, name, json.dumps(table).encode() + b"\n")


def check_exchanged(folder: Path, name: str, content: bytes) -> None:
    """Load a recorded run with one file exchanged: a run, or an error that names the folder."""
    for other in NAMES:
        (folder / other).write_bytes((RECORDED / other).read_bytes())
    (folder / name).write_bytes(content)
    refused = None
    try:
        load_run(folder)
    except RunFolderError as error:
        refused = error
    assert refused is None or (str(folder) in refused.message and refused.remedy)
