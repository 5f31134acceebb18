"""The generic table: what is read, and how a slip is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from regimescope.errors import InputError, UserError
from regimescope.importers.generic import read_table
from regimescope.reasons import Reason


def table(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "table.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_rows_become_trials_with_what_is_known_and_nothing_more(tmp_path: Path) -> None:
    path = table(tmp_path, "budget,note,latency_s\n16,a,1.5\n32,b,2.5e0\n\n16,c,1.6\n")
    run = read_table(path, x="budget", y="latency_s")
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
    run = read_table(table(tmp_path, content), x="budget", y="latency_s")
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
        read_table(table(tmp_path, content), x="budget", y="latency_s")
    assert caught.value.reason is reason
    assert says in caught.value.message
    assert caught.value.remedy


def test_many_slips_are_cut_after_twenty(tmp_path: Path) -> None:
    rows = "".join(f"{n},x\n" for n in range(1, 100))
    with pytest.raises(InputError) as caught:
        read_table(table(tmp_path, "budget,latency_s\n" + rows), x="budget", y="latency_s")
    assert caught.value.message.count("\n") == 20
    assert "and 79 more" in caught.value.message


@pytest.mark.parametrize("content", [b"budget,latency_s\n16,\xff\n", b'budget,latency_s\n"16,1\n'])
def test_what_is_no_csv_text_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UserError, match=r"table\.csv"):
        read_table(table(tmp_path, content), x="budget", y="latency_s")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.csv", tmp_path):
        with pytest.raises(UserError):
            read_table(path, x="budget", y="latency_s")
