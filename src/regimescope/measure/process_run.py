"""One process run: an open model, its warm-up, its pauses, its trials. Layer: ``measure``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from regimescope import metrics
from regimescope.engines.base import Fills, Generation, Session, TellsGeneration
from regimescope.errors import EngineError, UserError
from regimescope.measure.early_abort import SlowWatch
from regimescope.measure.messages import Open
from regimescope.measure.sampling import Readings, Sampler, TrialCounters, memory_of
from regimescope.measure.trial import Timing, generate, latency, prompt
from regimescope.reasons import Reason
from regimescope.records import Cell, PlannedTrial, Status, Trial
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
    projected_s: float | None = None
    known: Generation = Generation()


class ProcessRun:
    """A loaded model that measures one trial after another in one process."""

    def __init__(
        self, opened: Open, session: Session, counters: TrialCounters | None = None
    ) -> None:
        """Take over an open session, and what reads counters of a real machine."""
        self._counters = counters
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
        sampler = self._begin(planned)
        outcome = self._generate(planned, sampler)
        read = self._finish(outcome)
        if planned.warmup and outcome.status == "ok":
            counters |= self._go_on_warming_up(planned, outcome.timing.start_ns)
        order_index, self._order_index = self._order_index, self._order_index + 1
        return replace(
            self._trial(planned, outcome),
            order_index=order_index,
            start_utc=start_utc,
            idle_before_s=idle_before_s,
            memory_bytes=read.memory_bytes,
            counters={**read.counters, **outcome.known.readings, **counters} or None,
            samples=read.samples,
        )

    def close(self) -> None:
        """Release the model."""
        self._session.close()

    def _begin(self, planned: PlannedTrial) -> Sampler | None:
        """Read the counters before a trial; one without stamps has no place for more readings."""
        if self._counters is None:
            return None
        sampler = self._counters.begin(planned.cell.budget or 0)
        return sampler if planned.stamped else None

    def _finish(self, outcome: Outcome) -> Readings:
        """Read the counters after a trial."""
        if self._counters is None:
            return Readings({}, memory_of(self._session), None)
        stamps_ns = outcome.timing.stamps_ns
        steps_s = np.diff(np.asarray(stamps_ns, dtype=np.int64)) / NS_PER_S
        return self._counters.finish(float(np.median(steps_s)) if steps_s.size else None)

    def _generate(self, planned: PlannedTrial, sampler: Sampler | None = None) -> Outcome:
        """Run one generation and remember when it ended."""
        prompt_ids = prompt(
            self._opened.seed,
            planned.trial_id,
            planned.cell.prompt_tokens or 1,
            self._vocabulary,
        )
        start_ns = self._session.clock.now_ns()
        try:
            watch = _watch(planned)
            self._fill(planned.cell)
            timing = generate(
                self._session,
                prompt_ids,
                planned.cell,
                stamped=planned.stamped,
                watch=watch,
                sampler=sampler,
            )
            return _outcome(planned, timing, watch, _known(self._session))
        except (EngineError, UserError, MemoryError, RuntimeError) as error:
            # RuntimeError is what array libraries raise, for want of memory among other things.
            return _failure(start_ns, error)
        finally:
            self._last_end_ns = self._session.clock.now_ns()

    def _fill(self, cell: Cell) -> None:
        """Put the depth and the capacity of a cell in place, outside the time of its generation."""
        asked = cell.depth is not None or cell.capacity is not None
        if asked and isinstance(self._session, Fills):
            self._session.fill(cell.depth or 0, cell)

    def _trial(self, planned: PlannedTrial, outcome: Outcome) -> Trial:
        """Return the record of one generation."""
        timing = outcome.timing
        times = latency(timing)
        output_tokens = sum(timing.chunk_tokens)
        chunked = any(tokens != 1 for tokens in timing.chunk_tokens) and planned.stamped
        chunks = (Reason.CHUNKED_STREAM,) if chunked else ()
        reasons = list(dict.fromkeys((*outcome.known.reasons, *chunks)))
        # Gaps between chunks are no gaps between tokens, and would be taken for them.
        traced = planned.stamped and Reason.CHUNKED_STREAM not in reasons
        return Trial(
            trial_id=planned.trial_id,
            occasion=self._opened.occasion,
            series=self._opened.series,
            cell=planned.cell,
            status=outcome.status,
            message=outcome.message,
            warmup=planned.warmup,
            sentinel=planned.sentinel,
            stage=planned.stage,
            phase="decode",
            process_run=self._opened.process_run,
            block=planned.block,
            repeat=planned.repeat,
            start_ns=timing.start_ns,
            cached_tokens=outcome.known.cached_tokens,
            output_tokens=output_tokens,
            decode_steps=metrics.decode_steps(output_tokens),
            ttft_s=times.ttft_s,
            decode_s=times.decode_s,
            e2e_s=times.e2e_s,
            itl_s=times.itl_s if traced else None,
            chunk_tokens=timing.chunk_tokens if chunked else None,
            synced=planned.stamped,
            abort_at=output_tokens if outcome.status == "aborted" else None,
            projected_s=outcome.projected_s,
            reasons=reasons or None,
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
        again = self._repeat_until(burst, start_ns, BURST_S)
        return {
            "idle_s": idle_s,
            "burst_s": self._since_s(start_ns),
            "burst_tokens": float(BURST_TOKENS * (1 + again)),
        }

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


def _watch(planned: PlannedTrial) -> SlowWatch | None:
    """Return what may end a trial early, where that is allowed."""
    if planned.expectation is None or not planned.stamped:
        return None
    held = (planned.cell.depth or 0) + (planned.cell.prompt_tokens or 0)
    return SlowWatch(planned.expectation, held)


def _known(session: Session) -> Generation:
    """Return what a session knows of its latest generation; most keep no cache of prompts."""
    return session.last_generation() if isinstance(session, TellsGeneration) else Generation()


def _failure(start_ns: int, error: BaseException) -> Outcome:
    """Return the outcome of a generation that failed, with the reason code if it has one."""
    reason = error.reason if isinstance(error, EngineError) else None
    known = Generation(cached_tokens=None, reasons=() if reason is None else (reason,))
    return Outcome(Timing(start_ns, [], []), "failed", one_line(error), known=known)


def _outcome(
    planned: PlannedTrial, timing: Timing, watch: SlowWatch | None, known: Generation
) -> Outcome:
    """Return what a generation came to: finished, ended as slow, or void for a cached prompt."""
    if known.cached_tokens:
        # Its times are those of another, shorter prompt, so they are not kept (method, 1.5 rule 1).
        message = f"{known.cached_tokens} tokens of the prompt came from a cache"
        known = known._replace(reasons=(*known.reasons, Reason.CACHED_PROMPT))
        return Outcome(Timing(timing.start_ns, [], []), "failed", message, known=known)
    if watch is not None and watch.decided:
        projected_s = watch.projected_s(planned.cell.budget or 0)
        return Outcome(timing, "aborted", "slow; ended early", projected_s, known)
    if known.cached_tokens is None:
        known = known._replace(reasons=(*known.reasons, Reason.CACHED_PROMPT_UNKNOWN))
    return Outcome(timing, "ok", None, known=known)
