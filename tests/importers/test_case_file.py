"""What a case file may hold, and what it is told when it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from regimescope import api
from regimescope.analysis.regimes import conclude
from regimescope.errors import InputError, UserError
from regimescope.importers.case import read_case
from regimescope.importers.case_file import looks_like_case
from regimescope.importers.case_units import Quantity, to_timing
from regimescope.importers.merging import merged
from regimescope.reasons import Reason
from regimescope.results import Verdict

HEAD = 'id = "a"\naxis = "budget"\nphase = "mixed"\nunit = "s"\nbetter = "lower"\n'
POINTS = "points = [[16, 1.0], [32, 2.0], [48, 3.0]]\n"


def case(tmp_path: Path, text: str, name: str = "a.toml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEAD + "points = [[16, 1.0], [32, ", "is no TOML"),
        (HEAD + 'axis = "prompt"\n' + POINTS, "is no TOML"),
        (HEAD.replace('axis = "budget"\n', "") + POINTS, "axis"),
        (HEAD, "no measurements"),
        (HEAD + "points = []\n", "no measurements"),
        (HEAD.replace('"s"', '"furlongs"') + POINTS, "furlongs"),
        (HEAD.replace('"lower"', '"higher"') + POINTS, "better"),
        (HEAD.replace('"budget"', '"weekday"') + POINTS, "axis"),
        (HEAD + "points = [[16, 1.0], [32, 2.0, 3.0]]\n", "points[1]"),
        (HEAD + "points = [[16, 1.0], [32]]\n", "points[1]"),
        (HEAD + 'points = [[16, "1"], [32, 2.0]]\n', "points[0]"),
        (HEAD + "points = [[16, nan], [32, 2.0]]\n", "points[0]: y = nan"),
        (HEAD + "points = [[16, inf], [32, 2.0]]\n", "points[0]: y = inf"),
        (HEAD + "points = [[16, 0.0], [32, 2.0]]\n", "points[0]: y = 0"),
        (HEAD + "points = [[16, -1.0], [32, 2.0]]\n", "points[0]: y = -1"),
        (HEAD + "points = [[16, 1e300], [32, 2.0]]\n", "points[0]: y = 1e+300"),
        (HEAD + "points = [[1e300, 1.0], [32, 2.0]]\n", "points[0]: x = 1e+300"),
        (HEAD + "points = [[nan, 1.0], [32, 2.0]]\n", "points[0]: x = nan"),
        (HEAD + "points = [[16.5, 1.0], [32, 2.0]]\n", "points[0]: x = 16.5"),
        (HEAD + "points = [[0, 1.0], [32, 2.0]]\n", "points[0]: x = 0"),
        (HEAD + f"points = [[{'9' * 400}, 1.0], [32, 2.0]]\n", "points[0]"),
        (HEAD + f"points = [[{'9' * 5000}, 1.0], [32, 2.0]]\n", "is no TOML"),
        (HEAD + f"deep = {'[' * 80}{']' * 80}\n" + POINTS, "nested deeper"),
        (HEAD + f"deep = {'[' * 9000}{']' * 9000}\n" + POINTS, "nested deeper"),
        (HEAD + POINTS + 'failures = [[0, "oom"]]\n', "failures[0]"),
        (HEAD + POINTS + "tokens_per_measure = 0\n", "tokens_per_measure"),
        (HEAD + "samples = [[16, [1.0, nan]]]\n", "samples[0]"),
        (HEAD + '[[run]]\nid = "r"\npoints = [[16, -1.0]]\n', "run[0].points[0]"),
    ],
)
def test_a_slip_is_told_with_file_key_and_remedy(tmp_path: Path, text: str, says: str) -> None:
    path = case(tmp_path, text)
    with pytest.raises(UserError) as caught:
        read_case(path)
    assert str(path) in caught.value.message
    assert says in caught.value.message
    assert caught.value.remedy


def test_many_slips_are_cut_after_twenty(tmp_path: Path) -> None:
    points = ", ".join(f"[{k}, -1.0]" for k in range(1, 60))
    with pytest.raises(InputError) as caught:
        read_case(case(tmp_path, HEAD + f"points = [{points}]\n"))
    assert caught.value.message.count("\n") == 20
    assert "and 39 more" in caught.value.message


def test_what_is_no_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(HEAD.encode() + b'metric = "\xff"\n' + POINTS.encode())
    with pytest.raises(UserError, match="not UTF-8"):
        read_case(path)


def test_a_case_is_recognized_by_its_content(tmp_path: Path) -> None:
    assert looks_like_case(case(tmp_path, HEAD + POINTS, "table.csv"))
    assert not looks_like_case(case(tmp_path, "budget,latency_s\n16,1\n", "a.toml"))
    assert api.load(tmp_path / "table.csv").header.source == "case"
    with pytest.raises(UserError, match="is no TOML"):
        api.load(tmp_path / "a.toml")


@pytest.mark.parametrize(
    ("quantity", "x", "value", "seconds", "steps"),
    [
        (Quantity("budget", "mixed", "s", None), 512, 9.0, 9.0, None),
        (Quantity("budget", "decode", "ms", None), 512, 9.0, 0.009, 512),
        (Quantity("budget", "decode", "tokens_per_s", None), 2048, 4.0, 0.25, 1),
        (Quantity("context", "decode", "tokens_per_s", None), 4096, 20.0, 0.05, 1),
        (Quantity("context", "decode", "us_per_token", None), 4096, 20.0, 2e-5, 1),
        (Quantity("context", "prefill", "s", 512), 4096, 1.5, 1.5, 512),
        # A rate counts the tokens of all sequences: 8 of them at 4 tokens/s take 2 s for a step.
        (Quantity("batch", "decode", "tokens_per_s", None), 8, 4.0, 2.0, 1),
        (Quantity("prompt", "prefill", "tokens_per_s", None), 100, 50.0, 2.0, 1),
        (Quantity("batch", "kernel", "TFLOP_per_s", None), 2048, 4.0, 0.25, None),
    ],
)
def test_published_numbers_become_times(
    quantity: Quantity, x: int, value: float, seconds: float, steps: int | None
) -> None:
    timing = to_timing(quantity, x, value)
    assert timing.seconds == pytest.approx(seconds)
    assert timing.steps == steps


def test_runs_are_processes_unless_each_point_had_its_own(tmp_path: Path) -> None:
    runs = "".join(f'[[run]]\nid = "r{k}"\n{POINTS}' for k in range(2))
    whole = read_case(case(tmp_path, HEAD + runs)).trials
    assert [t.process_run for t in whole] == [0, 0, 0, 1, 1, 1]
    assert len({t.occasion for t in whole}) == 1
    own = runs.replace("points", "process_per_point = true\npoints")
    apart = read_case(case(tmp_path, HEAD + own)).trials
    assert [t.process_run for t in apart] == [0, 1, 2, 3, 4, 5]
    assert [t.occasion for t in apart] == ["r0"] * 3 + ["r1"] * 3


def test_what_a_file_does_not_say_stays_absent(tmp_path: Path) -> None:
    for trial in read_case(case(tmp_path, HEAD + POINTS)).trials:
        assert trial.process_run is None
        assert trial.order_index is None
        assert trial.output_tokens is None
        assert trial.cell.capacity is None


def test_a_value_in_a_foreign_unit_does_not_pose_as_tokens(tmp_path: Path) -> None:
    text = HEAD.replace("budget", "prompt") + 'axis_unit = "kb"\n' + POINTS
    run = read_case(case(tmp_path, text))
    assert [t.cell.prompt_tokens for t in run.trials] == [None] * 3
    assert [p.x for p in conclude(run).baseline.points] == [16, 32, 48]  # type: ignore[union-attr]


PROBE = {480: 9.2, 496: 9.5, 512: 89.2, 528: 83.2, 560: 110.1, 624: 94.4, 640: 8.8, 656: 8.2}
MAIN = {128: 1.4, 256: 2.9, 384: 5.1, 512: 83.2, 640: 8.8, 768: 9.7}


def series(values: dict[int, float]) -> str:
    return HEAD + f"points = {[[x, y] for x, y in values.items()]}\n"


def test_probe_and_main_sweep_are_not_pooled_without_an_occasion_term(tmp_path: Path) -> None:
    paths = [case(tmp_path, series(PROBE), "probe.toml"), case(tmp_path, series(MAIN), "main.toml")]
    run = api.load(*paths)
    with pytest.raises(InputError, match="shares 2 values") as caught:
        conclude(run)
    assert caught.value.reason is Reason.MIXED_SERIES
    assert caught.value.remedy


def test_occasions_that_share_values_are_pooled_with_their_level_removed(tmp_path: Path) -> None:
    slow = {x: 1.2 * y for x, y in PROBE.items()}
    paths = [case(tmp_path, series(PROBE), "one.toml"), case(tmp_path, series(slow), "two.toml")]
    found = conclude(api.load(*paths))
    assert found.verdict is Verdict.SPIKE
    assert Reason.OCCASION_SHIFT in found.reasons
    (regime,) = found.regimes
    assert (regime.onset, regime.recovery) == ((496, 512), (624, 640))


def test_files_of_different_axes_are_not_merged(tmp_path: Path) -> None:
    one = read_case(case(tmp_path, HEAD + POINTS))
    other = read_case(case(tmp_path, HEAD.replace("budget", "batch") + POINTS, "b.toml"))
    with pytest.raises(InputError, match="different axes"):
        merged([one, other])


@pytest.mark.parametrize("margin", [1.0, 0.5, -1.0, float("nan"), float("inf")])
def test_a_margin_that_is_no_slowdown_is_refused(tmp_path: Path, margin: float) -> None:
    with pytest.raises(UserError, match="margin"):
        api.analyze(case(tmp_path, HEAD + POINTS), margin=margin)


@pytest.mark.parametrize(
    ("first", "last", "places"),
    [
        (10, 18, list(range(10, 18))),
        (10, 13, [10, 11, 12]),
        (10, 11, [10]),
        (10, 10, [10]),
        (0, 80, [5, 15, 25, 35, 45, 55, 65, 75]),
    ],
)
def test_a_narrow_plateau_has_no_value_twice(
    tmp_path: Path, first: int, last: int, places: list[int]
) -> None:
    axis = HEAD.replace('"budget"', '"prompt"').replace("mixed", "prefill")
    run = read_case(case(tmp_path, axis + f"plateaus = [[{first}, {last}, 1.0]]\n"))
    assert [trial.cell.prompt_tokens for trial in run.trials] == places
    assert len({trial.trial_id for trial in run.trials}) == len(places)
