"""The guide for authors of engines works as it is written: every block of it is run."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "write-an-engine.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"# (\S+)\n")


def blocks():
    return BLOCK.findall(GUIDE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Write the files of the guide: blocks that name the same one are its parts."""
    folder = tmp_path_factory.mktemp("guide")
    for language, text in blocks():
        if language != "sh":
            name = NAME.match(text)
            assert name, f"a block does not say which file it is part of: {text[:60]!r}"
            with (folder / name[1]).open("a", encoding="utf-8") as file:
                file.write(text[name.end() :] + "\n")
    return folder


def as_run_here(line, installed):
    """Return a command of the guide as one without a network and outside this environment."""
    program, *arguments = shlex.split(line)
    python = [sys.executable]
    if program == "pip":
        assert arguments == ["install", "-e", "."]
        quiet = ["--quiet", "--disable-pip-version-check"]
        offline = ["--no-deps", "--no-index", "--no-build-isolation", "--target", str(installed)]
        return [*python, "-m", "pip", "install", *quiet, *offline, "."]
    if program == "regimescope":
        return [*python, "-c", "from regimescope.cli import main; main()", *arguments]
    if program == "pytest":
        return [*python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    assert program == "python"
    return [*python, *arguments]


def test_every_block_is_run_and_does_what_the_guide_says(written, tmp_path):
    installed = tmp_path / "installed"
    path = os.pathsep.join(filter(None, [str(installed), os.environ.get("PYTHONPATH")]))
    said = {}
    for language, text in blocks():
        if language == "sh":
            for line in text.splitlines():
                done = subprocess.run(
                    as_run_here(line, installed),
                    cwd=written,
                    env=os.environ | {"PYTHONPATH": path, "COLUMNS": "80"},
                    capture_output=True,
                    text=True,
                    timeout=200,
                )
                assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
                said[line.split(" ")[0], line.split(" ")[1]] = done.stdout
    assert "mean" in said["regimescope", "engines"]
    assert (written / "runs" / "mean" / "trials.jsonl").exists()
    assert "passed" in said["pytest", "test_mean_engine.py"]
    assert "failed" not in said["pytest", "test_mean_engine.py"]
    table = said["python", "check.py"]
    assert "FAILS" not in table
    assert re.search(r"ok +same-tokens", table)


def test_every_block_of_the_guide_has_a_language_that_is_run():
    fences = GUIDE.read_text(encoding="utf-8").count("\n```")
    assert fences == 2 * len(blocks())
    assert {language for language, _ in blocks()} == {"toml", "python", "sh"}
