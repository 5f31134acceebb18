"""An engine in a package of its own is installed, listed, measured and held to the contract."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from regimescope.engines.base import EngineRequest
from regimescope.engines.registry import get_engine
from regimescope.testing import CHECK_NAMES, assert_engine, check_engine

PACKAGE = Path(__file__).parent / "regimescope-example-engine"
REQUEST = EngineRequest(model="small", device="cpu", dtype="float32", seed=2)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Install the package by pip into a folder of its own, without a network."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--disable-pip-version-check", "--no-build-isolation"]
    command += ["--target", str(folder), str(PACKAGE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def engine(installed, monkeypatch):
    monkeypatch.syspath_prepend(installed)
    yield get_engine("example")
    for module in [name for name in sys.modules if name.startswith("regimescope_example_engine")]:
        del sys.modules[module]


def run(installed, *arguments):
    """Run the command line the way a user does, with the package on the path."""
    path = os.pathsep.join(filter(None, [str(installed), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", "from regimescope.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": path, "COLUMNS": "80"},
    )


def test_the_engine_is_listed_with_its_package(installed):
    done = run(installed, "engines")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "example" in line.split()]
    assert "installed" in line
    assert "regimescope-example-engine" in done.stdout


def test_the_engine_is_scanned(installed, tmp_path):
    out = tmp_path / "run"
    done = run(
        installed,
        *("scan", "small", "--engine", "example", "--budgets", "8:40:8", "--processes", "2"),
        *("--engine-option", "positions=64", "--prompt-tokens", "5", "--warm-up-s", "0.01"),
        *("--quiet", "--json", "--out", str(out)),
    )
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["axis"] == "budget"
    assert verdict["counts"]["failed"] == 0
    trials = [json.loads(line) for line in (out / "trials.jsonl").read_text().splitlines()]
    assert {trial["series"]["engine"] for trial in trials} == {"example"}
    counted = [t for t in trials if not t.get("warmup") and not t.get("sentinel")]
    assert sorted({t["cell"]["budget"] for t in counted}) == [8, 16, 24, 32, 40]
    assert all(t["output_tokens"] == t["cell"]["budget"] for t in counted)


def test_a_range_beyond_its_positions_is_refused(installed):
    done = run(
        installed,
        *("scan", "small", "--engine", "example", "--budgets", "8:400:8"),
        *("--engine-option", "positions=64"),
    )
    assert done.returncode == 2
    assert "64 positions" in " ".join(done.stderr.split())


@pytest.mark.parametrize("name", CHECK_NAMES)
@pytest.mark.parametrize("options", [{}, {"positions": 64}], ids=["endless", "64"])
def test_the_engine_keeps_the_contract(engine, name, options):
    request = EngineRequest(model="small", device="cpu", dtype="float32", seed=2, options=options)
    assert_engine(engine, request, only=[name])


def test_checks_that_do_not_apply_are_few(engine):
    skipped = {result.name for result in check_engine(engine, REQUEST) if not result.applicable}
    assert skipped == {
        "inspect-loads-nothing",
        "unstamped",
        "beyond-positions",
        "cache-changes-no-token",
        "cache-kinds",
        "fill-is-claimed",
        "wait",
        "last-generation",
    }
