"""The command line as a user meets it: what it prints, and how it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pipeline.command import Command

from regimescope.records import SCHEMA_VERSION

DATA = Path(__file__).parent / "data"
SIMULATED = ("--engine", "simulated", "--budgets", "384:768:32")


def test_help_loads_no_engine_and_no_numerical_library() -> None:
    program = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from regimescope.cli import app\n"
        "result = CliRunner().invoke(app, ['--help'])\n"
        "assert result.exit_code == 0 and 'scan' in result.output\n"
        "heavy = {'torch', 'transformers', 'numpy', 'scipy', 'altair', 'plotext'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"


def test_version(run: Command) -> None:
    assert run("--version").stdout.startswith("regimescope 0.")


def test_the_papers_regime_is_found_where_it_was_injected(run: Command, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = run("scan", "paper", *SIMULATED, "--out", str(out), "--json", "--quiet")
    found = json.loads(done.stdout)
    assert found["verdict"] == "SPIKE"
    assert found["grade"] == "C"
    (regime,) = found["regimes"]
    assert regime["class"] == "SPIKE"
    assert regime["onset"] == [480, 512]
    assert regime["recovery"] == [608, 640]
    assert regime["slowdown"]["low"] < 11.0 < regime["slowdown"]["high"]
    assert found["counts"] == {"trials": 39, "failed": 0, "dropped": 0}
    assert sorted(p.name for p in out.iterdir()) == [
        "events.jsonl",
        "report.html",
        "run.json",
        "trials.jsonl",
    ]
    assert "null" not in done.stdout
    assert "NaN" not in done.stdout


def test_without_the_regime_the_same_scan_is_clean(run: Command, tmp_path: Path) -> None:
    out = tmp_path / "run"
    found = json.loads(
        run("scan", "smooth", *SIMULATED, "--out", str(out), "--json", "--quiet").stdout
    )
    assert found["verdict"] == "CLEAN"
    assert found["regimes"] == []


def test_the_summary_fits_80_columns_and_says_where_the_report_is(run: Command) -> None:
    done = run("scan", "paper", *SIMULATED, "--out", "here")
    assert "SPIKE candidate" in done.stdout
    assert "(480, 512]" in done.stdout
    assert "report: here/report.html\n" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "\x1b" not in done.stdout + done.stderr


def test_a_long_path_is_printed_in_one_piece(run: Command, tmp_path: Path) -> None:
    out = tmp_path / ("long-" * 20)
    done = run("scan", "paper", *SIMULATED, "--out", str(out))
    assert f"report: {out / 'report.html'}\n" in done.stdout


def test_a_run_folder_can_be_reported_and_analyzed_again(run: Command, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = run("scan", "paper", *SIMULATED, "--out", str(out), "--json", "--quiet").stdout
    (out / "report.html").unlink()
    assert run("report", str(out), "--json").stdout == first
    assert not (out / "report.html").exists()
    assert "writing the report" in run("report", str(out)).stderr
    assert (out / "report.html").stat().st_size > 10_000
    assert run("analyze", str(out), "--json").stdout == first


def test_two_arms_give_one_page_and_two_verdicts(run: Command) -> None:
    arms = ("--arms", "warm,fresh", "--processes", "2")
    found = json.loads(run("scan", "paper", *SIMULATED, *arms, "--out", "here", "--json").stdout)
    assert found["verdict"] == "SPIKE"
    assert [other["verdict"] for other in found["apart"]] == ["SPIKE"]


def test_nested_mode_is_analyzed_by_context_length(run: Command, tmp_path: Path) -> None:
    band = '[{"onset":400,"recovery":500,"slowdown":4,"axis":"context"}]'
    done = run(
        *("scan", "smooth", "--engine", "simulated", "--budgets", "64:768:64"),
        *("--mode", "nested", "--engine-option", f"bands={band}", "--quiet", "--json"),
        *("--out", str(tmp_path / "run")),
    )
    found = json.loads(done.stdout)
    assert found["axis"] == "context"
    (regime,) = found["regimes"]
    assert regime["onset"][0] <= 400 <= regime["onset"][1] + 8
    assert regime["recovery"][0] <= 500 <= regime["recovery"][1] + 8


def test_the_published_probe_is_one_regime(run: Command) -> None:
    done = run("analyze", str(DATA / "probe.csv"), "--x", "budget", "--y", "latency_s", "--json")
    found = json.loads(done.stdout)
    assert found["verdict"] == "SPIKE"
    assert found["grade"] == "C"
    (regime,) = found["regimes"]
    assert regime["onset"] == [496, 512]
    assert regime["recovery"] == [624, 640]
    assert regime["slowdown"]["value"] == pytest.approx(11.1, abs=0.3)
    assert found["certificate"]["value"] == pytest.approx(13.4, abs=0.1)
    assert {"no_replication", "missing_process_run"} <= set(found["reasons"])


def test_engines_are_listed_with_their_state(run: Command) -> None:
    listed = run("engines").stdout
    assert "hf" in listed
    assert "simulated" in listed


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("scan", "gpt2-huge", "--device", "cpu"), "gpt2-huge"),
        (("scan", "nobody", "--engine", "simulated"), "smooth"),
        (("scan", "--engine", "hx"), "hf"),
        (("scan", "tiny", "--device", "cdua"), "cuda"),
        (("scan", "tiny", "--device", "cuda:63"), "cuda"),
        (("scan", "tiny", "--device", "cpu", "--dtype", "int3"), "float32"),
        (("scan", "tiny", "--budgets", ""), "no budget"),
        (("scan", "tiny", "--budgets", "768:128:128"), "reversed"),
        (("scan", "tiny", "--budgets", "16,16"), "duplicated"),
        (("scan", "tiny", "--budgets", "0,16"), "positive"),
        (("scan", "tiny", "--budgets=-5,16"), "positive"),
        (("scan", "tiny", "--device", "cpu", "--budgets", "512,1024"), "1,024 positions"),
        (("scan", "smooth", "--engine", "simulated", "--kv-cache", "maybe"), "on, off"),
        (("scan", "smooth", "--engine", "simulated", "--engine-option", "bandz=1"), "bands"),
        (("scan", "smooth", "--engine", "simulated", "--device", "tpu"), "virtual"),
        (("scan", "smooth", "--engine", "simulated", "--dtype", "int3"), "float32"),
        (("analyze", "nowhere.csv"), "does not exist"),
        (("scan", "--resume", "nowhere"), "no run folder"),
        (("scan", "tiny", "--resume", "nowhere", "--seed", "4"), "cannot be given beside"),
        (("report", "nowhere"), "nowhere"),
        (("analyze", "nowhere.csv", "--x", "a", "--y", "b"), "does not exist"),
    ],
)
def test_bad_input_is_refused_before_anything_is_measured(
    run: Command, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    done = run(*arguments, expect=2)
    assert says in done.told
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_neither_used_nor_changed(run: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    done = run("scan", "smooth", *SIMULATED, "--out", str(tmp_path), expect=2)
    assert "exists already" in done.told
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_a_folder_that_cannot_be_written_is_refused(run: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "run"
    done = run("scan", "smooth", *SIMULATED, "--out", str(out), expect=2)
    assert "cannot be written" in done.told


def test_a_newer_run_folder_is_refused_with_the_remedy(run: Command, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run("scan", "smooth", *SIMULATED, "--out", str(out), "--quiet")
    header = (out / "run.json").read_text()
    newer = header.replace(
        f'"schema_version": {SCHEMA_VERSION}', f'"schema_version": {SCHEMA_VERSION + 1}'
    )
    (out / "run.json").write_text(newer)
    for arguments in (("report", str(out)), ("scan", "--resume", str(out))):
        done = run(*arguments, expect=2)
        assert f"schema version {SCHEMA_VERSION + 1}" in done.told
        assert "upgrade" in done.stderr.lower()
    assert (out / "run.json").read_text() == newer


def test_without_torch_the_install_line_is_named(run: Command, tmp_path: Path) -> None:
    program = (
        "import sys, importlib.util\n"
        "real = importlib.util.find_spec\n"
        "def find_spec(name, *rest):\n"
        "    return None if name.split('.')[0] == 'torch' else real(name, *rest)\n"
        "importlib.util.find_spec = find_spec\n"
        "sys.argv = ['regimescope', 'scan', 'tiny', '--device', 'cpu']\n"
        "from regimescope.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "pip install 'regimescope[hf]'" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_the_drawing_libraries_the_verdict_is_still_told(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    done = run("scan", "paper", *SIMULATED, "--out", "here", "--quiet")
    assert "SPIKE candidate" in done.stdout
    assert "report.html" not in done.stdout
    assert "pip install 'regimescope[report]'" in done.told


def test_failing_budgets_are_counted_and_named(run: Command, tmp_path: Path) -> None:
    done = run(
        *("scan", "smooth", *SIMULATED, "--engine-option", "fail_budgets=[448]"),
        *("--out", str(tmp_path / "run"), "--json"),
    )
    found = json.loads(done.stdout)
    assert found["counts"]["failed"] == 3
    assert "backend_failures" in found["reasons"]
    assert "simulated failure at budget 448" in done.told
