"""The verdict on searches that lack something: trials, processes, one machine, an end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from regimescope.analysis.regimes import conclude
from regimescope.api import scan
from regimescope.reasons import Reason
from regimescope.records import Event, Run, Trial
from regimescope.report.promise import promise_sentences
from regimescope.results import Grade, Verdict
from regimescope.spec import ScanSpec

REGIME = {"bands": [{"onset": 512, "recovery": 640, "slowdown": 10.0}], "noise": "gauss"}


def searched(folder: Path, **values: Any) -> Run:
    options = values.pop("options", {"noise": "gauss"})
    spec = ScanSpec(engine="simulated", model="smooth", engine_options=options, **values)
    return scan(spec, out=folder / "run")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return searched(tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return searched(tmp_path_factory.mktemp("found"), options=REGIME)


def changed(run: Run, change: Callable[[Trial], Trial | None]) -> Run:
    trials = (change(trial) for trial in run.trials)
    return replace(run, trials=tuple(t for t in trials if t is not None))


def stopped(run: Run, reason: Reason) -> Run:
    stop = Event(kind="stop", at_utc="2026-01-01T00:00:00+00:00", message="over", reason=reason)
    return replace(run, events=(*(e for e in run.events if e.kind != "done"), stop))


def failed(trial: Trial) -> Trial:
    return replace(trial, status="failed", decode_s=None, e2e_s=None, itl_s=None, ttft_s=None)


@pytest.mark.parametrize("reason", [Reason.LIMIT_REACHED, Reason.INTERRUPTED])
def test_half_a_screen_is_never_clean(clean: Run, reason: Reason) -> None:
    half = replace(clean, trials=clean.trials[: len(clean.trials) // 2])
    conclusion = conclude(stopped(half, reason))
    assert conclusion.verdict is Verdict.INCONCLUSIVE
    assert conclusion.reasons[0] is reason
    assert conclusion.guarantee is not None
    assert {reason, Reason.GAP_TOO_WIDE} <= set(conclusion.guarantee.withdrawn)


def test_a_stretch_of_failed_values_is_never_clean(clean: Run) -> None:
    def breaks(trial: Trial) -> Trial:
        inside = 480 <= (trial.cell.budget or 0) <= 640 and not trial.warmup
        return failed(trial) if inside else trial

    conclusion = conclude(changed(clean, breaks))
    assert conclusion.verdict is Verdict.INCONCLUSIVE
    assert {Reason.BACKEND_FAILURES, Reason.GAP_TOO_WIDE} <= set(conclusion.reasons)
    assert conclusion.counts.failed > 0


def test_a_failed_end_of_the_range_withdraws_the_promise(clean: Run) -> None:
    def breaks(trial: Trial) -> Trial | None:
        return None if trial.cell.budget == 64 and not trial.sentinel else trial

    conclusion = conclude(changed(clean, breaks))
    assert conclusion.guarantee is not None
    assert Reason.GAP_TOO_WIDE in conclusion.guarantee.withdrawn
    assert conclusion.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("kept", range(0, 13, 3))
def test_a_search_that_hardly_began_has_a_verdict_all_the_same(clean: Run, kept: int) -> None:
    conclusion = conclude(stopped(replace(clean, trials=clean.trials[:kept]), Reason.LIMIT_REACHED))
    assert conclusion.verdict is Verdict.INCONCLUSIVE
    assert Reason.LIMIT_REACHED in conclusion.reasons


def test_a_finished_search_that_lost_trials_promises_nothing(found: Run) -> None:
    whole = conclude(found)
    assert whole.guarantee is not None
    assert whole.guarantee.withdrawn == ()
    conclusion = conclude(replace(found, trials=found.trials[: len(found.trials) // 2]))
    assert Reason.LIMIT_REACHED in conclusion.reasons
    assert any("nothing is promised" in line for line in promise_sentences(conclusion))


def test_a_search_without_an_end_promises_nothing(clean: Run) -> None:
    cut = replace(clean, events=tuple(e for e in clean.events if e.kind != "done"))
    conclusion = conclude(cut)
    assert conclusion.verdict is Verdict.INCONCLUSIVE
    assert conclusion.reasons[0] is Reason.LIMIT_REACHED


def test_a_single_process_is_said_to_be_one(clean: Run, found: Run) -> None:
    conclusion = conclude(clean)
    assert conclusion.verdict is Verdict.CLEAN
    assert Reason.SINGLE_PROCESS in conclusion.reasons
    assert any("in the one process measured" in line for line in promise_sentences(conclusion))
    several = conclude(found)
    assert Reason.SINGLE_PROCESS not in several.reasons
    assert not any("one process" in line for line in promise_sentences(several))


def test_occasions_of_a_resumed_search_are_not_pooled_silently(found: Run) -> None:
    half = len(found.trials) // 2
    before = {t.trial_id for t in found.trials[:half]}

    def later(trial: Trial) -> Trial:
        if trial.trial_id in before or trial.decode_s is None:
            return trial
        return replace(trial, occasion="later", decode_s=1.2 * trial.decode_s)

    assert Reason.OCCASION_SHIFT not in conclude(found).reasons
    assert Reason.OCCASION_SHIFT in conclude(changed(found, later)).reasons


def test_no_printed_figure_rests_on_projected_values(found: Run) -> None:
    """A projection that is a fifth too long must not show in any of them."""

    def exaggerates(trial: Trial) -> Trial:
        if trial.projected_s is None:
            return trial
        return replace(trial, projected_s=1.2 * trial.projected_s)

    early = [t for t in found.trials if t.status == "aborted" and t.stage != "confirm"]
    assert early
    before, after = conclude(found), conclude(changed(found, exaggerates))
    (one,), (other,) = before.regimes, after.regimes
    assert after.certificate == before.certificate
    assert one.ratio_to_reference == other.ratio_to_reference
    assert one.lost_s == pytest.approx(other.lost_s, rel=0.05)


def test_trials_that_ran_out_of_time_are_ranked_last(found: Run) -> None:
    """A slow value that hangs is slower than a longer one that does not: the grade stays."""

    def hangs(trial: Trial) -> Trial:
        full = trial.stage in {"confirm", "final"} and not trial.warmup and not trial.sentinel
        slow = 512 <= (trial.cell.budget or 0) < 640 and trial.process_run is not None
        odd = slow and (trial.process_run or 0) % 3 == 0
        return replace(failed(trial), status="timeout") if full and odd else trial

    conclusion = conclude(changed(found, hangs))
    (regime,) = conclusion.regimes
    assert (conclusion.verdict, regime.grade) == (Verdict.SPIKE, Grade.A)


def test_the_final_check_is_counted(found: Run, clean: Run) -> None:
    checked, unchecked = conclude(found).guarantee, conclude(clean).guarantee
    assert checked is not None
    assert checked.final_processes == 2
    assert unchecked is not None
    assert unchecked.final_processes is None
    lines = promise_sentences(conclude(found))
    assert any("final check in 2 fresh processes" in line for line in lines)


def test_a_search_that_left_its_range_says_how_far(tmp_path: Path) -> None:
    run = searched(tmp_path, low=500, high=600, options=REGIME)
    conclusion = conclude(run)
    assert conclusion.guarantee is not None
    assert conclusion.guarantee.looked is not None
    low, high = conclusion.guarantee.looked
    assert low <= 500
    assert high > 600
    lines = promise_sentences(conclusion)
    assert any(f"looked outside it, from {low} to {high}" in line for line in lines)
