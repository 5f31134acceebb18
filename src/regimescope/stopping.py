"""When to stop: limits, timeouts, and a machine that changes its speed. Layer: beside ``measure``.

Source: method, section 1.5 rule 6 and section 11. Every loop has a maximum and says why it ended.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from msgspec.structs import replace

from regimescope import axes
from regimescope.errors import RegimescopeError, SpecError
from regimescope.metrics import decoded_tokens
from regimescope.plan import least_block
from regimescope.reasons import Reason
from regimescope.records import Event, Plan, PlannedTrial, Run, Trial
from regimescope.search.evidence import AGAIN, attempt_of, sentinel_of
from regimescope.spec import Axis, ScanSpec
from regimescope.stats.arrays import MAD_TO_SD
from regimescope.units import seconds

# A block that drifted four times in a row will drift a fifth time.
MAX_REDOS = 3
# A cell that ended its process three times is not going to be measured; neither is a model whose
# process never survives its warm-up.
MAX_LOSSES = 3
# A sentinel that moves by less than a tenth moves no verdict at a margin of 1.25.
LEAST_SHIFT = math.log(1.1)
# Beyond three standard errors the move is not the sentinel's own scatter.
NOISE_MULTIPLE = 3.0
# Differences from which the scatter of a sentinel can be told.
LEAST_DIFFERENCES = 6
# Further visits to a sentinel that looks slow.
MOST_AGAIN = 2
# The largest published regime is 21 times slower than normal; a trial that takes more than twice
# that share of the longest warm-up hangs.
TIMEOUT_MULTIPLE = 50.0
LEAST_TIMEOUT_S = 60.0


# What follows a failed warm-up: another process, another value, or nothing.
ColdStart = Literal["again", "skip", "end"]


class StopMeasuring(RegimescopeError):
    """The run ends here for a stated reason; what is measured is kept and judged."""

    def __init__(self, message: str, reason: Reason, *, options: str = "") -> None:
        """Keep the reason code, and the options with which the run can go on."""
        super().__init__(message)
        self.reason, self.options = reason, options


class Limits:
    """What a run may cost. Seconds count from its start, tokens over all its invocations."""

    def __init__(self, spec: ScanSpec, done: Sequence[Trial], *, virtual: bool) -> None:
        """Start counting.

        Args:
            spec: The limits.
            done: Trials of earlier invocations.
            virtual: Whether time is simulated, so that only the trials' own seconds pass.
        """
        self._spec = spec
        self._tokens = sum(decoded_tokens(trial) for trial in done)
        self._virtual_s = 0.0
        self._start_s = None if virtual else time.monotonic()
        self._checked_room = bool(done)
        self._timeout_s = spec.trial_timeout_s

    def timeout_s(self, planned: PlannedTrial) -> float:
        """Return how long the answer to a trial may take.

        A warm-up repeats itself until its time has passed, and may begin once more just before.
        """
        if planned.warmup:
            return 2 * self._spec.trial_timeout_s + self._spec.warm_up_s
        return self._timeout_s

    def check(self, planned: PlannedTrial) -> None:
        """Stop before a trial that a limit forbids.

        Raises:
            StopMeasuring: The limit is met.
        """
        most_tokens, most_s = self._spec.max_tokens, self._spec.max_seconds
        if most_tokens is not None and self._tokens + (planned.cell.budget or 0) > most_tokens:
            raise StopMeasuring(
                f"the limit of {most_tokens:,} tokens is met",
                Reason.LIMIT_REACHED,
                options=f"--max-tokens {2 * most_tokens}",
            )
        if most_s is not None and self._spent_s() >= most_s:
            raise StopMeasuring(f"the limit of {seconds(most_s)} is met", Reason.LIMIT_REACHED)

    def count(self, trial: Trial, plan: Plan) -> None:
        """Add what a trial cost; its warm-up tells how long the others may take.

        Raises:
            SpecError: The time limit leaves no room for one complete block.
        """
        self._tokens += decoded_tokens(trial)
        spent_s = trial.e2e_s or 0.0
        self._virtual_s += spent_s
        if not trial.warmup or trial.status != "ok" or not plan.processes:
            return
        self._timeout_s = min(
            self._spec.trial_timeout_s, max(LEAST_TIMEOUT_S, TIMEOUT_MULTIPLE * spent_s)
        )
        if not self._checked_room and self._spec.max_seconds is not None:
            self._checked_room = True
            least_s = spent_s * least_block(self._spec) / max(trial.output_tokens or 1, 1)
            if least_s > self._spec.max_seconds:
                raise SpecError(
                    f"max_seconds {self._spec.max_seconds:g} leaves no room for one block.",
                    remedy=f"A warm-up and a visit to every budget take about {seconds(least_s)}.",
                )

    def spent(self) -> dict[str, int]:
        """Return the tokens decoded so far and the most there may be, as facts of an event."""
        most = self._spec.max_tokens
        return {"tokens": self._tokens} | ({} if most is None else {"max_tokens": most})

    def _spent_s(self) -> float:
        """Return the seconds spent so far."""
        return self._virtual_s if self._start_s is None else time.monotonic() - self._start_s


class Visits(NamedTuple):
    """One sentinel, with the visits to it that followed because it looked slow.

    Attributes:
        sentinel: Its id.
        log_s: Log decode seconds of each visit.
    """

    sentinel: str
    log_s: list[float]

    @property
    def level(self) -> float:
        """The fastest visit: noise makes a machine slower, never faster."""
        return min(self.log_s)


class Speed:
    """The sentinels of a run: how fast the machine is, process by process."""

    def __init__(self, done: Iterable[Trial] = (), vetoes: Mapping[int, int] | None = None) -> None:
        """Start with what is on the disk.

        Args:
            done: Trials of earlier invocations.
            vetoes: How often each block was vetoed; what was vetoed tells the scatter only.
        """
        self._parts: dict[tuple[int, int], list[Visits]] = defaultdict(list)
        self._judged: list[list[Visits]] = []
        dropped: dict[tuple[int, int, int], list[Visits]] = defaultdict(list)
        for trial in done:
            attempt, block = attempt_of(trial.trial_id), trial.block or 0
            if attempt >= (vetoes or {}).get(block, 0):
                self.add(trial)
            else:
                _visit(dropped[trial.process_run or 0, block, attempt], trial)
        self._judged += [visits for visits in dropped.values() if visits]

    def add(self, trial: Trial) -> None:
        """Take note of a trial if it is a sentinel with a latency."""
        if trial.process_run is not None and trial.sentinel:
            _visit(self._parts[trial.process_run, trial.block or 0], trial)

    def doubts(self, process_run: int, block: int) -> bool:
        """Return whether the latest sentinel looks slow by accident and should be measured again.

        Noise is one-sided, so that the fastest of a few visits tells the speed of the machine; one
        that is slower than expected is visited again before a whole block is dropped for it.
        """
        visits = self._parts.get((process_run, block), [])
        if not visits or len(visits[-1].log_s) > MOST_AGAIN:
            return False
        latest = visits[-1]
        known = [visit.level for visit in visits[:-1]] or [
            visit.level for part in self._all() for visit in part if visit is not latest
        ]
        if not known:
            return len(latest.log_s) < 2
        excess = latest.level - float(np.median(known))
        return excess > max(LEAST_SHIFT, NOISE_MULTIPLE * self._scatter())

    def drift(self, block: int) -> float | None:
        """Return the largest shift of a block within a process that had a part of it.

        A block that a kill cut in two has a part in each of two processes.

        Returns:
            ``None`` where no part has one.
        """
        parts = [process for process, of_block in self._parts if of_block == block]
        shifts = [self.shift(process, block) for process in parts]
        return max((s for s in shifts if s), key=lambda s: abs(math.log(s)), default=None)

    def forget(self, block: int) -> None:
        """Judge a block anew from here on; its sentinels still tell their scatter."""
        for part in [part for part in self._parts if part[1] == block]:
            self._judged.append(self._parts.pop(part))

    def shift(self, process_run: int, block: int) -> float | None:
        """Return the factor by which the sentinel slowed down or sped up during a block.

        The second half of the block is compared with the first, within one process: a process that
        is slow from its start on is no drift, and vetoing it would hide a process lottery.

        Returns:
            ``None`` while it moved by less than a tenth, or by no more than its own scatter.
        """
        log_s = [visit.level for visit in self._parts.get((process_run, block), [])]
        half = len(log_s) // 2
        if half == 0:
            return None
        moved = float(np.median(log_s[-half:]) - np.median(log_s[:half]))
        noise = self._scatter() * math.sqrt(2 / half)
        if abs(moved) <= max(LEAST_SHIFT, NOISE_MULTIPLE * noise):
            return None
        return math.exp(moved)

    def _scatter(self) -> float:
        """Return the scatter of one sentinel, from neighbors in time; 0 while it is unknown."""
        parts = [np.diff([visit.level for visit in part]) for part in self._all()]
        differences = np.concatenate(parts) if parts else np.empty(0)
        if differences.size < LEAST_DIFFERENCES:
            return 0.0
        return MAD_TO_SD * float(np.median(np.abs(differences))) / math.sqrt(2)

    def _all(self) -> tuple[list[Visits], ...]:
        """Return the sentinels of each block and process, dropped ones included."""
        return (*self._parts.values(), *self._judged)


def _visit(part: list[Visits], trial: Trial) -> None:
    """Add a trial to the sentinels of a block if it is one with a latency."""
    if not trial.sentinel or not trial.decode_s:
        return
    name = sentinel_of(trial.trial_id)
    if AGAIN not in trial.trial_id or not part or part[-1].sentinel != name:
        part.append(Visits(name, []))
    part[-1].log_s.append(math.log(trial.decode_s))


class Losses:
    """How often processes were lost in a row, and the values that are not tried again."""

    def __init__(self, run: Run) -> None:
        """Start with what earlier invocations gave up."""
        self.skipped = skipped_values(run)
        self._in_a_row: Counter[int | None] = Counter()

    def survived(self, place: int | None) -> None:
        """Take note of a process that lived: only losses in a row count."""
        self._in_a_row.pop(place, None)

    def lost(self, place: int | None) -> bool:
        """Take note of a process that was lost.

        Args:
            place: Where on the axis; ``None`` before the first trial.

        Returns:
            Whether it is not worth another try there.
        """
        self._in_a_row[place] += 1
        return self._in_a_row[place] >= MAX_LOSSES

    def lost_cold(self, *, ever_warm: bool) -> ColdStart:
        """Take note of a process that ended because its warm-up failed.

        One value that cannot be warmed up at is no reason to end a run in which others could; two
        in a row are.

        Args:
            ever_warm: Whether any warm-up of the run has succeeded.
        """
        self._in_a_row[None] += 1
        in_a_row = self._in_a_row[None]
        if in_a_row < MAX_LOSSES:
            return "again"
        if ever_warm and in_a_row == MAX_LOSSES:
            return "skip"
        return "end" if in_a_row >= 2 * MAX_LOSSES or not ever_warm else "again"


def place_of(planned: PlannedTrial, axis: Axis) -> int | None:
    """Return where on the axis a process dies, or ``None`` for a warm-up."""
    return None if planned.warmup else axes.value(planned.cell, axis)


def vetoes(run: Run) -> dict[int, int]:
    """Return how often each block of a run was vetoed, from its events."""
    found: dict[int, int] = defaultdict(int)
    for event in run.events:
        block = (event.facts or {}).get("block")
        if event.kind == "veto" and isinstance(block, int):
            found[block] += 1
    return dict(found)


def granted(spec: ScanSpec, events: Iterable[Event]) -> ScanSpec:
    """Return a spec with the limits that the run was last taken up with."""
    for event in events:
        facts = event.facts or {}
        if event.kind != "resume":
            continue
        if isinstance(facts.get("max_tokens"), int):
            spec = replace(spec, max_tokens=facts["max_tokens"])
        if isinstance(facts.get("max_seconds"), (int, float)):
            spec = replace(spec, max_seconds=float(facts["max_seconds"]))
    return spec


def skipped_values(run: Run) -> set[int]:
    """Return the values of the axis that kept ending their process and are not tried again."""
    facts = [event.facts or {} for event in run.events if event.kind == "skip"]
    # Until schema version 2 only budgets could be swept, and the fact bore that name.
    values = (fact.get("value", fact.get("budget")) for fact in facts)
    return {value for value in values if isinstance(value, int)}
