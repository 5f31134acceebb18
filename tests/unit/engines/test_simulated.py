"""The simulated engine obeys its law exactly when noise is off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from regimescope.engines.base import EngineRequest
from regimescope.engines.simulated import SimulatedEngine, VirtualClock
from regimescope.errors import EngineError, SpecError
from regimescope.measure.trial import generate, latency
from regimescope.records import Cell


def request(model: str = "smooth", process_run: int = 0, **options: Any) -> EngineRequest:
    return EngineRequest(
        model=model,
        device="virtual",
        dtype="float32",
        seed=3,
        process_run=process_run,
        options=options,
    )


def gaps(budget: int, kv_cache: str = "on", **options: Any) -> np.ndarray:
    session = SimulatedEngine().open(request(noise="none", **options))
    cell = Cell(budget=budget, prompt_tokens=10, kv_cache=kv_cache)  # type: ignore[arg-type]
    itl_s = latency(generate(session, range(10), cell)).itl_s
    assert itl_s is not None
    return np.array(itl_s)


def test_step_time_is_affine_in_context_length() -> None:
    found = gaps(5, base_s=0.01, slope_s=0.001)
    assert found == pytest.approx(0.01 + 0.001 * np.array([11, 12, 13, 14]), abs=2e-9)


def test_without_a_cache_step_time_grows_with_all_positions() -> None:
    found = gaps(4, "off", base_s=0.01, prefill_s=0.002)
    assert found == pytest.approx(0.01 + 0.002 * np.array([11, 12, 13]), abs=2e-9)


@pytest.mark.parametrize(("budget", "factor"), [(19, 1), (20, 4), (29, 4), (30, 1)])
def test_a_budget_band_slows_whole_generations_inside(budget: int, factor: float) -> None:
    band = {"onset": 20, "recovery": 30, "slowdown": 4}
    assert gaps(budget, slope_s=0, bands=[band]) == pytest.approx(0.01 * factor)


def test_a_context_band_slows_the_steps_inside_for_every_budget() -> None:
    band = {"onset": 15, "recovery": 17, "slowdown": 3, "axis": "context"}
    expected = [0.01] * 4 + [0.03] * 2 + [0.01] * 3
    assert gaps(10, slope_s=0, bands=[band]) == pytest.approx(expected)


def test_a_band_without_recovery_stays_slow() -> None:
    assert gaps(500, slope_s=0, bands=[{"onset": 20, "slowdown": 2}]) == pytest.approx(0.02)


def test_prevalence_makes_some_processes_slow_and_others_not() -> None:
    band = {"onset": 4, "recovery": 9, "slowdown": 10, "prevalence": 0.5}
    levels = []
    for process_run in range(60):
        session = SimulatedEngine().open(
            request(process_run=process_run, noise="none", bands=[band])
        )
        itl_s = latency(generate(session, [1], Cell(budget=5, kv_cache="on"))).itl_s
        levels.append(itl_s[0] > 0.05 if itl_s else None)
    assert 15 <= sum(bool(level) for level in levels) <= 45


def test_the_same_seed_and_process_give_the_same_times() -> None:
    def times(process_run: int) -> list[float] | None:
        session = SimulatedEngine().open(request(process_run=process_run))
        return latency(generate(session, [1], Cell(budget=9, kv_cache="on"))).itl_s

    assert times(0) == times(0)
    assert times(0) != times(1)


@pytest.mark.parametrize(
    "bad",
    [
        request("nobody"),
        request(colour=1),
        request(noise="loud"),
        request(bands=[{"recovery": 3}]),
        request(base_s="x"),
    ],
)
def test_unknown_models_and_options_are_refused_with_the_known_ones(bad: EngineRequest) -> None:
    with pytest.raises(SpecError) as caught:
        SimulatedEngine().inspect(bad)
    assert "Known" in caught.value.remedy


def test_a_failing_budget_raises_what_engines_raise() -> None:
    session = SimulatedEngine().open(request(fail_budgets=[7]))
    with pytest.raises(EngineError, match="budget 7"):
        generate(session, [1], Cell(budget=7))


def test_the_virtual_clock_moves_only_when_told() -> None:
    clock = VirtualClock()
    assert clock.now_ns() == clock.now_ns() == 0
    clock.sleep(1.5)
    assert clock.now_ns() == 1_500_000_000
