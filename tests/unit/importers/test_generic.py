"""The generic table: what is read, and how a slip is named."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from regimescope import Run, analyze
from regimescope.errors import InputError, MissingDependencyError, SpecError, UserError
from regimescope.importers.generic import Columns, read_table
from regimescope.importers.table_rows import parse_where
from regimescope.reasons import Reason
from regimescope.results import Grade, Verdict

NAMED = Columns("budget", "latency_s")


def table(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "table.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_rows_become_trials_with_what_is_known_and_nothing_more(tmp_path: Path) -> None:
    path = table(tmp_path, "budget,note,latency_s\n16,a,1.5\n32,b,2.5e0\n\n16,c,1.6\n")
    run = read_table(path, NAMED)
    assert [(t.cell.budget, t.e2e_s) for t in run.trials] == [(16, 1.5), (32, 2.5), (16, 1.6)]
    first = run.trials[0]
    assert first.output_tokens is None
    assert first.process_run is None
    assert first.decode_s is None
    assert run.header.source == "generic"


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfbudget,latency_s\n16,1\n32,2\n",
        b"budget,latency_s\r\n16,1\r\n32,2\r\n",
        b'"budget","latency_s"\n"16","1"\n" 32 ","2"\n',
        b" budget , latency_s \n16.0,1\n32,2",
    ],
)
def test_usual_variants_of_csv_are_read(tmp_path: Path, content: bytes) -> None:
    run = read_table(table(tmp_path, content), NAMED)
    assert [(t.cell.budget, t.e2e_s) for t in run.trials] == [(16, 1.0), (32, 2.0)]


@pytest.mark.parametrize(
    ("content", "reason", "says"),
    [
        ("", Reason.EMPTY, "empty"),
        ("budget,other\n16,1\n", Reason.EMPTY, "no column 'latency_s'"),
        ("latency_s\n1\n", Reason.EMPTY, "no column 'budget'"),
        ("budget,latency_s\n", Reason.EMPTY, "0 measurements"),
        ("budget,latency_s\n16,1\n", Reason.TOO_FEW_BUDGETS, "1 measurement;"),
        ("budget,latency_s,budget\n16,1,2\n", Reason.MIXED_SERIES, "twice"),
        ("budget,latency_s\n16,fast\n32,1\n", Reason.INVALID_LATENCY, "csv:2: latency_s: 'fast'"),
        ("budget,latency_s\n16,1\n32,nan\n", Reason.INVALID_LATENCY, "csv:3: latency_s: 'nan'"),
        ("budget,latency_s\n16,1\n32,inf\n", Reason.INVALID_LATENCY, "'inf'"),
        ("budget,latency_s\n16,1\n32,\n", Reason.INVALID_LATENCY, "''"),
        ("budget,latency_s\n16,1\n32\n", Reason.INVALID_LATENCY, "''"),
        ("budget,latency_s\n16,0\n32,1\n", Reason.INVALID_LATENCY, "'0'"),
        ("budget,latency_s\n16,-2\n32,1\n", Reason.INVALID_LATENCY, "'-2'"),
        ('budget,latency_s\n16,"1,500"\n32,1\n', Reason.INVALID_LATENCY, "'1,500'"),
        ("budget,latency_s\n16,1.5.2\n32,1\n", Reason.INVALID_LATENCY, "'1.5.2'"),
        ("budget,latency_s\n16,1e999\n32,1\n", Reason.INVALID_LATENCY, "1e999"),
        ("budget,latency_s\nx,1\n32,1\n", Reason.INVALID_BUDGET, "csv:2: budget: 'x'"),
        ("budget,latency_s\n0,1\n32,1\n", Reason.INVALID_BUDGET, "'0'"),
        ("budget,latency_s\n-16,1\n32,1\n", Reason.INVALID_BUDGET, "'-16'"),
        ("budget,latency_s\n16.5,1\n32,1\n", Reason.INVALID_BUDGET, "'16.5'"),
        ("budget,latency_s\n1e30,1\n32,1\n", Reason.INVALID_BUDGET, "'1e30'"),
        ("budget,latency_s\n16,1e308\n32,1\n", Reason.INVALID_LATENCY, "'1e308'"),
        ("budget,latency_s\n16,9,5\n32,1\n", Reason.INVALID_LATENCY, "csv:2: 3 fields"),
    ],
)
def test_a_slip_is_named_by_file_line_and_column(
    tmp_path: Path, content: str, reason: Reason, says: str
) -> None:
    with pytest.raises(InputError) as caught:
        read_table(table(tmp_path, content), NAMED)
    assert caught.value.reason is reason
    assert says in caught.value.message
    assert caught.value.remedy


def test_many_slips_are_cut_after_twenty(tmp_path: Path) -> None:
    rows = "".join(f"{n},x\n" for n in range(1, 100))
    with pytest.raises(InputError) as caught:
        read_table(table(tmp_path, "budget,latency_s\n" + rows), NAMED)
    assert caught.value.message.count("\n") == 20
    assert "and 79 more" in caught.value.message


@pytest.mark.parametrize("content", [b"budget,latency_s\n16,\xff\n", b'budget,latency_s\n"16,1\n'])
def test_what_is_no_csv_text_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UserError, match=r"table\.csv"):
        read_table(table(tmp_path, content), NAMED)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.csv", tmp_path):
        with pytest.raises(UserError):
            read_table(path, NAMED)


# --- what else columns tell -----------------------------------------------------------------------


def seconds(run: Run) -> list[float | None]:
    return [t.e2e_s if t.e2e_s is not None else t.decode_s for t in run.trials]


@pytest.mark.parametrize(
    ("column", "unit", "expected"),
    [
        ("latency", None, [4.0, 8.0]),
        ("latency_s", None, [4.0, 8.0]),
        ("latency_ms", None, [0.004, 0.008]),
        ("latency_us", None, [4e-6, 8e-6]),
        ("latency_ns", None, [4e-9, 8e-9]),
        ("latency_ms", "s", [4.0, 8.0]),
        ("ms", None, [4.0, 8.0]),
        ("t", "ms_per_token", [0.004, 0.008]),
        ("t", "us_per_token", [4e-6, 8e-6]),
        ("rate", "tokens_per_s", [0.25, 0.125]),
    ],
)
def test_the_unit_is_what_is_told_or_what_the_name_ends_in(
    tmp_path: Path, column: str, unit: str | None, expected: list[float]
) -> None:
    path = table(tmp_path, f"budget,{column}\n16,4\n32,8\n")
    run = read_table(path, Columns("budget", column, unit))
    assert seconds(run) == pytest.approx(expected, rel=1e-12)
    per_token = unit is not None and "token" in unit
    assert {t.decode_steps for t in run.trials} == ({1} if per_token else {None})


def test_an_unknown_unit_and_a_rate_of_zero_are_refused(tmp_path: Path) -> None:
    path = table(tmp_path, "budget,rate\n16,0\n32,8\n")
    with pytest.raises(SpecError, match="fortnight"):
        read_table(path, Columns("budget", "rate", "fortnight"))
    with pytest.raises(InputError, match=r"csv:2: rate: '0'"):
        read_table(path, Columns("budget", "rate", "tokens_per_s"))


def test_processes_repeats_and_order_come_from_their_columns(tmp_path: Path) -> None:
    path = table(tmp_path, "budget,t,pid,run,n\n16,1,b,0,3\n16,1.1,a,0,2\n16,1.2,b,1,1\n")
    run = read_table(path, Columns("budget", "t", None, "pid", "run", "n"))
    assert [(t.process_run, t.repeat, t.order_index) for t in run.trials] == [
        (0, 0, 3),
        (1, 0, 2),
        (0, 1, 1),
    ]


@pytest.mark.parametrize("bad", ["", "x", "-1", "1.5", "nan"])
def test_an_ordinal_that_is_none_is_named(tmp_path: Path, bad: str) -> None:
    path = table(tmp_path, f"budget,t,run\n16,1,{bad}\n32,2,0\n")
    with pytest.raises(InputError, match=r"csv:2: run"):
        read_table(path, Columns("budget", "t", repeat="run"))


def test_the_same_repeat_twice_is_no_measurement_more(tmp_path: Path) -> None:
    path = table(tmp_path, "budget,t,run\n16,1,0\n16,1.1,0\n32,2,0\n")
    with pytest.raises(InputError, match="line2 and line3 are the same repeat of budget 16"):
        read_table(path, Columns("budget", "t", repeat="run"))
    assert len(read_table(path, Columns("budget", "t")).trials) == 3


def test_rows_are_chosen_and_the_others_counted(tmp_path: Path) -> None:
    path = table(tmp_path, "budget,t,device\n16,1,cpu\n16,9,mps\n32,2,cpu\n")
    run = read_table(path, Columns("budget", "t", where=(("device", "cpu"),)))
    assert seconds(run) == [1.0, 2.0]
    assert [event.message for event in run.events] == ["table.csv: 1 row left out by --where"]
    with pytest.raises(InputError, match="0 measurements") as caught:
        read_table(path, Columns("budget", "t", where=(("device", "gpu"),)))
    assert "--where" in caught.value.remedy


def test_two_processes_that_agree_reach_grade_b(tmp_path: Path) -> None:
    rows = "".join(
        f"{b},{(10 if 256 <= b < 384 else 1) * b * (1 + 0.001 * k + 0.002 * p)},{p},{k},{b}\n"
        for b in range(64, 641, 32)
        for p in range(3)
        for k in range(2)
    )
    path = table(tmp_path, "budget,t,pid,run,tokens\n" + rows)
    told = {"process": "pid", "repeat": "run", "n": "tokens"}
    conclusion = analyze(path, x="budget", y="t", columns=told)
    assert (conclusion.verdict, conclusion.grade) == (Verdict.SPIKE, Grade.B)
    for known, grade in (
        ({"process": "pid", "n": "tokens"}, Grade.B),
        ({"process": "pid", "repeat": "run"}, Grade.C),
        ({"n": "tokens"}, Grade.C),
    ):
        assert analyze(path, x="budget", y="t", columns=known).grade is grade


def test_a_generation_that_ended_early_is_left_out_where_its_tokens_are_told(
    tmp_path: Path,
) -> None:
    rows = "".join(f"{b},{b / 10},{b}\n" for b in range(16, 161, 16))
    path = table(tmp_path, f"budget,t,tokens\n{rows}96,0.5,5\n")
    conclusion = analyze(path, x="budget", y="t", columns={"n": "tokens"})
    assert conclusion.counts.dropped == 1
    assert Reason.TOKEN_COUNT_MISMATCH in conclusion.reasons


@pytest.mark.parametrize(
    "content",
    [
        "budget\tt\n16\t1\n32\t2\n",
        "budget;t\n16;1\n32;2\n",
        '[{"budget": 16, "t": 1}, {"budget": 32, "t": 2.0}]',
        '{"budget": 16, "t": 1}\n{"t": 2, "budget": 32, "more": [1]}\n',
        '\ufeff[{"budget": 16, "t": 1}, {"budget": 32, "t": 2.0}]',
    ],
)
def test_other_separators_and_json_are_read(tmp_path: Path, content: str) -> None:
    run = read_table(table(tmp_path, content), Columns("budget", "t"))
    assert [(t.cell.budget, t.e2e_s) for t in run.trials] == [(16, 1.0), (32, 2.0)]


def parquet_file(folder: Path, columns: dict[str, list[object]]) -> Path:
    path = folder / "table.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    return path


def test_parquet_is_read_without_its_lists(tmp_path: Path) -> None:
    columns: dict[str, list[object]] = {
        "budget": [16, 32, 64], "t_ms": [1.5, 2.5, 3.5], "gaps": [[1], [2], []],
    }  # fmt: skip
    run = read_table(parquet_file(tmp_path, columns), Columns("budget", "t_ms"))
    assert seconds(run) == pytest.approx([0.0015, 0.0025, 0.0035])
    columns["t_ms"][1] = None
    with pytest.raises(InputError, match=r"parquet:2: t_ms: ''"):
        read_table(parquet_file(tmp_path, columns), Columns("budget", "t_ms"))
    with pytest.raises(InputError, match="no column 'gaps'"):
        read_table(parquet_file(tmp_path, columns), Columns("budget", "gaps"))


def test_parquet_whose_columns_nobody_names_asks_for_them(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Which columns"):
        analyze(parquet_file(tmp_path, {"budget": [16, 32], "t": [1.0, 2.0]}))


def test_damaged_parquet_and_a_missing_library_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = parquet_file(tmp_path, {"budget": [16, 32], "t": [1.0, 2.0]})
    whole = path.read_bytes()
    for cut in (4, 20, len(whole) // 2, len(whole) - 4):
        path.write_bytes(whole[:cut])
        with pytest.raises(UserError, match="damaged Parquet"):
            read_table(path, Columns("budget", "t"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match="needs pyarrow"):
        read_table(path, Columns("budget", "t"))


def test_names_of_nested_objects_are_joined_by_dots(tmp_path: Path) -> None:
    path = table(tmp_path, '[{"a": {"b": 16}, "t": 1}, {"a": {"b": 32}, "t": 2}, {"t": null}]')
    with pytest.raises(InputError, match=r"csv:3: a\.b: ''"):
        read_table(path, Columns("a.b", "t"))


@pytest.mark.parametrize(
    "content",
    ["[]", "{", "[1, 2]", '{"budget": 16', "[" * 100 + "]" * 100, '{"a": NaN'],
)
def test_json_without_objects_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(UserError):
        read_table(table(tmp_path, content), Columns("budget", "t"))


@pytest.mark.parametrize("pair", ["device", "=mps", " =x"])
def test_a_choice_of_rows_that_is_none_is_refused(pair: str) -> None:
    with pytest.raises(SpecError, match="COLUMN=VALUE"):
        parse_where([pair])
    assert parse_where(["a = b=c"]) == (("a", "b=c"),)
