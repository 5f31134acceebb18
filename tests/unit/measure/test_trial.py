"""One generation: what is stamped, and that nothing disturbs it."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence

import pytest

from regimescope.engines.base import Step
from regimescope.engines.simulated import VirtualClock
from regimescope.measure.trial import Timing, generate, latency, prompt
from regimescope.records import Cell, ModelFacts


class ScriptedSession:
    """Yields after the given pauses, on a virtual clock."""

    def __init__(self, pauses_s: Sequence[float], chunk: int = 1) -> None:
        self.clock = VirtualClock()
        self.pauses_s = pauses_s
        self.chunk = chunk
        self.collecting: list[bool] = []

    def facts(self) -> ModelFacts:
        return ModelFacts(device="virtual", dtype="float32", weights="none", vocabulary=10)

    def generate(self, prompt_ids: Sequence[int], cell: Cell) -> Iterator[Step]:
        for pause_s in self.pauses_s:
            self.collecting.append(gc.isenabled())
            self.clock.sleep(pause_s)
            yield Step(self.chunk)

    def counters(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        return None


def test_every_step_is_stamped_when_it_is_delivered() -> None:
    timing = generate(ScriptedSession([0.5, 0.25, 1.0]), [1], Cell(budget=3))
    assert [stamp - timing.start_ns for stamp in timing.stamps_ns] == [
        500_000_000,
        750_000_000,
        1_750_000_000,
    ]
    times = latency(timing)
    assert times == (0.5, 1.25, 1.75, [0.25, 1.0])


def test_a_single_token_has_no_decode_phase() -> None:
    times = latency(generate(ScriptedSession([0.5]), [1], Cell(budget=1)))
    assert times == (0.5, None, 0.5, [])


def test_no_token_has_no_latency() -> None:
    assert latency(Timing(0, [], [])) == (None, None, None, None)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_off_while_timing_and_as_before_afterwards(enabled: bool) -> None:
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        session = ScriptedSession([0.1, 0.1])
        generate(session, [1], Cell(budget=2))
        assert session.collecting == [False, False]
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()


def test_the_garbage_collector_comes_back_after_a_failure() -> None:
    class Failing(ScriptedSession):
        def generate(self, prompt_ids: Sequence[int], cell: Cell) -> Iterator[Step]:
            yield Step()
            raise RuntimeError("no")

    assert gc.isenabled()
    with pytest.raises(RuntimeError, match="no"):
        generate(Failing([]), [1], Cell(budget=2))
    assert gc.isenabled()


def test_prompts_are_reproducible_within_the_vocabulary_and_differ_between_trials() -> None:
    first = prompt(1, "p000.b000.000016", 500, 50)
    assert first == prompt(1, "p000.b000.000016", 500, 50)
    assert first != prompt(1, "p000.b000.000032", 500, 50)
    assert first != prompt(2, "p000.b000.000016", 500, 50)
    assert len(first) == 500
    assert min(first) >= 0
    assert max(first) < 50
