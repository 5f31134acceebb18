import subprocess
import sys

import pytest

from regimescope.engines import registry
from regimescope.engines.registry import describe_engines, engine_names, get_engine
from regimescope.errors import CapabilityError, MissingDependencyError, SpecError

WORKING = """
class Working:
    name = "working"
    def capabilities(self): ...
    def inspect(self, request): ...
    def open(self, request): ...
"""
PLUG_INS = {
    "working": "plug:Working",
    "half": "plug:Half",
    "explodes": "plug:Explodes",
    "imports": "plug.missing:Engine",
    "needs": "plug_needs:Engine",
    "absent": "plug_absent:Engine",
    "typo": "plug:Wroking",
    "hf": "plug:Half",
}


@pytest.fixture
def plug_ins(tmp_path, monkeypatch):
    """Install a package with engines, good and bad, the way pip leaves it."""
    (tmp_path / "plug.py").write_text(
        WORKING
        + 'class Half:\n    name = "half"\n    def open(self, request): ...\n'
        + "class Explodes:\n    def __init__(self): raise KeyError('driver')\n"
    )
    (tmp_path / "plug_needs.py").write_text("import library_that_is_not_there\n")
    facts = tmp_path / "plug-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n")
    points = "".join(f"{name} = {target}\n" for name, target in PLUG_INS.items())
    (facts / "entry_points.txt").write_text(f"[regimescope.engines]\n{points}")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for module in [name for name in sys.modules if name.startswith("plug")]:
        del sys.modules[module]


def find_none(monkeypatch, *absent):
    """Make these modules look as if they were not installed."""
    find = registry.importlib.util.find_spec
    monkeypatch.setattr(
        registry.importlib.util,
        "find_spec",
        lambda name, *rest: None if name in absent else find(name, *rest),
    )


@pytest.mark.parametrize("name", ["hf", "simulated"])
def test_built_in_engine_is_found_by_name(name):
    engine = get_engine(name)
    assert engine.name == name
    assert engine.capabilities().devices


def test_unknown_name_lists_the_known_ones_and_suggests():
    with pytest.raises(SpecError, match="simluated") as caught:
        get_engine("simluated")
    assert "Did you mean 'simulated'?" in caught.value.remedy
    assert "hf" in caught.value.remedy


def test_name_like_no_other_gets_no_suggestion():
    with pytest.raises(SpecError) as caught:
        get_engine("")
    assert "Did you mean" not in caught.value.remedy


@pytest.mark.parametrize("absent", [("torch",), ("transformers",), ("torch", "transformers")])
def test_missing_library_names_the_install_line(monkeypatch, absent):
    find_none(monkeypatch, *absent)
    with pytest.raises(MissingDependencyError) as caught:
        get_engine("hf")
    assert "pip install 'regimescope[hf]'" in caught.value.remedy
    assert all(module in caught.value.message for module in absent)


def test_state_follows_the_libraries(monkeypatch):
    find_none(monkeypatch, "torch")
    states = {row.name: row.state for row in describe_engines()}
    assert states["hf"] == "missing"
    assert states["simulated"] == "installed"


def test_module_without_a_spec_counts_as_missing(monkeypatch):
    stray = type(sys)("transformers")
    stray.__spec__ = None
    monkeypatch.setitem(sys.modules, "transformers", stray)
    assert {row.name: row.state for row in describe_engines()}["hf"] == "missing"


def test_listing_imports_no_heavy_library():
    code = (
        "import sys; from regimescope.engines.registry import describe_engines, get_engine;"
        "describe_engines(); get_engine('hf').capabilities();"
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_engine_of_another_package_is_found(plug_ins):
    assert get_engine("working").name == "working"
    assert engine_names()[: len(registry.BUILT_IN)] == tuple(registry.BUILT_IN)
    assert {"working", "half", "explodes"} <= set(engine_names())


def test_other_package_cannot_take_a_built_in_name(plug_ins):
    assert type(get_engine("hf")).__name__ == "HfEngine"
    assert engine_names().count("hf") == 1


def test_rows_of_another_package_name_it_and_its_state(plug_ins):
    rows = {row.name: row for row in describe_engines()}
    assert rows["working"].state == "installed"
    assert rows["working"].install == "pip install plug"
    assert "plug" in rows["working"].description
    assert rows["absent"].state == "missing"
    assert "plug" not in sys.modules


@pytest.mark.parametrize("name", ["half", "explodes", "typo"])
def test_broken_engine_of_another_package_is_a_clear_error(plug_ins, name):
    with pytest.raises(CapabilityError, match=f"'{name}' of package plug") as caught:
        get_engine(name)
    assert "plug" in caught.value.remedy


def test_incomplete_engine_names_what_it_lacks(plug_ins):
    with pytest.raises(CapabilityError, match="lacks capabilities, inspect"):
        get_engine("half")


@pytest.mark.parametrize("name", ["imports", "needs", "absent"])
def test_engine_whose_import_fails_names_its_package(plug_ins, name):
    with pytest.raises(MissingDependencyError, match="cannot be imported") as caught:
        get_engine(name)
    assert "pip install plug" in caught.value.remedy
