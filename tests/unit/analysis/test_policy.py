"""A policy: how it is read, and what breaks it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.analysis.test_compare import conclusion, estimate, regime

from regimescope.analysis.baseline_change import BaselineChange
from regimescope.analysis.compare import Comparison, regime_changes
from regimescope.analysis.policy import Policy, PolicyResult, check, read_policy
from regimescope.errors import SpecError
from regimescope.reasons import Reason
from regimescope.results import Conclusion, Estimate, Grade, Verdict

SAME = BaselineChange(verdict="same", ratio=estimate(1.0, 0.01))


def against(before: Conclusion, after: Conclusion, speed: BaselineChange = SAME) -> Comparison:
    found = regime_changes(before, after)
    return Comparison(
        before=before.run, after=after.run, axis="budget", verdict="same", regimes=found,
        baseline=speed,
    )  # fmt: skip


def outcomes(result: PolicyResult) -> dict[str, str]:
    return {finding.rule: finding.outcome for finding in result.findings}


def test_a_clean_run_keeps_to_the_default_policy() -> None:
    result = check(conclusion(), Policy())
    assert (result.outcome, outcomes(result)) == ("met", {"verdict": "met", "slowdown": "met"})


def test_a_regime_over_the_limit_breaks_it_and_a_candidate_leaves_it_open() -> None:
    assert check(conclusion(regime()), Policy()).outcome == "broken"
    weak = conclusion(regime(grade=Grade.C), grade=Grade.C)
    assert check(weak, Policy()).outcome == "inconclusive"
    assert check(weak, Policy(grade=Grade.C)).outcome == "broken"
    assert check(conclusion(regime(grade=Grade.B)), Policy(grade=Grade.A)).outcome == "inconclusive"


def test_a_regime_below_the_limit_may_stay_and_a_step_counts_as_one() -> None:
    assert check(conclusion(regime(much=10.0)), Policy(slowdown=11.0)).outcome == "met"
    step = regime(verdict=Verdict.STEP, recovery=None)
    result = check(conclusion(step, verdict=Verdict.STEP), Policy())
    assert result.outcome == "broken"
    assert "STEP at budget 512 to the end" in result.findings[0].message
    assert check(conclusion(step, verdict=Verdict.STEP), Policy(slowdown=None)).outcome == "met"


def test_a_regime_of_unknown_slowdown_is_not_below_the_limit() -> None:
    assert check(conclusion(regime(slowdown=None)), Policy(slowdown=500.0)).outcome == "broken"


@pytest.mark.parametrize("verdict", [Verdict.INCONCLUSIVE, Verdict.DRIFT])
def test_no_verdict_is_neither_met_nor_broken(verdict: Verdict) -> None:
    none = conclusion(verdict=verdict, grade=Grade.C, reasons=(Reason.DRIFT_VETO,))
    result = check(none, Policy())
    assert result.outcome == "inconclusive"
    assert "drift_veto" in result.findings[0].message


def test_a_new_regime_breaks_a_policy_that_allows_the_old_ones() -> None:
    allowing = Policy(slowdown=None)
    old, clean = conclusion(regime(), run="b"), conclusion(run="a")
    assert check(old, allowing, against(clean, old)).outcome == "broken"
    assert check(old, allowing, against(old, old)).outcome == "met"
    assert check(old, replace(allowing, new_regimes=True), against(clean, old)).outcome == "met"
    unseen = conclusion(run="a", grid=(64, 128, 1024))
    result = check(old, allowing, against(unseen, old))
    assert outcomes(result)["new_regimes"] == "inconclusive"
    assert "cannot be told" in result.findings[0].message


def test_a_regime_that_vanished_breaks_nothing() -> None:
    old, clean = conclusion(regime(), run="b"), conclusion(run="a")
    assert check(clean, Policy(), against(old, clean)).outcome == "met"


def test_growth_of_an_allowed_regime_is_limited() -> None:
    before, after = conclusion(regime()), conclusion(regime(much=15.0), run="b")
    policy = Policy(slowdown=None)
    assert outcomes(check(after, policy, against(before, after)))["growth"] == "broken"
    loose = replace(policy, growth=1.6)
    assert outcomes(check(after, loose, against(before, after)))["growth"] == "met"
    assert "growth" not in outcomes(
        check(after, replace(policy, growth=None), against(before, after))
    )


@pytest.mark.parametrize(
    ("ratio", "outcome"),
    [
        (estimate(1.0, 0.01), "met"),
        (estimate(1.08, 0.01), "met"),
        (estimate(1.2, 0.05), "broken"),
        (estimate(1.2, 0.5), "inconclusive"),
        (estimate(0.5, 0.05), "met"),
        (Estimate(value=1.02, n=2), "met"),
        (Estimate(value=1.5, n=2), "inconclusive"),
        (None, "inconclusive"),
    ],
)
def test_the_normal_speed_has_a_limit(ratio: Estimate | None, outcome: str) -> None:
    clean = conclusion()
    speed = BaselineChange(verdict="cannot tell", ratio=ratio, why="why")
    result = check(clean, Policy(), against(clean, clean, speed))
    assert outcomes(result)["tpot_change"] == outcome
    assert result.outcome == outcome


def test_the_worst_finding_comes_first_and_decides() -> None:
    slow = conclusion(regime(), run="b")
    speed = BaselineChange(verdict="cannot tell", why="why")
    result = check(slow, Policy(), against(conclusion(), slow, speed))
    order = ["broken", "inconclusive", "met"]
    ranks = [order.index(finding.outcome) for finding in result.findings]
    assert ranks == sorted(ranks)
    assert set(ranks) == {0, 1, 2}
    assert result.outcome == "broken"
    assert result.baseline == "a"


# --- files ----------------------------------------------------------------------------------------


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "policy.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_policy_is_read_and_false_takes_a_limit_away(tmp_path: Path) -> None:
    text = '\ufeffslowdown = 2\ntpot_change = false\nnew_regimes = true\ngrade = "A"\n'
    found = read_policy(written(tmp_path, text))
    assert found == Policy(slowdown=2.0, tpot_change=None, new_regimes=True, grade=Grade.A)
    assert read_policy(written(tmp_path, "")) == Policy()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("slowdwn = 2", "Did you mean slowdown?"),
        ("[limits]\nslowdown = 2", "unknown key 'limits'"),
        ("slowdown = 1.0", "slowdown"),
        ("slowdown = nan", "slowdown"),
        ("slowdown = true", "slowdown"),
        ('slowdown = "2"', "slowdown"),
        ('grade = "D"', "grade"),
        ("new_regimes = 1", "new_regimes"),
        ("slowdown = ", "is no TOML"),
        ("slowdown = 2\nslowdown = 3", "is no TOML"),
        (b"\xff\xfe", "is no TOML"),
        ("# " + "x" * 100_000, "too large"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_with_the_known_keys(
    tmp_path: Path, text: Any, named: str
) -> None:
    with pytest.raises(SpecError) as caught:
        read_policy(written(tmp_path, text))
    assert named in caught.value.message
    assert "slowdown, new_regimes" in caught.value.remedy


def test_a_folder_is_no_policy(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        read_policy(tmp_path)
