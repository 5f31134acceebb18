"""What is made of readings: growth, levels, reasons; the catalogue and its page."""

import importlib.util
from pathlib import Path

import pytest

from regimescope import api
from regimescope.host import catalogue, facts
from regimescope.host.background import Share, Use, shares
from regimescope.host.counters import HostCounters, Reader, changes
from regimescope.spec import ScanSpec

ROOT = Path(__file__).parents[3]


def test_totals_become_growth_and_levels_stay():
    before = {"steal_s": 2.0, "temperature_c": 40.0}
    after = {"steal_s": 2.5, "temperature_c": 50.0}
    assert changes(before, after) == {"steal_s": 0.5, "temperature_c": 50.0}


def test_a_total_that_fell_or_was_not_there_before_is_left_out():
    before = {"cpu_energy_j": 9.0}
    assert changes(before, {"cpu_energy_j": 1.0, "steal_s": 3.0}) == {}


def test_a_reader_that_fails_later_is_absent_from_that_reading_only():
    answers = [{"load_average_count": 1.0}] * 6 + [OSError(5, "gone"), {"load_average_count": 2.0}]

    def read():
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    counters = HostCounters([Reader(catalogue.LOADAVG, read)])
    assert [counters.read(), counters.read()] == [{}, {"load_average_count": 2.0}]


def test_only_cheap_sources_are_read_between_steps():
    readers = [
        Reader(catalogue.LOADAVG, lambda: {"load_average_count": 1.0}),
        Reader(catalogue.MEMORY_PRESSURE, lambda: {"memory_stall_s": 1.0}),
    ]
    assert HostCounters(readers).read(cheap=True) == {"memory_stall_s": 1.0}


def test_a_name_stands_for_one_kind_and_bears_a_unit():
    kinds = {}
    for source in catalogue.SOURCES:
        for counter in source.counters:
            assert kinds.setdefault(counter.name, counter.kind) == counter.kind
            assert counter.name.rsplit("_", 1)[1] in {
                *("bytes", "count", "s", "hz", "c", "j", "w", "level", "flag", "mask")
            }


def test_the_page_of_counters_is_current():
    path = ROOT / "scripts" / "counters_table.py"
    spec = importlib.util.spec_from_file_location("counters_table", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.PAGE.read_text(encoding="utf-8")
    assert module.with_table(page) == page


def test_shares_are_of_one_core_and_small_ones_are_left_out():
    before = {1: Use("a", 1.0), 2: Use("b", 0.0), 3: Use("c", 5.0)}
    after = {1: Use("a", 2.0), 2: Use("b", 4.0), 3: Use("c", 5.01), 4: Use("new", 9.0)}
    assert shares(before, after, 2.0) == (Share("b", 2, 2.0), Share("a", 1, 0.5))


def test_a_home_folder_is_written_as_tilde_and_others_are_left(monkeypatch):
    monkeypatch.setattr(facts.Path, "home", lambda: Path("/home/eve"))
    given = {"model": "/home/eve/m", "list": ["/home/evelyn/m", 3], "x": "at /home/eve"}
    told = {"model": "~/m", "list": ["/home/evelyn/m", 3], "x": "at ~"}
    assert facts.without_home(given) == told


def test_the_name_of_a_run_folder_does_not_tell_the_home_folder(monkeypatch):
    monkeypatch.setattr(facts.Path, "home", lambda: Path("/home/eve"))
    model = "/home/eve/models/small"
    assert "eve" not in api.default_folder(ScanSpec(model=model)).name
    assert "eve" in api.default_folder(ScanSpec(model=model, identify=True)).name


def test_host_and_user_are_told_on_request_only():
    named = {"host_name", "user_name"}
    assert not named & facts.host_facts().keys()
    assert named <= facts.host_facts(identify=True).keys()


def test_facts_that_the_system_refuses_are_absent(monkeypatch):
    def refuse():
        raise PermissionError(13, "denied")

    monkeypatch.setattr(facts.psutil, "swap_memory", refuse)
    monkeypatch.setattr(facts.os, "getloadavg", refuse)
    found = facts.host_facts()
    assert {"swap_bytes", "load_average_1min"} & found.keys() == set()
    assert found["memory_bytes"] > 0


@pytest.mark.parametrize(
    ("message", "stored"),
    [
        ("cannot open '/home/eve/m.gguf'", "cannot open '~/m.gguf'"),
        ("nothing in /home/eve.", "nothing in ~."),
        ("/home/eve.old and /home/evelyn", "/home/eve.old and /home/evelyn"),
        ("box17: connection refused", "<host>: connection refused"),
        ("box17.lan and box170", "<host>.lan and box170"),
    ],
)
def test_messages_are_stored_without_home_folder_and_host_name(monkeypatch, message, stored):
    monkeypatch.setattr(facts.Path, "home", lambda: Path("/home/eve"))
    monkeypatch.setattr(facts.platform, "node", lambda: "box17")
    assert facts.without_identity({"a": [message], "n": 3}) == {"a": [stored], "n": 3}
