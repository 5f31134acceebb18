"""Compare and check from the command line: exit statuses, files, what is printed."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from regimescope import ScanSpec, check, compare, scan

BAND = {"bands": [{"onset": 256, "recovery": 320, "slowdown": 10.0}]}
ACTION = Path(__file__).parents[2] / "action" / "check.sh"


def searched(folder, name, seed, **options):
    spec = ScanSpec(
        engine="simulated", model="smooth", low=64, high=448, seed=seed, warm_up_s=0.1,
        engine_options={"noise": "gauss", **options},
    )  # fmt: skip
    scan(spec, out=folder / name)
    return folder / name


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    found = {"clean": searched(folder, "clean", 1), "again": searched(folder, "again", 2)}
    found["slow"] = searched(folder, "slow", 3, **BAND)
    return {name: str(path) for name, path in found.items()}


def test_a_regime_that_appeared_is_told_and_breaks_the_policy(runs, run):
    out = run("compare", runs["clean"], runs["again"], runs["slow"]).stdout
    assert "SAME: the regimes are the same." in out
    assert "CHANGED: the regimes changed." in out
    assert "appeared: SPIKE regime, budgets 256 to 319" in out
    out = run("check", runs["slow"], "--baseline", runs["clean"], expect=3).stdout
    assert "is new: clean is normal there" in out.replace("\n    ", " ")


def test_noise_meets_the_policy(runs, run):
    out = run("check", runs["again"], "--baseline", runs["clean"]).stdout
    assert out.startswith("again: policy met")


def test_a_candidate_is_neither(tmp_path, run):
    spec = ScanSpec(engine="simulated", model="smooth", engine_options=BAND,
                    budgets=tuple(range(64, 513, 32)))  # fmt: skip
    scan(spec, out=tmp_path / "plan")
    out = run("check", "plan", expect=4).stdout
    assert "only of grade C; B is needed" in out.replace("\n    ", " ")


def test_files_for_a_job_are_written_and_its_page_is_added_to(runs, tmp_path, run, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    files = ("--markdown", "m.md", "--junit", "j.xml", "--annotations")
    out = run("check", runs["slow"], *files, expect=3).stdout
    assert "::error title=regimescope slowdown::slow: SPIKE" in out
    assert (tmp_path / "m.md").read_text(encoding="utf-8") in page.read_text(encoding="utf-8")
    assert page.read_text(encoding="utf-8").startswith("before\n")
    assert ET.parse(tmp_path / "j.xml").getroot().get("failures") == "1"


def test_objects_are_printed_for_scripts(runs, run):
    out = run("compare", runs["clean"], runs["slow"], "--json").stdout
    (found,) = json.loads(out)["comparisons"]
    assert (found["verdict"], found["regimes"][0]["changes"]) == ("changed", ["appeared"])
    table = json.loads(run("check", runs["slow"], "--json", expect=3).stdout)
    assert (table["schema_version"], table["outcome"]) == (1, "broken")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("compare", "clean", "missing"), "missing does not exist"),
        (("check", "missing"), "missing does not exist"),
        (("check", "clean", "--policy", "none.toml"), "There is no policy none.toml"),
        (("check", "clean", "--junit", "no/such/place.xml"), "cannot be written"),
    ],
)
def test_what_is_not_there_is_named(runs, run, arguments, named):
    given = [runs.get(argument, argument) for argument in arguments]
    assert named in run(*given, expect=2).told


def test_searches_of_equal_machines_are_equal_and_a_regime_is_caught_over_draws(tmp_path):
    """Rates; `scripts/check_draws.py` takes more of them and other noise."""
    for seed in range(10, 40, 3):
        base = searched(tmp_path, f"base{seed}", seed)
        same = searched(tmp_path, f"same{seed}", seed + 1)
        slow = searched(tmp_path, f"slow{seed}", seed + 2, **BAND)
        assert compare(base, same)[0].verdict == "same"
        assert check(same, baseline=base).outcome == "met"
        assert check(slow, baseline=base).outcome == "broken"


def test_what_the_cache_buys_is_told_where_only_the_cache_differs(tmp_path, run):
    for name, more in (("on", {"engine_options": BAND}), ("off", {"kv_cache": "off"})):
        spec = ScanSpec(
            engine="simulated", model="smooth", budgets=tuple(range(64, 449, 64)), **more
        )
        scan(spec, out=tmp_path / name)
    out = run("compare", "on", "off", "--kv-cache").stdout
    assert "Its speed-up collapses at budgets 256, where it is slow." in out
    found = json.loads(run("compare", "on", "off", "--kv-cache", "--json").stdout)
    assert found["collapsed"] == [256]
    assert "add --kv-cache" in run("compare", "on", "off", expect=2).told
    assert (
        "name the run with"
        in run("compare", "on", "off", "on", "--kv-cache", expect=2).told.lower()
    )


# --- the action -----------------------------------------------------------------------------------


def acted(folder, tmp_path, **inputs):
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir(exist_ok=True)
    command = bin_folder / "regimescope"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m regimescope.cli "$@"\n')
    command.chmod(0o755)
    output = tmp_path / "output"
    environment = {"PATH": f"{bin_folder}:/usr/bin:/bin", "GITHUB_OUTPUT": str(output), **inputs}
    done = subprocess.run(
        ["bash", ACTION], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done, output.read_text(encoding="utf-8") if output.exists() else ""


@pytest.mark.skipif(sys.platform == "win32", reason="composite actions run bash")
def test_the_action_ends_with_the_status_of_the_check(runs, tmp_path):
    folder = Path(runs["clean"]).parent
    done, output = acted(folder, tmp_path, RUN="slow", BASELINE="clean", JUNIT=str(tmp_path / "j"))
    assert (done.returncode, output) == (3, "status=3\n")
    assert "::error" in done.stdout
    assert (tmp_path / "j").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="composite actions run bash")
@pytest.mark.parametrize("name", ["$(touch owned)", "`touch owned`", "; touch owned", "--version"])
def test_no_input_of_the_action_is_read_as_code(runs, tmp_path, name):
    done, _ = acted(tmp_path, tmp_path, RUN=name)
    assert done.returncode == 2
    assert not (tmp_path / "owned").exists()
