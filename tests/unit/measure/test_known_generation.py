"""What a session tells of a generation decides whether its latency stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from regimescope.engines.base import EngineRequest, Generation, Step
from regimescope.engines.simulated import SimulatedEngine, SimulatedSession
from regimescope.errors import EngineError
from regimescope.measure.messages import Open
from regimescope.measure.process_run import ProcessRun
from regimescope.reasons import Reason
from regimescope.records import Cell, PlannedTrial, Series, Trial

REQUEST = EngineRequest(
    model="smooth", device="virtual", dtype="float32", seed=0, options={"noise": "none"}
)
OPENED = Open(
    engine="simulated",
    request=REQUEST,
    occasion="o",
    process_run=0,
    series=Series(engine="simulated"),
    seed=0,
    warm_up_s=0.0,
)


class Telling:
    """A simulated session that tells something of each generation."""

    def __init__(self, known: Generation, chunks: Sequence[int] = ()) -> None:
        self._inner: SimulatedSession = SimulatedEngine().open(REQUEST)
        self._known, self._chunks = known, chunks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def last_generation(self) -> Generation:
        return self._known

    def generate(self, prompt_ids: Sequence[int], cell: Cell) -> Iterator[Step]:
        steps = self._inner.generate(prompt_ids, cell)
        for tokens in self._chunks or [1] * (cell.budget or 0):
            for _ in range(tokens):
                next(steps)
            yield Step(tokens)


def measure(session: Any) -> Trial:
    cell = Cell(budget=6, prompt_tokens=5, kv_cache="on", batch=1)
    return ProcessRun(OPENED, session).measure(
        PlannedTrial(trial_id="t", cell=cell, block=0, repeat=0)
    )


def test_readings_and_reasons_are_stored_with_the_trial() -> None:
    known = Generation(0, {"server_decode_s": 0.5}, (Reason.CLIENT_SIDE_TIMES,))
    trial = measure(Telling(known))
    assert (trial.status, trial.cached_tokens) == ("ok", 0)
    assert trial.counters == {"server_decode_s": 0.5}
    assert trial.reasons == [Reason.CLIENT_SIDE_TIMES]


def test_a_session_that_tells_nothing_caches_nothing() -> None:
    trial = measure(SimulatedEngine().open(REQUEST))
    assert (trial.cached_tokens, trial.reasons) == (0, None)


def test_a_cached_prompt_voids_the_trial() -> None:
    trial = measure(Telling(Generation(cached_tokens=2)))
    assert (trial.status, trial.cached_tokens) == ("failed", 2)
    assert (trial.ttft_s, trial.decode_s, trial.itl_s) == (None, None, None)
    assert trial.reasons == [Reason.CACHED_PROMPT]


def test_an_unknown_cache_is_absent_and_marked() -> None:
    trial = measure(Telling(Generation(cached_tokens=None)))
    assert (trial.status, trial.cached_tokens) == ("ok", None)
    assert trial.reasons == [Reason.CACHED_PROMPT_UNKNOWN]


def test_chunks_keep_the_total_and_leave_no_gaps() -> None:
    whole = measure(Telling(Generation()))
    trial = measure(Telling(Generation(), chunks=[1, 3, 2]))
    assert trial.decode_s == pytest.approx(whole.decode_s)
    assert (trial.chunk_tokens, trial.output_tokens) == ([1, 3, 2], 6)
    assert trial.itl_s is None
    assert trial.reasons == [Reason.CHUNKED_STREAM]


def test_a_failure_keeps_its_reason() -> None:
    class Failing(Telling):
        def generate(self, prompt_ids: Sequence[int], cell: Cell) -> Iterator[Step]:
            yield Step()
            raise EngineError("stopped", reason=Reason.TOKEN_COUNT_MISMATCH)

    trial = measure(Failing(Generation(cached_tokens=0)))
    assert (trial.status, trial.reasons) == ("failed", [Reason.TOKEN_COUNT_MISMATCH])
    assert trial.cached_tokens is None
