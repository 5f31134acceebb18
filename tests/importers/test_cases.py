"""Public reports as case files: each gets the verdict that its source supports.

The files under ``tests/cases`` hold retyped numbers of public reports with their sources and the
verdicts that they allow. The table ``ARGUED`` names the decision where ours differs.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from regimescope.cli import app

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CASES = sorted((Path(__file__).parents[1] / "cases").glob("*.toml"))
DECISIONS = Path(__file__).parents[2] / "docs" / "decisions"
# What is answered otherwise than the file expects, and the page that says why.
ARGUED = {("ds4-gb10-first-point", "at_margin"): "0010-finer-margins.md"}
GRADES = "ABC"


@cache
def analyzed(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["analyze", *arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def expected(path: Path) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))["expected"]
    return table


def meets(bracket: list[int], edge: list[int]) -> bool:
    """Whether an edge in (low, high] can be the one that lies in (first, last]."""
    low, high = bracket
    first, last = edge
    return low <= first <= high if first == last else max(low, first) < min(high, last)


def named(path: Path) -> str:
    return path.stem


def of_verdict(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [regime for regime in found["regimes"] if regime["class"] == found["verdict"]]


@pytest.mark.parametrize("path", CASES, ids=named)
def test_verdict_grade_and_reasons_are_what_the_source_supports(path: Path) -> None:
    wanted, found = expected(path), analyzed(str(path))
    assert found["verdict"] in wanted["accept"]
    assert found["verdict"] not in wanted["reject"]
    assert GRADES.index(found["grade"]) >= GRADES.index(wanted["max_grade"])
    assert all(found["grade"] <= regime["grade"] for regime in found["regimes"])
    assert set(wanted["reasons"]) & set(found["reasons"])


@pytest.mark.parametrize("path", CASES, ids=named)
def test_edges_lie_where_the_source_puts_them(path: Path) -> None:
    wanted, found = expected(path), analyzed(str(path))
    regimes = of_verdict(found)
    for name in ("onset", "recovery"):
        if name in wanted and regimes:
            assert any(name in r and meets(r[name], wanted[name]) for r in regimes)
    if "steps" in wanted:
        assert len(regimes) == len(wanted["steps"])
        for regime, edge in zip(regimes, wanted["steps"], strict=True):
            assert meets(regime["onset"], edge)
    if wanted.get("censored") == "right" and regimes:
        assert "recovery" not in regimes[-1]
    if wanted.get("censored") == "left" and regimes:
        assert "onset" not in regimes[0]


@pytest.mark.parametrize("path", CASES, ids=named)
def test_slowdown_agrees_with_the_source(path: Path) -> None:
    wanted, found = expected(path), analyzed(str(path))
    if "slowdown" not in wanted:
        assert found["verdict"] in wanted["accept"]
        return
    low, high = wanted["slowdown"]
    for regime in of_verdict(found):
        assert regime["slowdown"]["low"] <= high
        assert regime["slowdown"]["high"] >= low
    if found["verdict"] == "BIMODAL":
        assert low <= found["modes"]["ratio"] <= high


WITHIN = [path for path in CASES if "at_margin" in expected(path)]


@pytest.mark.parametrize("path", WITHIN, ids=named)
def test_another_margin_gets_the_verdict_of_that_margin(path: Path) -> None:
    wanted = expected(path)["at_margin"]
    found = analyzed(str(path), "--margin", str(wanted["margin"]))
    argued = ARGUED.get((path.stem, "at_margin"))
    if argued is not None:
        assert (DECISIONS / argued).exists()
        assert found["verdict"] == "CLEAN"
        return
    assert found["verdict"] == wanted["verdict"]
    (regime,) = of_verdict(found)
    assert meets(regime["onset"], wanted["onset"])


def test_the_other_series_of_a_file_are_not_read(tmp_path: Path) -> None:
    for path in CASES:
        wanted = expected(path)
        if "main_series_only" not in wanted:
            continue
        text = path.read_text(encoding="utf-8")
        alone = tmp_path / path.name
        alone.write_text(text[: text.index("[[series]]")], encoding="utf-8")
        found = analyzed(str(alone))
        assert found["verdict"] == wanted["main_series_only"]
        assert found == analyzed(str(path))


def test_the_expected_verdict_of_a_file_is_not_read(tmp_path: Path) -> None:
    path = next(path for path in CASES if path.stem == "paper-mps-gpt2-medium-probe")
    text = path.read_text(encoding="utf-8")
    other = tmp_path / path.name
    other.write_text(text[: text.index("[expected]")], encoding="utf-8")
    assert analyzed(str(other)) == analyzed(str(path))


def test_a_failed_point_is_counted_and_named() -> None:
    path = next(path for path in CASES if path.stem == "mlx-122b-memory-edge")
    found = analyzed(str(path))
    assert found["counts"]["failed"] == 1
    assert "backend_failures" in found["reasons"]


def test_a_lottery_reports_both_levels_and_the_share() -> None:
    path = next(path for path in CASES if path.stem == "rocm-process-lottery")
    modes = analyzed(str(path))["modes"]
    assert modes["slow_share"]["value"] == pytest.approx(13 / 15)
    assert modes["slow_share"]["n"] == 15
    assert "baseline" not in modes


@pytest.mark.parametrize("path", CASES, ids=named)
def test_every_case_is_told_in_words(path: Path) -> None:
    done = CliRunner().invoke(app, ["analyze", str(path)], catch_exceptions=False)
    assert done.exit_code == 0
    assert expected_word(path) in done.stdout


def expected_word(path: Path) -> str:
    verdict: str = analyzed(str(path))["verdict"]
    return verdict


def test_two_levels_are_told_with_both_values() -> None:
    path = next(path for path in CASES if path.stem == "rocm-process-lottery")
    done = CliRunner().invoke(app, ["analyze", str(path)], catch_exceptions=False)
    said = " ".join(done.stdout.split())
    assert "30.3 ms or at 38.5 ms, 1.27x apart; 13 of 15 are slow" in said
