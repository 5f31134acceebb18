"""KV positions that are filled or reserved: specs, plans, and what does not fit."""

import pytest
from msgspec.structs import replace

from regimescope.engines.base import Capabilities
from regimescope.errors import CapabilityError, SpecError
from regimescope.feasible import check_capabilities, check_positions, most, resolved_search
from regimescope.plan import make_plan, measured
from regimescope.records import ModelFacts
from regimescope.spec import ScanSpec, check_spec, make_spec, to_command

ABLE = Capabilities(
    devices=("cpu",),
    dtypes=("float32",),
    kv_cache=("on", "off"),
    synthetic_depth=True,
    capacity=True,
)
UNABLE = Capabilities(devices=("cpu",), dtypes=("float32",), kv_cache=("on", "off"))


def model(cache="static", positions=1024):
    return ModelFacts(
        device="cpu",
        dtype="float32",
        weights="random",
        vocabulary=512,
        positions=positions,
        settings={"cache": cache} if cache else {},
    )


def cells(spec):
    return [t.cell for p in make_plan(spec).processes for t in p.trials if t.counts]


# --- specs ----------------------------------------------------------------------------------------


def test_command_line_sets_depth_and_capacity_and_tells_them_again():
    spec = make_spec({"span": "8:64", "depth": 100, "capacity": 512})
    assert (spec.depth, spec.capacity) == (100, 512)
    command = to_command(spec)
    assert command[command.index("--depth") + 1] == "100"
    assert command[command.index("--capacity") + 1] == "512"
    assert not {"--depth", "--capacity"} & set(to_command(ScanSpec()))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"axis": "context", "depth": 5}, "--depth"),
        ({"axis": "capacity", "capacity": 5}, "--capacity"),
        ({"depth": -1}, "--depth"),
        ({"depth": 2**20 + 1}, "--depth"),
        ({"capacity": 1}, "--capacity"),
        ({"axis": "context", "budgets": (0, 8), "mode": "nested"}, "nested"),
        ({"axis": "prompt", "budgets": (0, 8)}, "prompt"),
        ({"axis": "budget", "budgets": (1, 8)}, "no decode step"),
    ],
)
def test_positions_that_cannot_be_are_refused_by_name(change, named):
    with pytest.raises(SpecError, match=named) as caught:
        check_spec(ScanSpec(**change))
    assert caught.value.remedy


# --- plans ----------------------------------------------------------------------------------------


def test_fixed_settings_are_in_every_cell():
    planned = cells(ScanSpec(budgets=(8, 16), depth=100, capacity=512))
    assert {(cell.depth, cell.capacity) for cell in planned} == {(100, 512)}
    assert {cell.budget for cell in planned} == {8, 16}


@pytest.mark.parametrize(
    ("axis", "field", "text"),
    [("context", "depth", "0:64:32"), ("capacity", "capacity", "96:160:32")],
)
def test_fixed_plan_of_another_axis_visits_its_values(axis, field, text):
    spec = make_spec({"axis": axis, "budgets": text, "budget": 20, "processes": 2})
    planned = cells(spec)
    assert {getattr(cell, field) for cell in planned} == set(spec.budgets)
    assert {cell.budget for cell in planned} == {20}
    assert measured(make_plan(spec)) == 2 * 3
    warm_ups = [t.cell for p in make_plan(spec).processes for t in p.trials if t.warmup]
    assert {getattr(cell, field) for cell in warm_ups} == {max(spec.budgets)}
    sentinels = [t.cell for p in make_plan(spec).processes for t in p.trials if t.sentinel]
    assert {getattr(cell, field) for cell in sentinels} == {min(spec.budgets)}


# --- what an engine cannot do ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [{"axis": "context"}, {"axis": "capacity"}, {"depth": 8}, {"depth": 0}, {"capacity": 64}],
)
def test_engine_without_the_means_refuses_and_one_with_them_does_not(change):
    spec = ScanSpec(**change)
    check_capabilities(spec, ABLE)
    with pytest.raises(CapabilityError) as caught:
        check_capabilities(spec, UNABLE)
    assert caught.value.remedy


@pytest.mark.parametrize("change", [{"axis": "context"}, {"capacity": 64}, {"depth": 8}])
def test_without_a_cache_there_is_nothing_to_fill_or_reserve(change):
    with pytest.raises(CapabilityError, match="Without a KV cache"):
        check_capabilities(ScanSpec(kv_cache="off", **change), ABLE)


@pytest.mark.parametrize(
    ("change", "cache", "named"),
    [
        ({"axis": "capacity"}, "dynamic", "cache=static"),
        ({"capacity": 512}, "quantized", "cache=static"),
        ({"kv_cache": "off"}, "static", "cache=static"),
    ],
)
def test_kind_of_cache_that_rules_a_setting_out_is_refused(change, cache, named):
    with pytest.raises(CapabilityError) as caught:
        check_positions(ScanSpec(low=200, high=300, **change), model(cache))
    assert named in caught.value.remedy


def test_engine_that_names_no_kind_of_cache_is_believed():
    check_positions(ScanSpec(low=200, high=300, axis="capacity"), model(cache=None))


# --- what does not fit ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "room"),
    [
        ({}, 1024 - 65 + 1),
        ({"depth": 100}, 1024 - 65 - 100 + 1),
        ({"capacity": 512}, 512 - 65 + 1),
        ({"capacity": 4096}, 1024 - 65 + 1),
        ({"axis": "context", "budget": 20}, 1024 - 65 - 20 + 1),
        ({"axis": "prompt", "budget": 20, "depth": 100}, 1024 - 20 - 100 + 1),
        ({"axis": "capacity"}, None),
    ],
)
def test_largest_value_leaves_room_for_everything_beside_it(change, room):
    """The last token takes no position."""
    spec = ScanSpec(**change)
    assert most(spec, model()) == room
    if room is not None:
        fits = ScanSpec(**change, low=8, high=room)
        check_positions(fits, model())
        with pytest.raises(CapabilityError, match=f"need {room + 1 + _beside(spec):,} positions"):
            check_positions(ScanSpec(**change, low=8, high=room + 1), model())


def _beside(spec):
    return min(1024, spec.capacity or 1024) - most(spec, model())


def test_unlimited_model_is_limited_by_the_capacity_alone():
    assert most(ScanSpec(), model(positions=None)) is None
    assert most(ScanSpec(capacity=100), model(positions=None)) == 36
    with pytest.raises(CapabilityError, match="--capacity is 100"):
        check_positions(ScanSpec(capacity=100, low=8, high=37), model(positions=None))


def test_no_room_at_all_says_what_else_could_be_smaller():
    spec = ScanSpec(budgets=(8, 16), depth=2000, capacity=512)
    with pytest.raises(CapabilityError, match="Depth 2000, prompt 65") as caught:
        check_positions(spec, model())
    assert "shorter prompt, less --depth or a larger --capacity" in caught.value.remedy


@pytest.mark.parametrize("budgets", [(), (95, 200)])
def test_smallest_capacity_must_hold_a_trial(budgets):
    spec = ScanSpec(axis="capacity", low=95 if not budgets else 64, budgets=budgets)
    with pytest.raises(CapabilityError, match="capacity of 95 cannot hold") as caught:
        check_positions(spec, model())
    assert "96" in caught.value.remedy
    check_positions(ScanSpec(axis="capacity", low=96), model())


def test_an_engine_that_keeps_the_last_token_needs_a_position_more():
    keeping = replace(model(cache=None), settings={"last_token_kept": True})
    assert most(ScanSpec(capacity=100), keeping) == 35
    with pytest.raises(CapabilityError, match="need 101 positions, but --capacity is 100"):
        check_positions(ScanSpec(capacity=100, low=8, high=36), keeping)
    with pytest.raises(CapabilityError, match="need 97 positions") as caught:
        check_positions(ScanSpec(axis="capacity", low=96), keeping)
    assert "--range 97:" in caught.value.remedy
    check_positions(ScanSpec(axis="capacity", low=97), keeping)


def test_search_of_depths_ends_where_the_model_does():
    spec = resolved_search(ScanSpec(axis="context", low=0, budget=20), model(positions=600))
    assert spec.high == 600 - 65 - 20 + 1
