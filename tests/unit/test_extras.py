"""The extras of the package, and the commands that install them."""

import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]
# Where somebody is told, or told by us, what to install.
SAID_IN = [
    ROOT / "Makefile",
    ROOT / "pyproject.toml",
    ROOT / "README.md",
    *sorted((ROOT / ".github").rglob("*.yml")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "src").rglob("*.py")),
]


@pytest.mark.parametrize("name", EXTRAS)
def test_an_extra_has_the_name_that_every_pip_knows(name):
    # The built package holds normalized names; pip before 23.3 looks for the name as it was asked.
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)


def test_every_command_installs_extras_that_exist():
    asked = [
        (path.name, extra.strip())
        for path in SAID_IN
        for group in re.findall(r"(?:regimescope|'?\.)\[([a-z0-9_, -]+)\]", path.read_text("utf-8"))
        for extra in group.split(",")
    ]
    assert asked
    assert [one for one in asked if one[1] not in EXTRAS] == []
