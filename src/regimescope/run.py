"""The one loop: plan, measure, store, refine. Layer: ``run``.

It knows no conclusion and draws none; what is measured is decided by ``plan`` and ``search`` alone.
"""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise
from typing import Any, Protocol

from msgspec.structs import replace

from regimescope import axes
from regimescope.engines.base import EngineRequest
from regimescope.errors import (
    MeasurementError,
    RegimescopeError,
    RunFolderError,
    WorkerError,
    WorkerTimeout,
)
from regimescope.feasible import most
from regimescope.growth import grown, growth, replayed, to_facts
from regimescope.measure.isolation import OpenRun, lost_trial, start_process
from regimescope.measure.messages import Open
from regimescope.plan import measured, remaining, without_values
from regimescope.reasons import Reason
from regimescope.records import (
    Event,
    EventKind,
    ModelFacts,
    Plan,
    PlannedProcess,
    PlannedTrial,
    Run,
    Series,
    Trial,
)
from regimescope.search.decision import Decision, Finish, Measure
from regimescope.search.evidence import standing
from regimescope.search.phases import Search
from regimescope.spec import Arm, ScanSpec
from regimescope.stopping import (
    AGAIN,
    MAX_REDOS,
    Limits,
    Speed,
    StopMeasuring,
    place_of,
    skipped_values,
    vetoes,
)
from regimescope.store import RunFolder
from regimescope.units import ratio, utc_now

# A cell that ended its process three times is not going to be measured; neither is a model whose
# process never survives its warm-up.
MAX_DEATHS = 3
# Clocks of a hot machine recover within seconds, its heat sink within minutes; the fresh process
# and its warm-up that follow add as much again.
COOL_DOWN_S = 10.0


class Observer(Protocol):
    """Someone who watches a run. Called between trials only, never while one is timed."""

    def plan_ready(self, plan: Plan, done: int) -> None:
        """Show what will be measured; ``done`` trials are on disk already."""
        ...

    def process_started(self, process_run: int, message: str) -> None:
        """Show that a process run is ready to measure."""
        ...

    def trial_started(self, trial: PlannedTrial) -> None:
        """Show what is measured next."""
        ...

    def trial_finished(self, trial: Trial) -> None:
        """Show what came of it."""
        ...

    def event(self, event: Event) -> None:
        """Show something that is not a trial."""
        ...

    def finished(self, message: str) -> None:
        """Show why the run ended."""
        ...


class Scan:
    """One invocation that measures what is left of a plan."""

    def __init__(
        self, folder: RunFolder, run: Run, *, occasion: str, inline: bool, observer: Observer
    ) -> None:
        """Take up a run where its folder says it stands.

        Raises:
            MeasurementError: The header has no spec, plan or model: it was not made by a scan.
        """
        header = run.header
        if header.spec is None or header.plan is None or header.model is None:
            raise MeasurementError("the run folder holds no plan to measure")
        self._folder, self._observer = folder, observer
        self._spec: ScanSpec = header.spec
        self._model: ModelFacts = header.model
        self._occasion, self._inline = occasion, inline
        self._finished = {trial.trial_id for trial in run.trials}
        self._trials = list(run.trials)
        planned = replayed(header.plan, run.events)
        self._plan = without_values(planned, skipped_values(run), self._finished, self._spec.axis)
        self._vetoes = vetoes(run)
        limit = most(self._spec, self._model)
        self._search = None if self._spec.budgets else Search(self._spec, limit=limit)
        self._pending: Decision | None = None
        self._next_process_run = 1 + max((t.process_run or 0 for t in run.trials), default=-1)
        self._deaths: Counter[int | None] = Counter()
        self._limits = Limits(self._spec, run.trials, virtual=inline)
        self._speed = Speed(run.trials, self._vetoes)

    def execute(self) -> None:
        """Measure what is left, one process run after the other, until done or a limit is met.

        Raises:
            UserError: The engine refuses the model, or a limit leaves no room for a block.
            MeasurementError: Nothing more can be measured; what is done is on disk.
        """
        self._show_plan()
        try:
            while True:
                if left := self._left():
                    self._measure_process(left[0])
                elif not self._refine():
                    break
        except StopMeasuring as stop:
            self._stop(str(stop), stop.reason)
            return
        except KeyboardInterrupt:
            self._stop("interrupted; finished trials are kept", Reason.LIMIT_REACHED)
            raise
        except RunFolderError:
            raise  # nothing more can be written, not even why
        except RegimescopeError as error:
            failed = isinstance(error, MeasurementError)
            self._stop(str(error), Reason.BACKEND_FAILURES if failed else Reason.LIMIT_REACHED)
            raise
        if self._search is None:
            self._say("done", f"all {measured(self._plan)} trials of the plan are finished")
            self._observer.finished("plan finished")

    def _left(self) -> tuple[PlannedProcess, ...]:
        """Return what is planned and not yet measured."""
        return remaining(self._plan, self._finished, self._vetoes).processes

    def _decide(self) -> Decision:
        """Ask the search what it wants, now that everything planned is measured."""
        decision, self._pending = self._pending, None
        if decision is None and self._search is not None:
            decision = self._search.decide(self._plan, standing(self._trials, self._vetoes))
        return decision or Finish("the plan is fixed")

    def _refine(self) -> bool:
        """Let the search add to the plan; return whether there is anything to measure.

        A search that ends says why, and what it could not settle.
        """
        if self._search is None:
            return False
        decision = self._decide()
        if isinstance(decision, Measure):
            self._grow(decision)
            return True
        self._say("done", decision.message, reason=decision.reason)
        self._observer.finished(decision.message)
        return False

    def _grow(self, wanted: Measure) -> tuple[PlannedTrial, ...]:
        """Add what a search wants to the plan, on disk first, and return the new trials."""
        added = growth(self._plan, self._spec, wanted)
        facts = to_facts(wanted, added) | self._limits.spent()
        self._say("phase", wanted.message, facts=facts)
        self._plan = grown(self._plan, added)
        self._show_plan()
        return tuple(trial for process in added.processes for trial in process.trials)

    def _goes_on(self) -> tuple[PlannedTrial, ...]:
        """Return further trials for the process that is measuring, if the search wants any."""
        if self._search is None or self._left():
            return ()
        decision = self._decide()
        if isinstance(decision, Measure) and decision.goes_on:
            return self._grow(decision)
        self._pending = decision
        return ()

    def _show_plan(self) -> None:
        """Tell the observer what is left and how much is done."""
        left = remaining(self._plan, self._finished, self._vetoes)
        self._observer.plan_ready(left, measured(self._plan) - measured(left))

    def _measure_process(self, process: PlannedProcess) -> None:
        """Run trials in a fresh process until they are done, or it dies, or a block is vetoed."""
        number, self._next_process_run = self._next_process_run, self._next_process_run + 1
        request = self._open_request(number, process.arm)
        try:
            opened = OpenRun(start_process(self._inline), request)
        except WorkerError as error:
            self._record_false_start(request, error)
            return
        with opened as child:
            facts = {"device": child.facts.device, "settings": child.facts.settings}
            self._say(
                "process_start", f"process run {number} is ready", process_run=number, facts=facts
            )
            self._observer.process_started(number, child.facts.description or child.facts.device)
            trials = process.trials
            while trials:
                if not self._measure_trials(child, request, trials):
                    return
                trials = self._goes_on()
        self._say("process_end", f"process run {number} ended", process_run=number)

    def _measure_trials(
        self, child: OpenRun, request: Open, trials: tuple[PlannedTrial, ...]
    ) -> bool:
        """Measure trials in order; return whether their process lives and their block stands."""
        for planned, following in pairwise([*trials, None]):
            if planned is None or not self._measure_trial(child, request, planned):
                return False
            if planned.sentinel and not self._settle_sentinel(child, request, planned):
                return False
            ends_block = following is None or following.block != planned.block
            if not planned.sentinel or not ends_block:
                continue
            if self._is_vetoed(planned.block, request.process_run):
                return False
        return True

    def _settle_sentinel(self, child: OpenRun, request: Open, planned: PlannedTrial) -> bool:
        """Visit a sentinel again that looks slow by accident; return whether its process lives."""
        visits = 1
        while self._speed.doubts(request.process_run, planned.block):
            again = replace(planned, trial_id=f"{planned.trial_id}{AGAIN}{visits}")
            if not self._measure_trial(child, request, again):
                return False
            visits += 1
        return True

    def _measure_trial(self, child: OpenRun, request: Open, planned: PlannedTrial) -> bool:
        """Measure one trial and record it; return whether its process lives."""
        self._limits.check(planned)
        self._observer.trial_started(planned)
        try:
            trial = child.measure(planned, self._limits.timeout_s(planned))
        except WorkerError as error:
            self._record_death(planned, request, error)
            return False
        self._record(trial)
        self._deaths.pop(place_of(planned, self._spec.axis), None)  # only deaths in a row count
        self._limits.count(trial, self._plan)
        self._speed.add(trial)
        return True

    def _is_vetoed(self, block: int, number: int) -> bool:
        """Drop a block during which the sentinel moved; it will be measured again.

        Raises:
            StopMeasuring: The machine keeps changing its speed.
        """
        shift = self._speed.drift(block)
        if shift is None:
            return False
        self._speed.forget(block)
        self._vetoes[block] = self._vetoes.get(block, 0) + 1
        self._say(
            "veto",
            f"block {block}: the sentinel took {ratio(shift)} its earlier time; measured again",
            process_run=number,
            reason=Reason.DRIFT_VETO,
            facts={"block": block, "shift": shift},
        )
        if self._vetoes[block] > MAX_REDOS:
            raise StopMeasuring(
                f"block {block} was vetoed {self._vetoes[block]} times: this machine drifts",
                Reason.DRIFT_VETO,
            )
        self._show_plan()
        if not self._inline:
            time.sleep(COOL_DOWN_S)
        return True

    def _record(self, trial: Trial) -> None:
        """Store a trial, then show it."""
        self._folder.append_trial(trial)
        self._trials.append(trial)
        self._finished.add(trial.trial_id)
        self._observer.trial_finished(trial)

    def _record_death(self, planned: PlannedTrial, request: Open, error: WorkerError) -> None:
        """Record a trial whose process died or hung; the rest goes on in a fresh one.

        Raises:
            MeasurementError: Processes keep dying at this point.
        """
        timed_out = isinstance(error, WorkerTimeout)
        value = axes.value(planned.cell, self._spec.axis)
        self._say(
            "timeout" if timed_out else "process_death",
            f"{self._spec.axis} {value}: {error}",
            trial_id=planned.trial_id,
            process_run=request.process_run,
            reason=Reason.BACKEND_FAILURES,
            facts={"cause": error.cause.value},
        )
        message = f"{error.cause.value}: {error}"
        self._record(lost_trial(request, planned, "timeout" if timed_out else "failed", message))
        self._deaths[place_of(planned, self._spec.axis)] += 1
        if self._deaths[place_of(planned, self._spec.axis)] < MAX_DEATHS:
            return
        if planned.warmup:
            raise MeasurementError(f"{MAX_DEATHS} processes died while warming up: {error}")
        self._skip(value)

    def _record_false_start(self, request: Open, error: WorkerError) -> None:
        """Record a process that was lost before its first trial; another one is tried.

        Raises:
            WorkerError: Processes keep dying there, or one hung.
        """
        self._say(
            "process_death",
            f"process run {request.process_run} was lost while it started: {error}",
            process_run=request.process_run,
            reason=Reason.BACKEND_FAILURES,
            facts={"cause": error.cause.value},
        )
        self._deaths[None] += 1
        if self._deaths[None] >= MAX_DEATHS or isinstance(error, WorkerTimeout):
            raise error

    def _skip(self, value: int | None) -> None:
        """Take a value that keeps ending its process out of what is left."""
        axis = self._spec.axis
        self._plan = without_values(self._plan, {value}, self._finished, axis)
        self._pending = None
        self._say(
            "skip",
            f"{axis} {value} ended its process {MAX_DEATHS} times in a row; not tried again",
            reason=Reason.BACKEND_FAILURES,
            facts={"value": value},
        )
        self._show_plan()

    def _open_request(self, number: int, arm: Arm) -> Open:
        """Return what a child needs to know."""
        spec = self._spec
        return Open(
            engine=spec.engine,
            request=engine_request(spec, process_run=number),
            occasion=self._occasion,
            process_run=number,
            series=Series(
                engine=spec.engine,
                model=spec.model,
                dtype=self._model.dtype,
                device=self._model.device,
                arm=arm,
                mode=spec.mode,
            ),
            seed=spec.seed,
            warm_up_s=spec.warm_up_s,
            counters_every=spec.counters_every,
        )

    def _stop(self, message: str, reason: Reason) -> None:
        """Write down why the run ended early."""
        self._say("stop", message, reason=reason)
        self._observer.finished(message)

    def _say(self, kind: EventKind, message: str, **values: Any) -> None:
        """Store an event, then show it."""
        event = Event(
            kind=kind, at_utc=utc_now(), message=message, occasion=self._occasion, **values
        )
        self._folder.append_event(event)
        self._observer.event(event)


def engine_request(spec: ScanSpec, *, process_run: int = 0) -> EngineRequest:
    """Return the part of a spec that an engine needs to load a model."""
    return EngineRequest(
        model=spec.model,
        device=spec.device,
        dtype=spec.dtype,
        seed=spec.seed,
        process_run=process_run,
        options=spec.engine_options,
    )
