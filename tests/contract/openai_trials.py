"""One trial through the HTTP engine, as a process run measures it."""

from __future__ import annotations

from typing import Any

from tests.contract.openai_server import (
    Server,
)

from regimescope.engines.base import Clock, EngineRequest
from regimescope.engines.openai_http import OpenAIEngine, OpenAISession
from regimescope.measure.messages import Open
from regimescope.measure.process_run import ProcessRun
from regimescope.records import Cell, PlannedTrial, Series, Trial

KEY = "sk-secret-0123456789"
BUDGET = 6


class Ticking:
    """A clock that moves by the same step at every look, so that tokens arrive evenly."""

    def __init__(self, step_ns: int = 1_000_000) -> None:
        self.step_ns = step_ns
        self._now_ns = 0

    def now_ns(self) -> int:
        self._now_ns += self.step_ns
        return self._now_ns

    def sleep(self, duration_s: float) -> None:
        self._now_ns += round(duration_s * 1e9)


def open_session(wanted: EngineRequest, clock: Clock | None = None) -> OpenAISession:
    return OpenAIEngine(clock or Ticking()).open(wanted)


def request(server: Server | str, model: str = "server", **options: Any) -> EngineRequest:
    url = server if isinstance(server, str) else server.url
    return EngineRequest(
        model=model, device="auto", dtype="float32", seed=3, options={"url": url, **options}
    )


def measure(session: OpenAISession, *, budget: int = BUDGET, name: str = "t") -> Trial:
    opened = Open(
        engine="openai",
        request=request("http://127.0.0.1:9/v1"),
        occasion="o",
        process_run=0,
        series=Series(engine="openai"),
        seed=0,
        warm_up_s=0.0,
    )
    cell = Cell(budget=budget, prompt_tokens=9, kv_cache="on", batch=1)
    planned = PlannedTrial(trial_id=name, cell=cell, block=0, repeat=0)
    return ProcessRun(opened, session).measure(planned)


def has_no_latency(trial: Trial) -> bool:
    times = (trial.ttft_s, trial.decode_s, trial.e2e_s, trial.itl_s)
    return trial.status == "failed" and not trial.output_tokens and times == (None,) * 4
