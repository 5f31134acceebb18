"""From trials to a verdict: what counts, what is refused, what degenerate input gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from regimescope.analysis.position import periodic_steps, position_levels
from regimescope.analysis.regimes import conclude
from regimescope.errors import InputError
from regimescope.reasons import Reason
from regimescope.records import Cell, Run, RunHeader, Series, Trial
from regimescope.results import Verdict

HEADER = RunHeader(schema_version=1, run="r", created_utc="2026-01-01T00:00:00+00:00")
SERIES = Series(engine="simulated", mode="independent", arm="warm")


def trial(budget: int, decode_s: float | None, process: int = 0, **values: Any) -> Trial:
    defaults: dict[str, Any] = {
        "trial_id": f"{process}-{budget}",
        "occasion": "o",
        "series": SERIES,
        "cell": Cell(budget=budget, prompt_tokens=8, kv_cache="on"),
        "status": "ok",
        "warmup": False,
        "phase": "decode",
        "process_run": process,
        "block": process,
        "order_index": 0,
        "output_tokens": budget,
        "ttft_s": 0.5,
        "decode_s": decode_s,
        "e2e_s": None if decode_s is None else decode_s + 0.5,
    }
    return Trial(**(defaults | values))


def run_of(trials: Sequence[Trial]) -> Run:
    return Run(header=HEADER, trials=tuple(trials))


def sweep(factor: Any = lambda budget: 1.0, processes: int = 3, seed: int = 0) -> list[Trial]:
    random = np.random.default_rng(seed)
    return [
        trial(b, 0.01 * (b - 1) * factor(b) * float(np.exp(0.02 * random.standard_normal())), p)
        for p in range(processes)
        for b in range(32, 513, 32)
    ]


def slow_inside(budget: int) -> float:
    return 5.0 if 192 <= budget < 320 else 1.0


def test_a_clean_sweep_is_clean() -> None:
    found = conclude(run_of(sweep()))
    assert found.verdict is Verdict.CLEAN
    assert found.regimes == ()
    assert found.certificate is None
    assert found.counts.trials == 48


def test_a_slow_interval_is_found_with_edges_and_slowdown() -> None:
    found = conclude(run_of(sweep(slow_inside)))
    (regime,) = found.regimes
    assert found.verdict is regime.verdict is Verdict.SPIKE
    assert (regime.onset, regime.recovery) == ((160, 192), (288, 320))
    assert regime.slowdown is not None
    assert regime.slowdown.low is not None
    assert regime.slowdown.low < 5 < (regime.slowdown.high or 0)
    assert found.certificate is not None
    assert 4 < found.certificate.value < 5


def test_a_lasting_jump_is_a_step_without_recovery() -> None:
    found = conclude(run_of(sweep(lambda budget: 2.0 if budget >= 320 else 1.0)))
    assert found.verdict is Verdict.STEP
    (regime,) = found.regimes
    assert regime.onset == (288, 320)
    assert regime.recovery is None
    assert Reason.RIGHT_CENSORED in found.reasons


def test_a_slow_process_is_removed_with_its_block_and_is_no_regime() -> None:
    trials = [
        replace(t, decode_s=(t.decode_s or 0) * (4 if t.process_run == 1 else 1)) for t in sweep()
    ]
    found = conclude(run_of(trials))
    assert found.verdict is Verdict.CLEAN


def test_the_order_of_rows_changes_nothing() -> None:
    trials = sweep(slow_inside)
    shuffled = [trials[k] for k in np.random.default_rng(4).permutation(len(trials))]
    assert conclude(run_of(trials)) == conclude(run_of(shuffled))


def test_scaling_all_seconds_scales_only_seconds() -> None:
    trials = sweep(slow_inside)
    scaled = [
        replace(t, decode_s=(t.decode_s or 0) * 1000, e2e_s=(t.e2e_s or 0) * 1000) for t in trials
    ]
    one, thousand = conclude(run_of(trials)), conclude(run_of(scaled))
    assert one.verdict is thousand.verdict
    assert [r.onset for r in one.regimes] == [r.onset for r in thousand.regimes]
    assert one.regimes[0].slowdown is not None
    assert thousand.regimes[0].slowdown is not None
    assert one.regimes[0].slowdown.value == pytest.approx(thousand.regimes[0].slowdown.value)


def test_warm_ups_and_failures_are_kept_out_of_the_curve_and_counted() -> None:
    extra = [
        trial(512, 900.0, warmup=True, trial_id="w"),
        trial(64, None, status="failed", trial_id="f"),
        trial(96, 50.0, output_tokens=40, trial_id="short"),
    ]
    found = conclude(run_of([*sweep(), *extra]))
    assert found.verdict is Verdict.CLEAN
    assert (found.counts.trials, found.counts.failed, found.counts.dropped) == (50, 1, 1)
    assert Reason.TOKEN_COUNT_MISMATCH in found.reasons
    assert Reason.BACKEND_FAILURES not in found.reasons


def test_a_run_in_which_everything_failed_is_inconclusive_and_says_why() -> None:
    found = conclude(run_of([trial(32, None, status="failed")]))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.reasons == (Reason.BACKEND_FAILURES,)
    assert (found.counts.trials, found.counts.failed) == (1, 1)


def test_a_budget_that_mostly_fails_is_said() -> None:
    failures = [trial(64, None, p, status="failed", trial_id=f"f{p}") for p in range(3)]
    found = conclude(run_of([*sweep(), *failures]))
    assert Reason.BACKEND_FAILURES in found.reasons


@pytest.mark.parametrize(
    ("trials", "reason"),
    [
        ([], Reason.EMPTY),
        ([trial(32, 1.0)], Reason.TOO_FEW_BUDGETS),
        ([trial(32, 1.0), trial(32, 1.0)], Reason.DUPLICATE_TRIAL_ID),
        ([trial(32, 1.0), trial(64, -1.0)], Reason.INVALID_LATENCY),
        ([trial(32, 1.0), trial(64, 0.0)], Reason.INVALID_LATENCY),
        (
            [trial(32, 1.0), trial(64, 1.0, series=replace(SERIES, dtype="float16"))],
            Reason.MIXED_SERIES,
        ),
        (
            [trial(32, 1.0), trial(64, 1.0, cell=Cell(budget=64, prompt_tokens=9))],
            Reason.MIXED_SERIES,
        ),
    ],
)
def test_what_cannot_be_a_measurement_is_refused(trials: list[Trial], reason: Reason) -> None:
    with pytest.raises(InputError) as caught:
        conclude(run_of(trials))
    assert caught.value.reason is reason
    assert caught.value.remedy


def test_mixed_series_name_what_differs() -> None:
    other = trial(64, 1.0, series=replace(SERIES, dtype="float16", device="mps"))
    with pytest.raises(InputError, match=r"dtype \(float16, unknown\); in device \(mps, unknown\)"):
        conclude(run_of([trial(32, 1.0), other]))


@pytest.mark.parametrize(
    ("latencies", "verdict", "reason"),
    [
        ([1, 2], Verdict.INCONCLUSIVE, Reason.TOO_FEW_BUDGETS),
        ([1, 2, 3], Verdict.CLEAN, Reason.TOO_FEW_BUDGETS),
        ([1, 20, 3, 4], Verdict.INCONCLUSIVE, Reason.TOO_FEW_BUDGETS),
        ([5] * 8, Verdict.CLEAN, Reason.FLAT_CURVE),
        ([9, 8, 7, 6, 5, 4, 3, 2], Verdict.INCONCLUSIVE, Reason.NOT_INCREASING),
        ([1, 2, 3, 4, 5, 6, 7, 8], Verdict.CLEAN, Reason.NO_REPLICATION),
    ],
)
def test_degenerate_sweeps_get_a_result_with_a_reason(
    latencies: list[float], verdict: Verdict, reason: Reason
) -> None:
    trials = [trial(32 * (k + 1), float(s)) for k, s in enumerate(latencies)]
    found = conclude(run_of(trials))
    assert found.verdict is verdict
    assert reason in found.reasons


def test_scatter_that_would_hide_a_regime_is_not_called_clean() -> None:
    random = np.random.default_rng(2)
    trials = [
        trial(b, 0.01 * (b - 1) * float(np.exp(0.5 * random.standard_normal())), p)
        for p in range(3)
        for b in range(32, 513, 32)
    ]
    found = conclude(run_of(trials))
    assert found.verdict is Verdict.INCONCLUSIVE


def nested(gaps: Sequence[float], process: int = 0) -> Trial:
    budget = len(gaps) + 1
    return trial(
        budget,
        float(sum(gaps)),
        process,
        series=replace(SERIES, mode="nested"),
        itl_s=list(gaps),
        cell=Cell(budget=budget, prompt_tokens=10, kv_cache="on"),
    )


def test_positions_are_context_lengths() -> None:
    levels = position_levels([nested([0.25] * 40), nested([0.25] * 32, 1)])
    assert levels.values.tolist() == [19, 27, 35, 43]
    assert levels.summary.repeats.tolist() == [2, 2, 2, 1]
    assert levels.range_s == pytest.approx(0.25)


def test_a_slow_zone_of_context_lengths_is_found_in_nested_runs() -> None:
    random = np.random.default_rng(1)
    trials = []
    for process in range(3):
        gaps = 0.01 * np.exp(0.03 * random.standard_normal(400))
        gaps[160:240] *= 4
        trials.append(nested(gaps.tolist(), process))
    found = conclude(run_of(trials))
    assert found.axis == "context"
    (regime,) = found.regimes
    assert regime.onset == (163, 171)
    assert regime.recovery == (243, 251)


@pytest.mark.parametrize(
    ("gaps", "reason"), [([0.1] * 31, Reason.SHORT_TRACE), ([], Reason.NO_TRACES)]
)
def test_nested_runs_without_long_traces_are_refused(gaps: list[float], reason: Reason) -> None:
    with pytest.raises(InputError) as caught:
        conclude(run_of([nested(gaps), nested(gaps, 1)]))
    assert caught.value.reason is reason


@pytest.mark.parametrize("period", [16, 128])
def test_single_steps_that_recur_are_a_sawtooth_of_their_period(period: int) -> None:
    random = np.random.default_rng(3)
    trials = []
    for process in range(5):
        context = 9 + np.arange(1023)
        noise = np.exp(0.03 * random.standard_normal(context.size))
        gaps = 0.01 * noise * np.where(context % period == 0, 1.5, 1.0)
        nested = replace(SERIES, mode="nested")
        values = {"series": nested, "itl_s": gaps.tolist(), "decode_s": float(gaps.sum())}
        trials.append(trial(1024, process=process, **({"decode_s": None} | values)))
    (found,) = periodic_steps(trials)
    assert (found.verdict, found.period) == (Verdict.SAWTOOTH, period)
    assert found.slowdown is not None
    assert found.slowdown.value == pytest.approx(1.5, rel=0.05)
    conclusion = conclude(run_of(trials))
    assert conclusion.verdict is Verdict.SAWTOOTH
    assert [regime.period for regime in conclusion.regimes] == [period]


def test_steps_without_a_period_are_no_sawtooth() -> None:
    random = np.random.default_rng(4)
    for _ in range(20):
        gaps = 0.01 * np.exp(0.1 * random.standard_t(4, size=700))
        assert periodic_steps([trial(701, float(gaps.sum()), itl_s=gaps.tolist())]) == ()
    assert periodic_steps([trial(20, 0.2, itl_s=[0.01] * 19)]) == ()
