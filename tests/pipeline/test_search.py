"""A search on simulated machines: found, confirmed, located; or nothing, and never more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regimescope.api import analyze, load_run, resume, scan
from regimescope.errors import MeasurementError, SpecError
from regimescope.growth import replayed
from regimescope.reasons import Reason
from regimescope.records import Run, Trial
from regimescope.report.progress import SilentObserver
from regimescope.results import Conclusion, Grade, Verdict
from regimescope.spec import ScanSpec


def search(folder: Path, seed: int = 0, **values: Any) -> Run:
    options = values.pop("options", {})
    spec = ScanSpec(engine="simulated", model="smooth", seed=seed, engine_options=options, **values)
    return scan(spec, out=folder / "run")


def searched(folder: Path, seed: int = 0, **values: Any) -> Conclusion:
    return analyze(search(folder, seed, **values))


def band(onset: int, recovery: int | None, slowdown: float, **more: Any) -> dict[str, Any]:
    return (
        {"onset": onset, "slowdown": slowdown}
        | more
        | ({} if recovery is None else {"recovery": recovery})
    )


def regimes(found: Conclusion) -> list[tuple[Any, ...]]:
    return [(r.onset, r.recovery) for r in found.regimes if r.grade is not Grade.C]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("noise", ["gauss", "skew"])
def test_a_regime_is_confirmed_with_both_edges_to_one_token(
    tmp_path: Path, seed: int, noise: str
) -> None:
    found = searched(tmp_path, seed, options={"bands": [band(512, 640, 10.0)], "noise": noise})
    (regime,) = found.regimes
    assert found.verdict is Verdict.SPIKE
    assert (found.grade, regime.grade) == (Grade.A, Grade.A)
    assert regime.onset == (511, 512)
    assert regime.recovery == (639, 640)
    assert regime.slowdown is not None
    assert (regime.slowdown.low or 0) < 10 < (regime.slowdown.high or 0)
    assert found.guarantee is not None
    assert found.guarantee.withdrawn == ()
    assert found.guarantee.tokens < 90_000


def test_two_regimes_each_get_their_own_edges(tmp_path: Path) -> None:
    bands = [band(300, 350, 3.0), band(700, 900, 5.0)]
    found = searched(tmp_path, options={"bands": bands, "noise": "gauss"})
    assert regimes(found) == [((299, 300), (349, 350)), ((699, 700), (899, 900))]


def test_a_slowdown_that_stays_is_a_step_with_an_exact_onset(tmp_path: Path) -> None:
    found = searched(tmp_path, options={"bands": [band(700, None, 2.0)]})
    assert (found.verdict, found.grade) == (Verdict.STEP, Grade.B)
    assert regimes(found) == [((699, 700), None)]


def test_a_regime_at_the_upper_end_is_found_by_extending_the_range(tmp_path: Path) -> None:
    found = searched(tmp_path, options={"bands": [band(900, 1100, 5.0)]})
    assert regimes(found) == [((899, 900), (1099, 1100))]


def test_a_slowdown_from_the_first_value_on_is_no_regime(tmp_path: Path) -> None:
    found = searched(tmp_path, options={"bands": [band(2, 150, 5.0)]})
    assert found.verdict is Verdict.STEP
    assert found.grade is Grade.C
    assert Reason.LEFT_CENSORED in found.reasons


QUIET: dict[str, dict[str, Any]] = {
    "clean": {"noise": "gauss"},
    "skewed noise": {"noise": "skew"},
    "slow drift": {"drift_per_100_s": 0.02},
    "drift": {"drift_per_100_s": 0.3},
    "bursts": {"burst": {"share": 0.05}},
    "lottery": {"lottery": {"share": 0.4}},
    "idle": {"idle_penalty_s": 0.3},
    "history": {"after_larger": 1.4},
    "process spread": {"process_spread": 0.2},
    "step of budgets": {"bands": [{"onset": 500, "slowdown": 1.5}]},
    "slow positions": {
        "bands": [{"onset": 400, "recovery": 480, "slowdown": 4, "axis": "context"}]
    },
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", QUIET)
def test_what_is_no_regime_is_never_confirmed_as_one(tmp_path: Path, name: str, seed: int) -> None:
    found = searched(tmp_path, seed, options=QUIET[name])
    assert not [r for r in found.regimes if r.verdict is Verdict.SPIKE and r.grade is not Grade.C]


def test_a_clean_search_costs_little_and_says_what_it_promises(tmp_path: Path) -> None:
    found = searched(tmp_path, options={"noise": "gauss"})
    assert found.verdict is Verdict.CLEAN
    assert found.guarantee is not None
    assert (found.guarantee.low, found.guarantee.high, found.guarantee.width) == (64, 1024, 40)
    assert found.guarantee.tokens < 30_000
    assert found.guarantee.withdrawn == ()


def test_every_phase_says_why_it_went_on(tmp_path: Path) -> None:
    run = search(tmp_path, options={"bands": [band(512, 640, 10.0)]})
    stages = [(e.facts or {})["stage"] for e in run.events if e.kind == "phase"]
    assert list(dict.fromkeys(stages)) == [
        "calibrate", "screen", "rerun", "confirm", "boundary", "final", "adjacency",
    ]  # fmt: skip
    assert all(event.message for event in run.events)
    assert run.events[-1].kind == "done"


def test_slow_probes_end_early_and_confirming_trials_never_do(tmp_path: Path) -> None:
    run = search(tmp_path, options={"bands": [band(512, 640, 10.0)]})
    aborted = [t for t in run.trials if t.status == "aborted"]
    assert aborted
    assert {t.stage for t in aborted} <= {"screen", "rerun", "boundary"}
    for trial in aborted:
        assert trial.cell.budget is not None
        assert 512 <= trial.cell.budget < 640
        assert trial.abort_at == trial.output_tokens
        assert (trial.abort_at or 0) < 64
        assert (trial.projected_s or 0) == pytest.approx(0.11 * trial.cell.budget, rel=0.25)


def test_a_token_limit_ends_a_search_with_what_it_could_not_settle(tmp_path: Path) -> None:
    options = {"bands": [band(512, 640, 10.0)]}
    found = searched(tmp_path, options=options, max_tokens=35_000)
    assert Reason.LIMIT_REACHED in found.reasons
    assert found.guarantee is not None
    assert Reason.LIMIT_REACHED in found.guarantee.withdrawn
    assert found.verdict is Verdict.SPIKE
    assert found.grade is Grade.C


class Interruption(SilentObserver):
    """Interrupts a run after so many trials."""

    def __init__(self, after: int) -> None:
        self._left = after

    def trial_finished(self, trial: Trial) -> None:
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt


EXACT = {"bands": [band(512, 640, 10.0)], "noise": "none"}


def values_by_stage(run: Run) -> dict[str | None, list[int | None]]:
    found: dict[str | None, list[int | None]] = {}
    for trial in run.trials:
        if not trial.warmup and not trial.sentinel:
            found.setdefault(trial.stage, []).append(trial.cell.budget)
    return {stage: sorted(values, key=lambda v: v or 0) for stage, values in found.items()}


@pytest.mark.parametrize("after", [1, 12, 30, 55, 80, 100, 115, 130])
def test_an_interrupted_search_ends_with_the_plan_it_would_have_had(
    tmp_path: Path, after: int
) -> None:
    whole = search(tmp_path / "whole", options=EXACT)
    spec = ScanSpec(engine="simulated", model="smooth", engine_options=EXACT)
    folder = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        scan(spec, out=folder, observer=Interruption(after))
    run = resume(folder)
    assert whole.header.plan is not None
    assert run.header.plan is not None
    assert replayed(run.header.plan, run.events) == replayed(whole.header.plan, whole.events)
    assert values_by_stage(run) == values_by_stage(whole)
    assert regimes(analyze(run)) == regimes(analyze(whole)) == [((511, 512), (639, 640))]


def test_a_search_that_met_its_limit_goes_on_with_a_larger_one(tmp_path: Path) -> None:
    whole = search(tmp_path / "whole", options=EXACT)
    cut = search(tmp_path / "cut", options=EXACT, max_tokens=35_000)
    folder = tmp_path / "cut" / "run"
    assert cut.events[-1].kind == "stop"
    assert f"--resume {folder} --max-tokens 70000" in cut.events[-1].message
    with pytest.raises(SpecError, match="max-tokens"):
        resume(folder, max_tokens=0)
    run = resume(folder, max_tokens=500_000)
    assert values_by_stage(run) == values_by_stage(whole)
    assert [e.facts for e in run.events if e.kind == "resume"] == [{"max_tokens": 500_000}]
    # The new limit holds for whoever takes the run up after that, too.
    assert load_run(folder).header.spec == cut.header.spec
    assert regimes(analyze(run)) == regimes(analyze(whole)) == [((511, 512), (639, 640))]


def test_nothing_is_measured_cold_where_the_warm_up_fails(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="warm-up at budget 1024 failed in 3 processes"):
        search(tmp_path, options={"fail_budgets": [1024]})
    run = load_run(tmp_path / "run")
    assert [(t.warmup, t.status) for t in run.trials] == 3 * [(True, "failed")]
    assert run.events[-1].reason is Reason.BACKEND_FAILURES


def test_a_value_that_fails_is_left_out_and_the_rest_is_searched(tmp_path: Path) -> None:
    options = {"bands": [band(512, 640, 10.0)], "fail_budgets": list(range(505, 511))}
    run = search(tmp_path, options=options)
    found = analyze(run)
    assert run.events[-1].kind == "done"
    asked = [(t.stage, t.cell.budget) for t in run.trials if t.status == "failed" and t.stage]
    assert asked
    assert max(asked.count(place) for place in asked if place[0] == "boundary") == 3
    assert max(asked.count(place) for place in asked) <= 6
    assert found.regimes[0].recovery == (639, 640)


def test_a_block_that_a_kill_left_unjudged_is_judged_when_the_run_is_taken_up(
    tmp_path: Path,
) -> None:
    options = {"drift_per_100_s": 0.3, "noise": "none"}
    whole = search(tmp_path / "whole", options=options)
    veto = next(event for event in whole.events if event.kind == "veto")
    block = (veto.facts or {})["block"]
    last = max(
        k
        for k, trial in enumerate(whole.trials)
        if (trial.block, trial.process_run, trial.sentinel) == (block, veto.process_run, True)
    )
    spec = ScanSpec(engine="simulated", model="smooth", engine_options=options)
    folder = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        scan(spec, out=folder, observer=Interruption(last + 1))
    assert not [event for event in load_run(folder).events if event.kind == "veto"]
    assert load_run(folder).events[-1].reason is Reason.INTERRUPTED
    kinds = [event.kind for event in resume(folder).events]
    taken_up = kinds.index("resume")
    assert kinds[taken_up + 1] == "veto"


@pytest.mark.parametrize("values", [{"low": 100, "high": 105}, {"min_width": 900}])
def test_a_short_range_or_a_coarse_grid_ends_with_a_verdict(
    tmp_path: Path, values: dict[str, int]
) -> None:
    found = searched(tmp_path, options={"noise": "gauss"}, **values)
    assert found.verdict is Verdict.CLEAN
    assert Reason.TOO_FEW_BUDGETS not in found.reasons


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ({"low": 100, "high": 101}, "--range 100:105"),
        ({"low": 64, "high": 1024, "min_width": 5000}, "--min-width 960"),
    ],
)
def test_a_range_without_room_is_refused_at_once(
    tmp_path: Path, values: dict[str, int], remedy: str
) -> None:
    with pytest.raises(SpecError) as caught:
        search(tmp_path, **values)
    assert remedy in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_the_prompt_axis_is_searched_by_time_to_first_token(tmp_path: Path) -> None:
    run = search(tmp_path, axis="prompt", options={"prefill_s": 0.01}, high=512, budget=4)
    found = analyze(run)
    assert found.axis == "prompt"
    assert found.verdict is Verdict.CLEAN
    assert {t.cell.budget for t in run.trials} == {4}
    assert found.baseline is not None
    assert found.baseline.phase == "prefill"


def test_a_regime_of_some_processes_is_found_by_their_counts(tmp_path: Path) -> None:
    bands = [band(512, 640, 5.0, prevalence=0.7)]
    found = searched(tmp_path, options={"bands": bands, "noise": "gauss"}, prevalence=0.7)
    assert (found.verdict, found.grade) == (Verdict.BIMODAL, Grade.B)
    (regime,) = [r for r in found.regimes if r.grade is Grade.B]
    assert regime.onset is not None
    assert regime.onset[0] < 512 <= regime.onset[1]
    assert regime.share is not None
    assert (regime.share.low or 0) < 0.7 < (regime.share.high or 0)
    quiet = searched(tmp_path / "quiet", options={"noise": "gauss"}, prevalence=0.7)
    assert quiet.verdict is Verdict.CLEAN


def test_slow_in_every_process_is_a_spike_where_rare_slowness_was_looked_for(
    tmp_path: Path,
) -> None:
    options = {"bands": [band(512, 640, 5.0)], "noise": "gauss"}
    found = searched(tmp_path, options=options, prevalence=0.7)
    assert (found.verdict, found.grade) == (Verdict.SPIKE, Grade.B)
    (regime,) = found.regimes
    assert regime.share is None
    assert regime.onset is not None
    assert regime.onset[0] < 512 <= regime.onset[1]


def test_rare_slowness_that_reaches_the_end_of_the_range_is_named(tmp_path: Path) -> None:
    bands = [band(900, None, 5.0, prevalence=0.7)]
    found = searched(tmp_path, options={"bands": bands, "noise": "gauss"}, prevalence=0.7)
    (regime,) = [r for r in found.regimes if r.verdict is Verdict.BIMODAL]
    assert regime.grade is Grade.C
    assert regime.recovery is None
    assert Reason.RIGHT_CENSORED in regime.reasons
