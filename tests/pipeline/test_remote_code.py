"""Code that comes with a model: never without its flag, also not on the word of a run folder."""

import json

import pytest
from tests.pipeline.command import Command

FIXED = ("--budgets", "8:16:8", "--processes", "2", "--quiet", "--out", "run")


@pytest.fixture
def asking(run: Command, tmp_path):
    """Return a run folder that asks to run code of others."""
    run("scan", "smooth", "--engine", "simulated", *FIXED)
    path = tmp_path / "run" / "run.json"
    header = json.loads(path.read_text())
    header["spec"]["engine_options"] = {"trust_remote_code": True}
    path.write_text(json.dumps(header))
    return path.parent


def test_run_folder_of_a_stranger_cannot_ask_for_it(run: Command, asking):
    done = run("scan", "--resume", str(asking), "--quiet", expect=2)
    assert "asks to run code that comes with the model smooth" in done.told
    assert "--trust-remote-code" in done.told


def test_flag_beside_resume_hands_it_to_the_engine_with_a_warning(run: Command, asking):
    """The simulated engine knows no such option, and says so."""
    done = run("scan", "--resume", str(asking), "--quiet", "--trust-remote-code", expect=2)
    assert "Warning: code that comes with the model runs here" in done.told
    assert "trust_remote_code" in done.told
    assert "Known options" in done.told


def test_warning_is_shown_before_anything_runs(run: Command):
    arguments = ("smooth", "--engine", "simulated", "--trust-remote-code", *FIXED)
    done = run("scan", *arguments, expect=2)
    assert done.told.startswith("Warning: code that comes with the model runs here")


def test_positions_of_the_simulated_engine_are_set_by_the_flag(run: Command, tmp_path):
    arguments = ("smooth", "--engine", "simulated", "--positions", "50", "--quiet")
    done = run("scan", *arguments, "--budgets", "8:16:8", expect=2)
    assert "50 positions" in done.told
    run("scan", *arguments, "--prompt-tokens", "10", "--budgets", "8:16:8", "--out", "run")
    header = json.loads((tmp_path / "run" / "run.json").read_text())
    assert header["spec"]["engine_options"] == {"positions": 50}
    assert header["model"]["positions"] == 50
