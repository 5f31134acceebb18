"""Two conclusions against each other: what may be said, and what must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from regimescope.analysis.baseline_change import baseline_change
from regimescope.analysis.compare import Judged, compare, regime_changes
from regimescope.analysis.regimes import conclude
from regimescope.api import scan
from regimescope.errors import InputError
from regimescope.results import (
    Baseline,
    Conclusion,
    Counts,
    Estimate,
    Grade,
    Point,
    Regime,
    Verdict,
)
from regimescope.spec import ScanSpec

GRID = range(64, 1025, 64)


def estimate(value: float, share: float = 0.1) -> Estimate:
    return Estimate(value=value, low=value / (1 + share), high=value * (1 + share), n=6)


def regime(onset: Any = (496, 512), recovery: Any = (624, 640), much: float = 10.0, **more: Any):
    values = {"verdict": Verdict.SPIKE, "grade": Grade.A, "slowdown": estimate(much)} | more
    return Regime(onset=onset, recovery=recovery, **values)


def conclusion(*regimes: Regime, run: str = "a", grid: Any = GRID, **more: Any) -> Conclusion:
    def slowdown(x: int) -> float:
        inside = [r for r in regimes if (r.onset or (0, 0))[1] <= x <= (r.recovery or (9999, 0))[0]]
        return inside[0].slowdown.value if inside and inside[0].slowdown else 1.01

    points = tuple(
        Point(x=x, latency_s=x * slowdown(x), low_s=x, high_s=x, n=2, expected_s=x,
              slowdown=slowdown(x))
        for x in grid
    )  # fmt: skip
    values = {"verdict": Verdict.SPIKE if regimes else Verdict.CLEAN, "grade": Grade.A} | more
    return Conclusion(
        run=run,
        axis="budget",
        counts=Counts(trials=len(points), failed=0, dropped=0),
        regimes=tuple(regimes),
        baseline=Baseline(points=points),
        **values,
    )


def changes(before: Conclusion, after: Conclusion) -> list[tuple[str, ...]]:
    return [change.changes for change in regime_changes(before, after)]


def test_equal_intervals_are_the_same_and_their_growth_has_an_interval() -> None:
    (found,) = regime_changes(conclusion(regime()), conclusion(regime(much=10.5), run="b"))
    assert found.changes == ("same",)
    assert found.growth is not None
    assert found.growth.low is not None
    assert found.growth.high is not None
    assert found.growth.low < 1 < found.growth.value < found.growth.high


def test_what_one_run_measured_and_found_normal_appeared_or_vanished() -> None:
    slow, clean = conclusion(regime(), run="slow"), conclusion(run="clean")
    assert changes(clean, slow) == [("appeared",)]
    assert changes(slow, clean) == [("vanished",)]
    (found,) = regime_changes(clean, slow)
    assert found.before is None
    assert found.why == "clean is normal there: 2 values, at most 1.01x"


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (conclusion(grid=(64, 128, 256, 768, 1024)), "measured nothing between the edges"),
        (conclusion(verdict=Verdict.INCONCLUSIVE, grade=Grade.C), "has no verdict (INCONCLUSIVE)"),
        (conclusion(verdict=Verdict.DRIFT, grade=Grade.C), "has no verdict (DRIFT)"),
    ],
)
def test_what_a_run_could_not_see_is_no_absence(other: Conclusion, why: str) -> None:
    for before, after in ((other, conclusion(regime())), (conclusion(regime()), other)):
        (found,) = regime_changes(before, after)
        assert found.changes == ("cannot tell",)
        assert why in found.why


def test_a_run_that_is_slow_there_without_an_interval_is_no_absence() -> None:
    slow = conclusion(regime())
    unnamed = replace(slow, run="b", regimes=(), verdict=Verdict.CLEAN)
    (found,) = regime_changes(unnamed, slow)
    assert found.changes == ("cannot tell",)
    assert "slow there too at 512" in found.why


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (regime(onset=(511, 512)), ("same",)),
        (regime(onset=(495, 496)), ("moved",)),
        (regime(onset=(512, 513)), ("moved",)),
        (regime(recovery=(639, 640)), ("same",)),
        (regime(recovery=(640, 641)), ("moved",)),
        (regime(much=20.0), ("grew",)),
        (regime(much=5.0), ("shrank",)),
        (regime(onset=(400, 410), much=30.0), ("moved", "grew")),
        (regime(recovery=None), ("same",)),
        (regime(slowdown=None), ("same",)),
        (regime(slowdown=Estimate(value=20.0)), ("same",)),
    ],
)
def test_what_became_of_an_interval(after: Regime, expected: tuple[str, ...]) -> None:
    assert changes(conclusion(regime()), conclusion(after, run="b")) == [expected]


def test_each_interval_has_one_partner_the_nearest() -> None:
    two = conclusion(regime((255, 256), (319, 320)), regime((511, 512), (639, 640)))
    one = conclusion(regime((505, 506), (639, 640)), run="b")
    assert changes(two, one) == [("vanished",), ("moved",)]
    assert changes(one, two) == [("appeared",), ("moved",)]


def test_the_grade_of_a_change_is_the_weaker_one() -> None:
    (found,) = regime_changes(conclusion(regime()), conclusion(regime(grade=Grade.C), run="b"))
    assert found.grade is Grade.C


# --- whole runs -----------------------------------------------------------------------------------


def measured(folder: Path, seed: int, **values: Any) -> Judged:
    settings = {"budgets": tuple(GRID), "processes": 4, "repeats": 1} | values
    options = settings.pop("engine_options", {})
    spec = ScanSpec(
        engine="simulated", model="smooth", seed=seed, engine_options=options, **settings
    )
    run = scan(spec, out=folder / f"run{seed}")
    return Judged(run, conclude(run))


def test_two_scans_of_one_machine_have_the_same_speed(tmp_path: Path) -> None:
    found = compare(measured(tmp_path, 1), measured(tmp_path, 2))
    assert (found.verdict, found.regimes) == ("same", ())
    assert found.baseline.verdict == "same"
    assert found.baseline.ratio is not None
    assert found.baseline.ratio.n == 8


@pytest.mark.parametrize(("base_s", "speed"), [(0.013, "slower"), (0.007, "faster")])
def test_a_slower_machine_is_told_apart_from_a_regime(
    tmp_path: Path, base_s: float, speed: str
) -> None:
    other = measured(tmp_path, 2, engine_options={"base_s": base_s})
    found = compare(measured(tmp_path, 1), other)
    assert (found.verdict, found.baseline.verdict) == ("same", speed)


def test_a_regime_does_not_move_the_normal_speed(tmp_path: Path) -> None:
    band = {"bands": [{"onset": 512, "recovery": 640, "slowdown": 10.0}]}
    found = compare(measured(tmp_path, 1), measured(tmp_path, 2, engine_options=band))
    # A fixed plan confirms nothing on fresh data, and a candidate alone is no change.
    assert [change.changes for change in found.regimes] == [("appeared",)]
    assert (found.verdict, found.baseline.verdict) == ("cannot tell", "same")


def test_values_that_were_not_measured_in_both_are_read_from_the_curve(tmp_path: Path) -> None:
    other = measured(tmp_path, 2, budgets=tuple(range(80, 1000, 48)))
    assert compare(measured(tmp_path, 1), other).baseline.verdict == "same"


def test_one_process_has_no_interval(tmp_path: Path) -> None:
    found = compare(measured(tmp_path, 1, processes=1), measured(tmp_path, 2)).baseline
    assert (found.verdict, found.why) == ("cannot tell", "an interval needs 2 process runs of each")
    assert found.ratio is not None
    assert found.ratio.low is None


def test_runs_that_share_no_values_have_no_common_speed(tmp_path: Path) -> None:
    low = measured(tmp_path, 1, budgets=tuple(range(8, 64, 8)))
    high = measured(tmp_path, 2)
    found = baseline_change(low.run, low.conclusion, high.run, high.conclusion)
    assert (found.verdict, found.ratio) == ("cannot tell", None)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"prompt_tokens": 33}, "prompt tokens (65 against 33)"),
        ({"kv_cache": "off"}, "kv cache (on against off)"),
        ({"mode": "nested"}, "mode (independent against nested)"),
        ({"axis": "prompt", "budget": 32}, "axis (budget against prompt)"),
    ],
)
def test_other_requests_are_refused_by_name(
    tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    with pytest.raises(InputError) as caught:
        compare(measured(tmp_path, 1), measured(tmp_path, 2, **change))
    assert named in str(caught.value)


def test_what_else_differs_is_told(tmp_path: Path) -> None:
    before = measured(tmp_path, 1)
    run = before.run
    trials = tuple(replace(t, series=replace(t.series, device="other")) for t in run.trials)
    header = replace(run.header, versions=run.header.versions | {"torch": "9"})
    after = Judged(replace(run, trials=trials, header=header), before.conclusion)
    assert compare(before, after).differences == {"device": ("virtual", "other")}


def test_an_option_that_only_one_run_was_given_is_a_difference(tmp_path: Path) -> None:
    plain, slower = measured(tmp_path, 1), measured(tmp_path, 2, engine_options={"base_s": 0.02})
    assert compare(plain, slower).differences == {"option base_s": ("not given", "0.02")}
