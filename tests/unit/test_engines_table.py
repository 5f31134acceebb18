"""The engine tables: known times come back, finished rows are read, others go on or wait."""

import numpy as np
import pytest
from scripts import engines_table
from scripts.engines_table import (
    Row,
    factor_interval,
    figures,
    interval,
    measured,
    table,
    with_table,
)

from regimescope import ScanSpec

SPEC = ScanSpec(
    engine="simulated",
    model="smooth",
    device="virtual",
    budgets=(64, 128),
    mode="nested",
    prompt_tokens=64,
    processes=4,
    repeats=2,
    sentinel_every=0,
    warm_up_s=0.1,
    engine_options={"slope_s": 2e-5, "noise": "none", "process_spread": 0.01},
)
ROW = Row("ways", ("simulated", "dynamic", "none", "float32"), SPEC)


def test_times_of_a_known_machine_come_back(tmp_path):
    found = figures(measured(ROW, tmp_path))
    assert found.processes == 4
    # 10 ms and 20 us for each token of context, which runs from 65 to 191.
    for figure, truth in (
        (found.ttft_s, 64 * 2e-4),
        (found.tpot_s, 0.010 + 2e-5 * 128),
        (found.slope_s, 1000 * 2e-5),
    ):
        assert figure.low < figure.mean < figure.high
        assert figure.mean == pytest.approx(truth, rel=0.05)


def test_a_finished_row_is_read_and_not_measured_again(tmp_path, monkeypatch):
    first = measured(ROW, tmp_path)
    monkeypatch.setattr(engines_table, "scan", None)
    monkeypatch.setattr(engines_table, "resume", None)
    again = measured(ROW, tmp_path)
    assert [t.trial_id for t in again.trials] == [t.trial_id for t in first.trials]


def test_an_interrupted_row_goes_on(tmp_path):
    whole = measured(ROW, tmp_path)
    folder = tmp_path / ROW.key
    for name, kept in (("trials.jsonl", 3), ("events.jsonl", 1)):
        lines = (folder / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join(lines[:kept]))
    again = measured(ROW, tmp_path)
    assert len(again.trials) == len(whole.trials)
    assert any(event.kind == "resume" for event in again.events)


def test_a_folder_of_other_settings_is_not_taken(tmp_path):
    measured(ROW, tmp_path)
    other = ROW._replace(spec=engines_table._changed(SPEC, seed=9))
    with pytest.raises(ValueError, match="other settings"):
        measured(other, tmp_path)


def test_the_table_tells_figures_and_why_there_are_none(tmp_path):
    text = table([(ROW, measured(ROW, tmp_path)), (ROW, "not here: no such device")])
    heading, rule, row, refused = text.splitlines()
    assert heading.count("|") == rule.count("|") == row.count("|") == refused.count("|")
    assert "| 4 |" in row
    assert "20 (" in row or "19.9" in row or "20.1" in row
    assert "no such device" in refused


def test_rows_that_find_no_time_wait_and_those_refused_say_so(tmp_path):
    refused = ROW._replace(spec=engines_table._changed(SPEC, dtype="int3"))
    found = engines_table._measure_all([refused], tmp_path, max_seconds=60)
    assert "int3" in found[0][1]
    assert engines_table._measure_all([ROW], tmp_path, max_seconds=-1) == []


def test_an_interval_holds_the_mean_and_needs_no_spread():
    assert interval(np.array([2.0, 2.0, 2.0])) == (2.0, 2.0, 2.0)
    # Student's t of 2 degrees of freedom: 4.303 standard errors of 1 / sqrt(3).
    low, high = interval(np.array([1.0, 2.0, 3.0]))[1:]
    assert (low, high) == pytest.approx((2 - 2.4841, 2 + 2.4841), abs=1e-3)


def test_times_have_a_geometric_mean_and_an_interval_above_zero():
    found = factor_interval(np.array([0.001, 0.1]))
    assert found.mean == pytest.approx(0.01)
    assert 0 < found.low < found.mean < found.high
    assert found.mean / found.low == pytest.approx(found.high / found.mean)


def test_a_page_without_the_marks_is_refused():
    page = "before\n<!-- ways: begin -->\nold\n<!-- ways: end -->\nafter"
    assert with_table(page, "ways", "new") == (
        "before\n<!-- ways: begin -->\n\nnew\n\n<!-- ways: end -->\nafter"
    )
    with pytest.raises(ValueError, match="no place for the table families"):
        with_table(page, "families", "new")


def test_every_row_has_a_folder_of_its_own():
    rows = engines_table.way_rows(SPEC, "model.gguf") + engines_table.family_rows(SPEC)
    keys = [row.key for row in rows]
    assert len(set(keys)) == len(keys)
    assert {row.spec.kv_cache for row in rows if row.labels[1:2] == ("off",)} == {"off"}
    assert {row.spec.engine for row in rows} == {"hf", "mlx", "llama_cpp", "openai"}
    assert [row.spec.model for row in rows if row.served] == ["server"]
    assert {row.spec.model for row in rows if row.table == "families"} == {
        *engines_table.FAMILIES,
    }


def test_the_page_has_a_place_for_every_table():
    page = engines_table.PAGE.read_text(encoding="utf-8")
    for name in engines_table.HEADINGS:
        assert "new figures" in with_table(page, name, "new figures")
