"""Tables of a run: columns for notebooks, files, and that nothing gets lost or runs."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from regimescope import Run, ScanSpec, analyze, gap_columns, scan, trial_columns
from regimescope.api import export
from regimescope.errors import MissingDependencyError, RunFolderError, SpecError
from regimescope.store.export import export as write_table

BAND = {"bands": [{"onset": 256, "recovery": 320, "slowdown": 10.0}], "noise": "gauss"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    spec = ScanSpec(engine="simulated", model="smooth", engine_options=BAND,
                    budgets=tuple(range(32, 513, 32)))  # fmt: skip
    return scan(spec, out=tmp_path_factory.mktemp("export") / "run")


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_every_trial_is_a_row_and_numbers_come_back_exactly(run: Run) -> None:
    found = rows(write_table(run, None, "csv") or "")
    assert [row["trial_id"] for row in found] == [t.trial_id for t in run.trials]
    for row, trial in zip(found, run.trials, strict=True):
        assert float(row["e2e_s"]) == trial.e2e_s
        assert int(row["budget"]) == trial.cell.budget
        assert row["warmup"] == ("true" if trial.warmup else "false")
        assert row["capacity"] == ""


def test_columns_are_arrays_of_one_length_with_whole_numbers_kept(run: Run) -> None:
    columns = trial_columns(run)
    assert {values.shape for values in columns.values()} == {(len(run.trials),)}
    assert columns["budget"].dtype.kind == "i"
    assert columns["e2e_s"].dtype.kind == "f"
    assert columns["warmup"].dtype.kind == "b"
    tpot = columns["decode_s"] / (columns["output_tokens"] - 1)
    assert np.allclose(columns["tpot_s"], tpot)


def test_missing_numbers_are_nan_and_missing_texts_none(run: Run) -> None:
    lacking = replace(run.trials[0], ttft_s=None, process_run=None, message="why")
    columns = trial_columns(replace(run, trials=(lacking, *run.trials[1:])))
    assert np.isnan(columns["ttft_s"][0])
    assert np.isnan(columns["process_run"][0])
    assert np.isnan(columns["tpot_s"][0])
    assert columns["message"].tolist() == ["why", *[None] * (len(run.trials) - 1)]


def test_every_gap_is_a_row_that_knows_its_trial_and_context(run: Run) -> None:
    gaps = gap_columns(run)
    assert gaps["itl_s"].size == sum(len(t.itl_s or ()) for t in run.trials)
    for row in (0, len(run.trials) - 1):
        trial, mine = run.trials[row], gaps["trial"] == row
        assert gaps["itl_s"][mine].tolist() == trial.itl_s
        assert gaps["gap"][mine].tolist() == list(range((trial.cell.budget or 0) - 1))
        assert gaps["context_length"][mine][0] == (trial.cell.prompt_tokens or 0) + 1


def test_a_run_without_gaps_or_trials_has_empty_columns(run: Run) -> None:
    assert gap_columns(replace(run, trials=()))["itl_s"].shape == (0,)
    without = replace(run, trials=tuple(replace(t, itl_s=None) for t in run.trials))
    assert gap_columns(without)["context_length"].shape == (0,)
    assert all(values.size == 0 for values in trial_columns(replace(run, trials=())).values())


def test_an_unknown_prompt_leaves_the_context_unknown(run: Run) -> None:
    trial = replace(run.trials[0], cell=replace(run.trials[0].cell, prompt_tokens=None))
    one = replace(run, trials=(trial,))
    assert set(gap_columns(one)["context_length"].tolist()) == {-1}
    assert rows(write_table(one, None, "csv", "gaps") or "")[0]["context_length"] == ""


def test_measured_trials_give_the_same_verdict_when_they_are_read_again(
    run: Run, tmp_path: Path
) -> None:
    export(run, tmp_path / "measured.csv", measured=True)
    again = analyze(tmp_path / "measured.csv", x="budget", y="decode_s")
    before = analyze(run)
    assert again.verdict is before.verdict
    assert [(r.onset, r.recovery) for r in again.regimes] == [
        (r.onset, r.recovery) for r in before.regimes
    ]
    assert again.counts.trials == sum(1 for t in run.trials if not t.warmup and not t.sentinel)


def test_parquet_and_json_hold_what_csv_holds(run: Run, tmp_path: Path) -> None:
    from pyarrow import parquet

    for table in ("trials", "gaps"):
        path = tmp_path / f"{table}.parquet"
        assert write_table(run, path, "parquet", table) is None
        columns = json.loads(write_table(run, None, "json", table) or "")["columns"]
        assert parquet.read_table(path).to_pydict() == columns
        found = rows(write_table(run, None, "csv", table) or "")
        assert [row["trial_id"] for row in found] == columns["trial_id"]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_is_taken_for_a_formula(run: Run, start: str) -> None:
    series = replace(run.trials[0].series, model="=1")
    evil = replace(run.trials[0], message=f"{start}cmd()", series=series)
    (found,) = rows(write_table(replace(run, trials=(evil,)), None, "csv") or "")
    assert found["message"] == f"'{start}cmd()".replace("\r", "\n")
    assert found["model"] == "'=1"


def test_a_file_that_exists_is_kept(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "there.csv"
    path.write_text("mine")
    for file_format in ("csv", "parquet"):
        with pytest.raises(RunFolderError, match=r"there\.csv cannot be written"):
            write_table(run, path, file_format)
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((None, "xml"), "csv, json, parquet"),
        ((None, "csv", "samples"), "trials, gaps"),
        ((None, "parquet"), "--out"),
    ],
)
def test_what_cannot_be_exported_is_refused(run: Run, arguments: tuple, named: str) -> None:
    with pytest.raises(SpecError) as caught:
        write_table(run, *arguments)
    assert named in caught.value.remedy


def test_parquet_without_its_library_names_what_to_install(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError) as caught:
        write_table(run, tmp_path / "x.parquet", "parquet")
    assert "regimescope[catalog]" in caught.value.remedy
    assert not (tmp_path / "x.parquet").exists()
