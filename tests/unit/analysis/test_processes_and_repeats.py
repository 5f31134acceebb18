"""Processes against each other, repeats against each other, parts against the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from regimescope.analysis.lottery import compare_processes, points_are_processes
from regimescope.analysis.regimes import conclude
from regimescope.analysis.repeats import rises_within_value
from regimescope.analysis.replication import Part, replicated_grade
from regimescope.analysis.sweep import select, to_sweep
from regimescope.reasons import Reason
from regimescope.records import Cell, Run, RunHeader, Series, Trial
from regimescope.results import Conclusion, Grade, Regime, Verdict

HEADER = RunHeader(
    schema_version=1, run="r", created_utc="2026-01-01T00:00:00+00:00", source="case"
)


def trial(x: int, seconds: float, process: int | None, **values: Any) -> Trial:
    defaults: dict[str, Any] = {
        "trial_id": f"{process}-{x}-{values.get('order_index')}",
        "occasion": "o",
        "series": Series(engine="e"),
        "cell": Cell(budget=x),
        "status": "ok",
        "warmup": False,
        "phase": "decode",
        "process_run": process,
        "output_tokens": x,
        "decode_s": seconds,
    }
    return Trial(**(defaults | values))


def run_of(trials: Sequence[Trial], axis: Any = "budget") -> Run:
    return Run(header=replace(HEADER, axis=axis), trials=tuple(trials))


def starts(levels: Sequence[float], *, ordered: bool = True) -> Run:
    """One process after the other, one number each."""
    trials = [
        trial(0, s, k, cell=Cell(), env={"x": k + 1}, order_index=0 if ordered else None)
        for k, s in enumerate(levels)
    ]
    return run_of(trials, "time")


def lottery_of(levels: Sequence[float], *, ordered: bool = True) -> Conclusion:
    return conclude(starts(levels, ordered=ordered))


def test_two_levels_of_processes_are_both_reported() -> None:
    found = lottery_of([1.0, 1.3, 1.31, 1.0, 1.29, 1.3, 1.01])
    assert found.verdict is Verdict.BIMODAL
    assert found.modes is not None
    assert found.modes.ratio == pytest.approx(1.3, abs=0.02)
    assert found.modes.slow_share.value == pytest.approx(4 / 7)
    assert found.regimes == ()


@pytest.mark.parametrize(
    ("levels", "verdict", "reason"),
    [
        ([1.0, 1.02, 0.99, 1.01, 1.0, 1.1], Verdict.CLEAN, None),
        # A single slow start is an accident, and so are several that scatter.
        ([1.0, 1.02, 0.99, 1.01, 1.0, 2.0], Verdict.INCONCLUSIVE, Reason.BETWEEN_PROCESS_SPREAD),
        ([1.0, 1.0, 1.0, 1.0, 1.5, 2.4], Verdict.INCONCLUSIVE, Reason.ORDER_CONFOUNDED),
        ([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7], Verdict.DRIFT, Reason.BETWEEN_PROCESS_SPREAD),
        ([1.0, 1.0, 1.0], Verdict.INCONCLUSIVE, Reason.TOO_FEW_PROCESSES),
        ([1.0] * 6, Verdict.CLEAN, None),
    ],
)
def test_other_levels_of_processes(
    levels: list[float], verdict: Verdict, reason: Reason | None
) -> None:
    found = lottery_of(levels)
    assert found.verdict is verdict
    assert reason is None or reason in found.reasons


def test_processes_of_unknown_order_have_no_trend() -> None:
    found = lottery_of([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7], ordered=False)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert Reason.MISSING_ORDER in found.reasons
    assert Reason.ORDER_CONFOUNDED not in found.reasons


def test_accidents_are_rarely_taken_for_a_level() -> None:
    random = np.random.default_rng(7)
    found = 0
    for _ in range(400):
        log_s = 0.02 * random.standard_normal(12)
        hit = random.random(12) < 0.08
        log_s += hit * np.log(random.uniform(1.2, 2.5, 12))
        run = starts(np.exp(log_s).tolist())
        selection = select(run)
        sweep = to_sweep(selection, "time")
        assert points_are_processes(sweep, selection.trials, "time")
        verdict = compare_processes(sweep, selection.trials, r_min=1.25).verdict
        found += verdict is Verdict.BIMODAL
    # 1 in 1000 by simulation; 5 of 400 has a chance of 1 in 10,000.
    assert found < 5


def sweep_of(
    factor: Any = lambda x, p, k: 1.0, *, processes: int = 3, repeats: int = 1, **values: Any
) -> list[Trial]:
    random = np.random.default_rng(3)
    return [
        trial(
            x,
            0.01 * x * factor(x, p, k) * float(np.exp(0.01 * random.standard_normal())),
            p,
            order_index=order * repeats + k,
            block=p,
            **values,
        )
        for p in range(processes)
        for order, x in enumerate(range(32, 513, 32))
        for k in range(repeats)
    ]


def inside(x: int) -> bool:
    return 192 <= x < 320


def test_a_class_found_alike_in_every_process_is_grade_b() -> None:
    found = conclude(run_of(sweep_of(lambda x, p, k: 5.0 if inside(x) else 1.0)))
    assert (found.verdict, found.grade) == (Verdict.SPIKE, Grade.B)
    assert [r.grade for r in found.regimes] == [Grade.B]


@pytest.mark.parametrize(
    "spoil",
    [
        {"output_tokens": None},
        {"reasons": [Reason.SUMMARY_STATISTICS_ONLY]},
        {"reasons": [Reason.TAIL_STATISTIC]},
        {"process_run": None, "block": None},
    ],
)
def test_what_is_not_known_keeps_replication_at_grade_c(spoil: dict[str, Any]) -> None:
    trials = [
        replace(t, trial_id=str(k), **spoil)
        for k, t in enumerate(sweep_of(lambda x, p, k: 5.0 if inside(x) else 1.0))
    ]
    found = conclude(run_of(trials))
    assert (found.verdict, found.grade) == (Verdict.SPIKE, Grade.C)


def test_one_process_is_grade_c() -> None:
    found = conclude(run_of(sweep_of(processes=1, repeats=3)))
    assert (found.verdict, found.grade) == (Verdict.CLEAN, Grade.C)


def test_parts_agree_only_on_intervals_that_meet() -> None:
    def spike(low: int, high: int) -> Part:
        regime = Regime(
            verdict=Verdict.SPIKE, grade=Grade.C, onset=(low - 1, low), recovery=(high - 1, high)
        )
        return Part(Verdict.SPIKE, (regime,))

    whole = spike(10, 20)
    assert replicated_grade(whole, [spike(10, 20), spike(15, 25)], ()) is Grade.B
    assert replicated_grade(whole, [spike(10, 20), spike(20, 25)], ()) is Grade.C
    assert replicated_grade(whole, [spike(10, 20), Part(Verdict.CLEAN, ())], ()) is Grade.C
    assert replicated_grade(whole, [spike(10, 20)], ()) is Grade.C
    unclear = Part(Verdict.INCONCLUSIVE, ())
    assert replicated_grade(unclear, [unclear, unclear], ()) is Grade.C


def test_a_value_that_its_own_process_saw_at_normal_speed_is_no_spike() -> None:
    # Of five repeats in one process three are slow: the median is, the budget is not.
    found = conclude(
        run_of(sweep_of(lambda x, p, k: 4.0 if inside(x) and k < 3 else 1.0, repeats=5))
    )
    assert found.verdict is Verdict.INCONCLUSIVE
    assert Reason.NOISY in found.reasons


def test_a_process_that_is_slow_throughout_keeps_its_spike() -> None:
    found = conclude(
        run_of(sweep_of(lambda x, p, k: 4.0 if inside(x) and p < 2 else 1.0, repeats=3))
    )
    assert found.verdict is Verdict.SPIKE


def test_repeats_that_rise_in_order_are_said() -> None:
    steady = sweep_of(repeats=3, processes=1)
    rising = sweep_of(lambda x, p, k: 1 + 0.5 * k * (x == 512), repeats=3, processes=1)
    for trials, expected in ((steady, False), (rising, True)):
        selection = select(run_of(trials))
        sweep = to_sweep(selection)
        assert rises_within_value(sweep, selection.trials, r_min=1.25) is expected
    assert Reason.GROWTH_WITHIN_POINT in conclude(run_of(rising)).reasons


FIXED = {"reasons": [Reason.FIXED_ORDER]}


def heating(x: int, p: int, k: int) -> float:
    return 1 + 0.4 * max(0, x - 200) / 312 if p == 4 else 1.0


def test_one_process_that_leaves_the_others_along_its_time_is_drift() -> None:
    assert conclude(run_of(sweep_of(heating, processes=5, **FIXED))).verdict is Verdict.DRIFT
    assert conclude(run_of(sweep_of(processes=5, **FIXED))).verdict is Verdict.CLEAN


def test_what_every_process_shows_at_its_place_is_not_drift() -> None:
    found = conclude(
        run_of(sweep_of(lambda x, p, k: 2.0 if x > 300 else 1.0, processes=5, **FIXED))
    )
    assert found.verdict is Verdict.STEP


def test_first_repeats_stand_in_for_warm_ups() -> None:
    found = conclude(run_of(sweep_of(lambda x, p, k: 1.5 if k == 0 else 1.0, repeats=4)))
    assert Reason.WARM_UP_SUSPECTED in found.reasons
    assert found.verdict is Verdict.CLEAN


def test_occasions_at_different_levels_are_one_curve() -> None:
    trials = []
    for k, (p, x) in enumerate((o, x) for o in range(2) for x in range(32, 513, 32)):
        seconds = 0.01 * x * (1.3 if p else 1.0)
        trials += [
            trial(x, seconds * (1 + 0.01 * r), k, occasion=f"o{p}", order_index=r, block=p)
            for r in range(3)
        ]
    found = conclude(run_of(trials))
    assert found.verdict is Verdict.CLEAN
    assert found.grade is Grade.B
    assert Reason.OCCASION_SHIFT in found.reasons
    assert Reason.BETWEEN_PROCESS_SPREAD not in found.reasons


@pytest.mark.parametrize(
    ("axis", "field", "curve", "verdict"),
    [
        ("context", "depth", lambda x: 1 + x / 100, Verdict.CLEAN),
        ("batch", "batch", lambda x: 1 + x / 100, Verdict.CLEAN),
        ("capacity", "capacity", lambda x: 1.0, Verdict.CLEAN),
        ("capacity", "capacity", lambda x: 1 + x / 100, Verdict.RAMP),
        ("prompt", "prompt_tokens", lambda x: x + x**2 / 500, Verdict.CLEAN),
    ],
)
def test_each_axis_has_its_own_expected_curve(
    axis: str, field: str, curve: Any, verdict: Verdict
) -> None:
    trials = [
        trial(
            x,
            0.01 * curve(x),
            0,
            cell=Cell(**{field: x}),  # type: ignore[arg-type]
            output_tokens=None,
        )
        for x in range(16, 257, 16)
    ]
    found = conclude(run_of(trials, axis))
    assert found.verdict is verdict
    assert found.axis == axis


def lottery_at(stretch: range, slow_processes: set[int], processes: int = 12) -> Run:
    """Two visits of every budget in each process; some processes are slow in the stretch."""
    random = np.random.default_rng(5)
    trials = []
    for process in range(processes):
        for order, x in enumerate(2 * list(range(32, 545, 32))):
            slow = 3.0 if x in stretch and process in slow_processes else 1.0
            seconds = 0.01 * x * slow * float(np.exp(0.02 * random.standard_normal()))
            trials.append(trial(x, seconds, process, order_index=order, repeat=order // 17))
    return run_of(trials)


@pytest.mark.parametrize("slow", [{0, 3, 7}, {0, 1, 2, 5, 6, 8, 10, 11}])
def test_a_stretch_that_is_slow_in_some_processes_is_bimodal_and_has_both_levels(
    slow: set[int],
) -> None:
    found = conclude(lottery_at(range(192, 320), slow))
    (regime,) = found.regimes
    assert (found.verdict, regime.verdict) == (Verdict.BIMODAL, Verdict.BIMODAL)
    assert regime.grade is Grade.C
    assert (regime.onset, regime.recovery) == ((160, 192), (288, 320))
    assert regime.slowdown is not None
    assert regime.slowdown.value == pytest.approx(3.0, rel=0.05)
    assert regime.share is not None
    assert regime.share.value == pytest.approx(len(slow) / 12)


def test_what_is_slow_in_every_process_is_no_lottery() -> None:
    found = conclude(lottery_at(range(192, 320), set(range(12))))
    assert found.verdict is Verdict.SPIKE
    assert [regime.verdict for regime in found.regimes] == [Verdict.SPIKE]


def test_one_slow_process_is_an_accident_and_no_lottery() -> None:
    found = conclude(lottery_at(range(192, 320), {4}))
    assert Verdict.BIMODAL not in {regime.verdict for regime in found.regimes}


def test_a_lottery_of_whole_processes_is_not_localized() -> None:
    found = conclude(lottery_at(range(0, 1000), {0, 3, 7}))
    assert not [regime for regime in found.regimes if regime.verdict is Verdict.BIMODAL]
