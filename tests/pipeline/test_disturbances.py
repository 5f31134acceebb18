"""What disturbs a machine ends in the verdict prescribed for it, never in a confirmed regime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from regimescope.api import analyze, scan
from regimescope.measure.process_run import ProcessRun
from regimescope.reasons import Reason
from regimescope.records import Run
from regimescope.results import Conclusion, Grade, Verdict
from regimescope.spec import ScanSpec

BUDGETS = tuple(range(64, 769, 32))


def measure(folder: Path, seed: int = 0, **values: Any) -> Run:
    options = values.pop("options", {})
    values.setdefault("processes", 6)
    spec = ScanSpec(
        engine="simulated",
        model="smooth",
        budgets=BUDGETS,
        seed=seed,
        engine_options=options,
        **values,
    )
    return scan(spec, out=folder / "run")


def verdict_on(folder: Path, seed: int = 0, **values: Any) -> Conclusion:
    return analyze(measure(folder, seed, **values))


DISTURBANCES: dict[str, dict[str, Any]] = {
    "drift": {"drift_per_100_s": 0.3},
    "slow drift": {"drift_per_100_s": 0.02},
    "burst": {"burst": {"share": 0.1}},
    "lottery": {"lottery": {"share": 0.4}},
    "idle": {"idle_penalty_s": 0.3},
    "history": {"after_larger": 1.4},
    "process spread": {"process_spread": 0.2},
    "accidents": {"noise": "heavy"},
}


@pytest.mark.parametrize("name", DISTURBANCES)
@pytest.mark.parametrize("seed", range(2))
def test_no_disturbance_becomes_a_confirmed_regime(tmp_path: Path, name: str, seed: int) -> None:
    found = verdict_on(tmp_path, seed, options=DISTURBANCES[name])
    assert found.grade is Grade.C or found.verdict is not Verdict.SPIKE
    assert all(r.grade is Grade.C for r in found.regimes if r.verdict is Verdict.SPIKE)


def test_a_machine_that_keeps_drifting_is_stopped_and_called_so(tmp_path: Path) -> None:
    run = measure(tmp_path, options=DISTURBANCES["drift"])
    found = analyze(run)
    assert [event.kind for event in run.events].count("veto") == 4
    assert run.events[-1].kind == "stop"
    assert run.events[-1].reason is Reason.DRIFT_VETO
    assert found.verdict is Verdict.INCONCLUSIVE
    assert Reason.DRIFT_VETO in found.reasons


def test_drift_without_sentinels_is_named_by_the_order_of_the_trials(tmp_path: Path) -> None:
    found = verdict_on(tmp_path, options={"drift_per_100_s": 0.2}, sentinel_every=0)
    assert found.verdict in {Verdict.DRIFT, Verdict.INCONCLUSIVE}
    assert found.noise is not None
    assert found.noise.drift is not None
    assert (found.noise.drift.low or 0) > 1.1


def test_a_single_burst_costs_one_block_and_the_verdict_is_clean(tmp_path: Path) -> None:
    run = measure(tmp_path, seed=3, options={"burst": {"share": 0.01, "factor": 5, "trials": 16}})
    found = analyze(run)
    vetoed = [event for event in run.events if event.kind == "veto"]
    assert len(vetoed) == 1
    assert found.verdict is Verdict.CLEAN
    assert found.noise is not None
    assert found.noise.vetoed == 1
    assert found.counts.trials - found.counts.dropped == 6 * len(BUDGETS)
    assert found.counts.dropped > 0


def test_a_process_lottery_is_bimodal_by_process(tmp_path: Path) -> None:
    found = verdict_on(tmp_path, options=DISTURBANCES["lottery"], processes=10)
    assert found.verdict is Verdict.BIMODAL
    assert Reason.BETWEEN_PROCESS_SPREAD in found.reasons
    assert found.noise is not None
    assert found.noise.between is not None
    assert found.noise.within is not None
    assert found.noise.between > 10 * found.noise.within


def test_an_idle_penalty_does_not_reach_the_measured_trials(tmp_path: Path) -> None:
    found = verdict_on(tmp_path, options=DISTURBANCES["idle"])
    assert found.verdict is Verdict.CLEAN


def test_the_observer_effect_is_measured_with_an_interval(tmp_path: Path) -> None:
    quiet = verdict_on(tmp_path / "a", observer=True)
    assert quiet.noise is not None
    assert quiet.noise.observer is not None
    assert 0.95 < (quiet.noise.observer.low or 0) <= (quiet.noise.observer.high or 0) < 1.05
    assert Reason.OBSERVER_EFFECT not in quiet.reasons
    costly = verdict_on(tmp_path / "b", observer=True, options={"stamp_s": 0.002})
    assert Reason.OBSERVER_EFFECT in costly.reasons
    assert costly.noise is not None
    assert costly.noise.observer is not None
    assert costly.noise.observer.value == pytest.approx(1.17, abs=0.05)


@pytest.mark.parametrize("seed", range(2))
def test_a_budget_driven_regime_is_told_from_a_position_driven_one(
    tmp_path: Path, seed: int
) -> None:
    band = {"onset": 400, "recovery": 560, "slowdown": 5.0}
    by_budget = verdict_on(tmp_path / "a", seed, options={"bands": [band]})
    (regime,) = by_budget.regimes
    assert by_budget.verdict is Verdict.SPIKE
    assert regime.follows == "budget"
    assert regime.prefix is not None
    assert not regime.prefix.consistent
    assert regime.prefix.ratio == pytest.approx(5, rel=0.1)
    assert regime.prefix.total_ratio == pytest.approx(5, rel=0.1)
    assert regime.prefix.n == (6, 6)

    zone = band | {"axis": "context", "recovery": 480}
    by_position = verdict_on(tmp_path / "b", seed, options={"bands": [zone]})
    assert not [r for r in by_position.regimes if r.follows == "budget"]
    (position,) = by_position.positions
    assert position.onset is not None
    assert position.recovery is not None
    assert position.onset[0] <= 400 <= position.onset[1] + 16
    assert position.recovery[0] <= 480 <= position.recovery[1] + 16


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_a_fixed_order_limits_the_verdict(tmp_path: Path, order: str) -> None:
    assert Reason.FIXED_ORDER in verdict_on(tmp_path, order=order, processes=2).reasons


def test_arms_are_judged_apart(tmp_path: Path) -> None:
    found = verdict_on(tmp_path, arms=("fresh", "warm"), processes=2)
    (fresh,) = found.apart
    assert found.run == "run"
    assert fresh.run == "run (fresh arm)"
    assert found.counts.trials == fresh.counts.trials == 2 * len(BUDGETS)


def test_a_token_limit_ends_the_run_with_what_is_done(tmp_path: Path) -> None:
    run = measure(tmp_path, max_tokens=30_000)
    assert run.events[-1].kind == "stop"
    assert 29_000 < sum(trial.output_tokens or 0 for trial in run.trials) <= 30_000
    assert Reason.LIMIT_REACHED in analyze(run).reasons


def test_a_time_limit_in_virtual_seconds_ends_the_run(tmp_path: Path) -> None:
    run = measure(tmp_path, max_seconds=300.0)
    assert run.events[-1].reason is Reason.LIMIT_REACHED
    spent_s = sum(trial.e2e_s or 0 for trial in run.trials)
    assert 300 <= spent_s < 300 + 12


def test_why_counters_are_not_read_during_trials_is_written_down_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A virtual machine has no counters; what is tested is that the reason reaches the folder.
    cost = {"sampling_off_cost_s": 0.002}
    whole = ProcessRun.measure
    monkeypatch.setattr(
        ProcessRun, "measure", lambda self, trial: replace(whole(self, trial), counters=cost)
    )
    run = measure(tmp_path, processes=2)
    (told,) = [event.message for event in run.events if event.kind == "sampling_off"]
    assert "takes 2.00 ms, more than 0.5 % of the steps" in told
