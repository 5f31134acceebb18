"""One process run: an open model, its warm-up, its pauses, its trials. Layer: ``measure``."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from regimescope import metrics
from regimescope.engines.base import Session
from regimescope.errors import EngineError, UserError
from regimescope.measure.messages import Open
from regimescope.measure.trial import Timing, generate, latency, prompt
from regimescope.records import PlannedTrial, Status, Trial
from regimescope.units import NS_PER_S, utc_now

# Metal unwires memory after about a second without work (method, 1.5 rule 4); a longer pause is
# bridged by decoding until clocks and memory are back.
IDLE_LIMIT_S = 1.0
BURST_TOKENS = 32
BURST_S = 0.5
# A message for people; longer ones are library output that nobody reads in a table.
MAX_MESSAGE_CHARACTERS = 500


class Outcome(NamedTuple):
    """What one generation came to."""

    timing: Timing
    status: Status
    message: str | None


class ProcessRun:
    """A loaded model that measures one trial after another in one process."""

    def __init__(self, opened: Open, session: Session) -> None:
        """Take over an open session."""
        self._opened = opened
        self._session = session
        self._vocabulary = session.facts().vocabulary
        self._last_end_ns: int | None = None
        self._order_index = 0

    def measure(self, planned: PlannedTrial) -> Trial:
        """Bridge a pause, time one generation, and go on warming up where that is its purpose.

        Returns:
            The trial, whatever its status: an engine that fails makes a failed trial.
        """
        counters = {} if planned.warmup else self._bridge_pause(planned)
        idle_before_s = self._idle_s()
        start_utc = utc_now()
        outcome = self._generate(planned)
        if planned.warmup and outcome.status == "ok":
            counters |= self._go_on_warming_up(planned, outcome.timing.start_ns)
        order_index, self._order_index = self._order_index, self._order_index + 1
        return replace(
            self._trial(planned, outcome),
            order_index=order_index,
            start_utc=start_utc,
            idle_before_s=idle_before_s,
            memory_bytes=self._session.counters() or None,
            counters=counters or None,
        )

    def close(self) -> None:
        """Release the model."""
        self._session.close()

    def _generate(self, planned: PlannedTrial) -> Outcome:
        """Run one generation and remember when it ended."""
        prompt_ids = prompt(
            self._opened.seed,
            planned.trial_id,
            planned.cell.prompt_tokens or 1,
            self._vocabulary,
        )
        start_ns = self._session.clock.now_ns()
        try:
            timing = generate(self._session, prompt_ids, planned.cell, stamped=planned.stamped)
            return Outcome(timing, "ok", None)
        except (EngineError, UserError, MemoryError, RuntimeError) as error:
            # RuntimeError is what array libraries raise, for want of memory among other things.
            return Outcome(Timing(start_ns, [], []), "failed", one_line(error))
        finally:
            self._last_end_ns = self._session.clock.now_ns()

    def _trial(self, planned: PlannedTrial, outcome: Outcome) -> Trial:
        """Return the record of one generation."""
        timing = outcome.timing
        times = latency(timing)
        output_tokens = sum(timing.chunk_tokens)
        chunked = any(tokens != 1 for tokens in timing.chunk_tokens)
        return Trial(
            trial_id=planned.trial_id,
            occasion=self._opened.occasion,
            series=self._opened.series,
            cell=planned.cell,
            status=outcome.status,
            message=outcome.message,
            warmup=planned.warmup,
            sentinel=planned.sentinel,
            phase="decode",
            process_run=self._opened.process_run,
            block=planned.block,
            repeat=planned.repeat,
            start_ns=timing.start_ns,
            cached_tokens=0,
            output_tokens=output_tokens,
            decode_steps=metrics.decode_steps(output_tokens),
            ttft_s=times.ttft_s,
            decode_s=times.decode_s,
            e2e_s=times.e2e_s,
            itl_s=times.itl_s if planned.stamped else None,
            chunk_tokens=timing.chunk_tokens if chunked and planned.stamped else None,
            synced=planned.stamped,
        )

    def _idle_s(self) -> float | None:
        """Return the time since the last generation of this process ended, if there was one."""
        if self._last_end_ns is None:
            return None
        return self._since_s(self._last_end_ns)

    def _since_s(self, stamp_ns: int) -> float:
        """Return the seconds since a time stamp."""
        return (self._session.clock.now_ns() - stamp_ns) / NS_PER_S

    def _bridge_pause(self, planned: PlannedTrial) -> dict[str, float]:
        """Decode untimed after a long pause, and say how long both were."""
        idle_s = self._idle_s()
        if idle_s is None or idle_s <= IDLE_LIMIT_S:
            return {}
        burst = replace(planned, cell=replace(planned.cell, budget=BURST_TOKENS))
        start_ns = self._session.clock.now_ns()
        self._generate(burst)
        self._repeat_until(burst, start_ns, BURST_S)
        return {"idle_s": idle_s, "burst_s": self._since_s(start_ns)}

    def _go_on_warming_up(self, planned: PlannedTrial, start_ns: int) -> dict[str, float]:
        """Generate untimed until the warm-up has lasted as long as asked, and say how often."""
        again = self._repeat_until(planned, start_ns, self._opened.warm_up_s)
        return {"warm_up_generations": 1.0 + again, "warm_up_s": self._since_s(start_ns)}

    def _repeat_until(self, planned: PlannedTrial, start_ns: int, least_s: float) -> int:
        """Generate untimed until ``least_s`` seconds have passed; stop early at a failure."""
        generations = 0
        while self._since_s(start_ns) < least_s and self._generate(planned).status == "ok":
            generations += 1
        return generations


def one_line(error: BaseException) -> str:
    """Return an error as one short line: its type, and the first line of what it says."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return f"{name}: {text}"[:MAX_MESSAGE_CHARACTERS] if text else name
