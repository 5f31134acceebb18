"""Settings that cannot be honored are refused in words that say what to type instead."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.command import Command

from regimescope.engines.simulated import SimulatedSession

DATA = Path(__file__).parent / "data"
SIMULATED = ("--engine", "simulated")
FIXED = (*SIMULATED, "--budgets", "64:256:64", "--processes", "2", "--quiet")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--arms", "both"), "--arms needs a fixed plan"),
        (("--arms", "hot"), "--arms needs a fixed plan"),
        (("--arms", "hot", "--budgets", "64,128"), "warm, fresh, both"),
        (("--budget", "64"), "--budget needs another axis; on budget it is what is swept"),
        (("--budget", "32"), "--budget needs another axis; on budget it is what is swept"),
        (("--batch", "4"), "Use batch 1."),
        (("--dtype", "bfloat16"), "Known: float32."),
        (("--range", "0:100"), "--range 2:100"),
        (("--range", "100:64"), "--range 64:100"),
        (("--range", "64:64"), "does not ascend"),
        (("--range", "1:64"), "--range 2:64"),
        (("--max-tokens", "100"), "--max-tokens 22788 or more, or a narrower --range"),
        (("--max-tokens", "100", "--budgets", "64,128"), "--max-tokens 448 or more"),
        (("--max-tokens", "0"), "--max-tokens is 0"),
        (("--max-seconds", "0"), "--max-seconds is 0"),
        (("--min-width", "0"), "--min-width is 0"),
        (("--prevalence", "2"), "--prevalence is 2"),
        (("--axis", "width"), "Choose one of: budget, context, prompt, capacity."),
        (("--axis", "batch"), "Choose one of: budget, context, prompt, capacity."),
    ],
)
def test_a_setting_is_refused_with_what_to_type(
    run: Command, tmp_path: Path, options: tuple[str, ...], says: str
) -> None:
    done = run("scan", "smooth", *SIMULATED, *options, expect=2)
    assert says in done.told
    assert list(tmp_path.iterdir()) == []


def test_both_arms_can_be_asked_for_by_one_word(run: Command) -> None:
    found = json.loads(run("scan", "smooth", *FIXED, "--arms", "both", "--json").stdout)
    assert len(found["apart"]) == 1


def test_budget_is_heard_on_another_axis(run: Command) -> None:
    run("scan", "smooth", *SIMULATED, "--axis", "prompt", "--budget", "8", "--quiet")


def test_columns_belong_to_tables(run: Command, tmp_path: Path) -> None:
    run("scan", "smooth", *FIXED, "--out", "here")
    case = tmp_path / "case.toml"
    case.write_text(
        'id = "c"\naxis = "budget"\nphase = "decode"\nunit = "s"\nbetter = "lower"\n'
        "points = [[64, 1.0], [128, 2.0]]\n"
    )
    for source in ("here", "case.toml"):
        for options in (("--x", "a"), ("--x", "a", "--y", "b"), ("--y", "b")):
            done = run("analyze", source, *options, expect=2)
            assert "--x and --y name columns of a table" in done.told


def test_half_of_the_columns_is_not_enough(run: Command) -> None:
    done = run("analyze", str(DATA / "probe.csv"), "--x", "budget", expect=2)
    assert "--y latency_s" in done.told


@pytest.mark.parametrize("second", ["probe.csv", "copy.csv"])
def test_one_file_given_twice_is_no_replication(run: Command, tmp_path: Path, second: str) -> None:
    shutil.copy(DATA / "probe.csv", tmp_path / "probe.csv")
    shutil.copy(DATA / "probe.csv", tmp_path / "copy.csv")
    done = run("analyze", "probe.csv", second, "--x", "budget", "--y", "latency_s", expect=2)
    assert second in done.told
    assert "the same measurements twice" in done.told


def test_a_file_is_no_run_folder(run: Command) -> None:
    done = run("report", str(DATA / "probe.csv"), expect=2)
    assert "is a file, no run folder" in done.told
    assert "regimescope analyze" in done.told


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('id = "x"\naxis = \n', "line 2"),
        ("name = = 3\n", "line 1"),
        ("name = 3\n", "id and axis"),
    ],
)
def test_a_toml_file_is_told_what_is_wrong_with_it(
    run: Command, tmp_path: Path, content: str, says: str
) -> None:
    (tmp_path / "broken.toml").write_text(content)
    done = run("analyze", "broken.toml", expect=2)
    assert says in done.told
    assert "columns" not in done.told


@pytest.mark.parametrize(
    "options",
    [("--engine-option", "foo=1"), ("--max-tokens", "100"), ("--axis", "width", "--seed", "-1")],
)
def test_errors_fit_80_columns(
    run: Command, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = run("scan", "smooth", *SIMULATED, *options, expect=2)
    assert max(map(len, done.stderr.splitlines())) <= 80


def test_a_limit_that_is_met_is_told_once_within_80_columns(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = run("scan", "paper", *SIMULATED, "--max-tokens", "30000", "--out", "here")
    assert done.told.count("limit of 30,000 tokens") == 1
    assert max(map(len, done.stderr.splitlines())) <= 80


def test_redirected_text_has_no_blanks_at_line_ends(run: Command) -> None:
    done = run("scan", "paper", *SIMULATED, "--range", "400:700")
    assert not [line for line in (done.stdout + done.stderr).splitlines() if line != line.rstrip()]


def test_help_says_what_this_version_does(run: Command) -> None:
    text = run("--help").stdout
    assert "Find, confirm and locate" in text
    assert "xplain" not in text


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_an_interruption_is_told_once_with_the_way_to_go_on(
    run: Command, monkeypatch: pytest.MonkeyPatch, quiet: tuple[str, ...]
) -> None:
    whole = SimulatedSession.generate

    def generate(self: Any, prompt_ids: Any, cell: Any, **options: Any) -> Iterator[Any]:
        if cell.budget == 192:
            raise KeyboardInterrupt
        return whole(self, prompt_ids, cell, **options)

    monkeypatch.setattr(SimulatedSession, "generate", generate)
    told = run("scan", "smooth", *FIXED[:-1], *quiet, "--out", "here", expect=130).told
    assert told.lower().count("interrupted") == 1
    assert told.count("--resume here") == 1
