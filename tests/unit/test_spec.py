"""Budgets, options and specs: what is accepted, and how the rest is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from regimescope.errors import SpecError
from regimescope.spec import (
    ScanSpec,
    check_spec,
    load_spec,
    make_spec,
    parse_arms,
    parse_budgets,
    parse_engine_options,
    to_command,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("128:768:128", (128, 256, 384, 512, 640, 768)),
        ("16:40:16", (16, 32)),
        ("2", (2,)),
        ("8, 16,32", (8, 16, 32)),
        ("8,16:32:8,100", (8, 16, 24, 32, 100)),
        ("5:5:1", (5,)),
    ],
)
def test_budgets_are_read_as_ranges_with_both_ends_or_as_lists(
    text: str, expected: tuple[int, ...]
) -> None:
    assert parse_budgets(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no budget"),
        (" , ", "no budget"),
        ("768:128:128", "reversed"),
        ("1:2:0", "step"),
        ("1:20:-4", "step"),
        ("16:32", "three numbers"),
        ("a:b:c", "not a whole number"),
        ("1.5", "not a whole number"),
        ("16,16", "duplicated"),
        ("16:64:16,32", "duplicated"),
        ("0,16", "positive"),
        ("-4", "positive"),
        ("1,16", "no decode step"),
        ("32,16", "ascending"),
        ("2000000", "beyond"),
        ("2:1000000:1", "more than"),
    ],
)
def test_unusable_budgets_are_refused_with_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(SpecError, match=says) as caught:
        parse_budgets(text)
    assert caught.value.remedy


def test_engine_options_are_json_where_they_can_be_and_text_otherwise() -> None:
    table = parse_engine_options(["threads=2", "noise=gauss", 'bands=[{"onset":5}]', "empty="])
    assert table == {"threads": 2, "noise": "gauss", "bands": [{"onset": 5}], "empty": ""}


@pytest.mark.parametrize("text", ["", "hot", "warm,warm", "observer"])
def test_unusable_arms_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="arms"):
        parse_arms(text)


def test_arms_are_read_in_the_order_given() -> None:
    assert parse_arms("both") == ("warm", "fresh")
    assert parse_arms("fresh, warm") == ("fresh", "warm")


@pytest.mark.parametrize("pairs", [["threads"], ["=2"], ["a=1", "a=2"]])
def test_malformed_engine_options_are_refused(pairs: list[str]) -> None:
    with pytest.raises(SpecError):
        parse_engine_options(pairs)


@pytest.mark.parametrize("name", ["isolation", "kv_cache", "mode", "order"])
def test_an_unknown_choice_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(SpecError, match=name.replace("_", "-")) as caught:
        make_spec({"budgets": "16:32:16", name: "sideways"})
    assert "Choose one of" in caught.value.remedy


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("prompt_tokens", 0),
        ("processes", 0),
        ("repeats", 0),
        ("repeats", 10**6),
        ("batch", 0),
        ("seed", -1),
        ("warm_up_s", -1.0),
        ("trial_timeout_s", 0.0),
        ("sentinel_every", -1),
        ("max_seconds", 0.0),
        ("max_tokens", 0),
    ],
)
def test_values_out_of_range_are_refused_with_the_range(key: str, value: float) -> None:
    with pytest.raises(SpecError, match=f"--{key.replace('_', '-')} is "):
        check_spec(msgspec.structs.replace(ScanSpec(), **{key: value}))


@pytest.mark.parametrize("change", [{"arms": ()}, {"arms": ("observer",)}, {"order": "x"}])
def test_python_callers_get_the_same_checks(change: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        check_spec(msgspec.structs.replace(ScanSpec(), **change))


def test_a_list_of_values_sweeps_another_axis_too() -> None:
    check_spec(ScanSpec(axis="prompt"))
    check_spec(ScanSpec(axis="prompt", budgets=(1, 64, 128)))
    with pytest.raises(SpecError, match="the axis prompt starts at 1"):
        check_spec(ScanSpec(axis="prompt", budgets=(0, 64)))


@pytest.mark.parametrize("axis", ["batch", "time"])
def test_axes_that_cannot_be_searched_are_refused(axis: str) -> None:
    with pytest.raises(SpecError, match=axis):
        check_spec(ScanSpec(axis=axis))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"processes": 5}, "--processes"),
        ({"mode": "nested"}, "--mode"),
        ({"observer": True}, "--observer"),
    ],
)
def test_a_search_refuses_settings_of_a_fixed_plan(change: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError, match=named):
        check_spec(ScanSpec(**change))
    check_spec(ScanSpec(budgets=(32, 64), **change))


@pytest.mark.parametrize(
    ("change", "named"),
    [({"min_width": 5}, "--min-width"), ({"certify": True}, "--certify"), ({"low": 9}, "--range")],
)
def test_a_fixed_plan_refuses_settings_of_a_search(change: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError, match=named):
        check_spec(ScanSpec(budgets=(32, 64), **change))
    check_spec(ScanSpec(**change))


@pytest.mark.parametrize("ends", [(1, 64), (64, 64), (200, 100)])
def test_a_range_must_ascend_from_two(ends: tuple[int, int]) -> None:
    low, high = ends
    with pytest.raises(SpecError, match="range"):
        check_spec(ScanSpec(low=low, high=high))


@pytest.mark.parametrize("text", ["64", "64:", "a:b", "64:128:2", "64:64"])
def test_a_range_that_cannot_be_read_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(SpecError, match="64:1024"):
        make_spec({"span": text})


def test_depth_is_searched_from_zero() -> None:
    assert make_spec({"span": "0:64", "axis": "context"}).low == 0


def test_the_command_of_a_search_gives_the_search_back() -> None:
    spec = ScanSpec(
        engine="simulated", model="paper", low=100, high=700, min_width=20, certify=True
    )
    command = to_command(spec)
    assert command[command.index("--range") + 1] == "100:700"
    assert command[command.index("--min-width") + 1] == "20"
    assert "--certify" in command


def test_the_command_of_a_spec_gives_the_spec_back() -> None:
    spec = ScanSpec(
        engine="simulated",
        model="paper",
        device="virtual",
        budgets=(16, 24, 40),
        processes=5,
        kv_cache="off",
        seed=9,
        arms=("warm", "fresh"),
        observer=True,
        max_seconds=60.5,
        max_tokens=1000,
        engine_options={"noise": "skew", "bands": [{"onset": 20, "recovery": 30}]},
    )
    words = to_command(spec)[2:]
    options: dict[str, Any] = {"model": words[0], "engine_option": [], "observer": False}
    rest = iter(words[1:])
    for flag in rest:
        name = flag.removeprefix("--").replace("-", "_")
        if name == "observer":
            options[name] = True
        elif name == "engine_option":
            options[name] = [*options[name], next(rest)]
        elif name in {"budgets", "arms"}:
            options[name] = next(rest)
        else:
            options[name] = type(getattr(spec, name))(next(rest))
    assert make_spec(options) == spec


def test_a_spec_file_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spec.toml"
    path.write_text('model = "gpt2"\nbudgets = [16, 32]\ncolour = 1\n')
    with pytest.raises(SpecError, match="colour"):
        load_spec(path)


def test_a_spec_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "spec.toml"
    path.write_text('model = "gpt2"\nbudgets = [16, 32]\n')
    assert load_spec(path) == ScanSpec(model="gpt2", budgets=(16, 32))


@pytest.mark.parametrize("content", [b"model = ", b"\xff\xfe", b"budgets = 5\n"])
def test_a_damaged_spec_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "spec.toml"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=r"spec\.toml"):
        load_spec(path)


def test_a_missing_spec_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="No such file"):
        load_spec(tmp_path / "absent.toml")
