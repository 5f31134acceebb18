"""The one loop: plan, measure, store, refine. Layer: ``run``.

It knows no conclusion and draws none; what is measured is decided by ``plan`` and ``search`` alone.
"""

from __future__ import annotations

import time
from itertools import pairwise

from msgspec.structs import replace

from regimescope import axes
from regimescope.errors import (
    MeasurementError,
    RegimescopeError,
    RunFolderError,
    WorkerError,
    WorkerTimeout,
)
from regimescope.feasible import most
from regimescope.growth import grown, growth, replayed, to_facts
from regimescope.journal import Journal, Observer
from regimescope.measure.isolation import OpenRun, lost_trial, start_process
from regimescope.measure.messages import Open
from regimescope.measure.sampling import why_off
from regimescope.opening import open_request, series_of
from regimescope.plan import measured, remaining, without_values
from regimescope.reasons import Reason
from regimescope.records import (
    ModelFacts,
    PlannedProcess,
    PlannedTrial,
    Run,
    Status,
    Trial,
)
from regimescope.search.decision import Decision, Finish, Measure
from regimescope.search.evidence import AGAIN, standing
from regimescope.search.phases import Search
from regimescope.spec import ScanSpec
from regimescope.stopping import (
    MAX_LOSSES,
    MAX_REDOS,
    MOST_AGAIN,
    Limits,
    Losses,
    Speed,
    StopMeasuring,
    granted,
    place_of,
    vetoes,
)
from regimescope.store import RunFolder
from regimescope.units import ratio

# Clocks of a hot machine recover within seconds, its heat sink within minutes; the fresh process
# and its warm-up that follow add as much again.
COOL_DOWN_S = 10.0


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
        self._journal = Journal(folder, observer, occasion)
        self._spec: ScanSpec = granted(header.spec, run.events)
        self._model: ModelFacts = header.model
        self._inline = inline
        self._finished = {trial.trial_id for trial in run.trials}
        self._trials = list(run.trials)
        self._losses = Losses(run)
        planned = replayed(header.plan, run.events)
        skipped = self._losses.skipped
        self._plan = without_values(planned, skipped, self._finished, self._spec.axis)
        self._vetoes = vetoes(run)
        limit = most(self._spec, self._model)
        self._search = None if self._spec.budgets else Search(self._spec, limit=limit)
        self._pending: Decision | None = None
        self._next_process_run = 1 + max((t.process_run or 0 for t in run.trials), default=-1)
        self._sampling_told = False
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
            self._judge_latest()
            while True:
                if left := self._left():
                    self._measure_process(left[0])
                elif not self._refine():
                    break
        except StopMeasuring as stop:
            self._journal.say("stop", f"{stop}{self._way_on(stop)}", reason=stop.reason)
            return
        except KeyboardInterrupt:
            self._journal.keep(
                "stop", "interrupted; finished trials are kept", reason=Reason.INTERRUPTED
            )
            raise
        except RunFolderError:
            raise  # nothing more can be written, not even why
        except RegimescopeError as error:
            failed = isinstance(error, MeasurementError)
            reason = Reason.BACKEND_FAILURES if failed else Reason.LIMIT_REACHED
            self._journal.keep("stop", str(error), reason=reason)
            raise
        if self._search is None:
            self._journal.say("done", f"all {measured(self._plan)} trials of the plan are finished")
            self._journal.observer.finished("plan finished")

    def _left(self) -> tuple[PlannedProcess, ...]:
        """Return what is planned and not yet measured."""
        return remaining(self._plan, self._finished, self._vetoes).processes

    def _decide(self) -> Decision:
        """Ask the search what it wants, now that everything planned is measured."""
        decision, self._pending = self._pending, None
        if decision is None and self._search is not None:
            trials = standing(self._trials, self._vetoes)
            decision = self._search.decide(self._plan, trials, self._losses.skipped)
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
        self._journal.say("done", decision.message, reason=decision.reason)
        self._journal.observer.finished(decision.message)
        return False

    def _grow(self, wanted: Measure) -> tuple[PlannedTrial, ...]:
        """Add what a search wants to the plan, on disk first, and return the new trials.

        Raises:
            MeasurementError: It wants nothing, and would want it for ever.
        """
        added = growth(self._plan, self._spec, wanted)
        if not any(trial.counts for process in added.processes for trial in process.trials):
            raise MeasurementError(f"the search asked for no trial: {wanted.message}")
        facts = to_facts(wanted, added) | self._limits.spent()
        self._journal.say("phase", wanted.message, facts=facts)
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
        self._journal.observer.plan_ready(left, measured(self._plan) - measured(left))

    def _measure_process(self, process: PlannedProcess) -> None:
        """Run trials in a fresh process until they are done, or it dies, or a block is vetoed."""
        number, self._next_process_run = self._next_process_run, self._next_process_run + 1
        series = series_of(self._spec, self._model, process.arm)
        request = open_request(self._spec, series, self._journal.occasion, number)
        try:
            opened = OpenRun(start_process(self._inline), request)
        except WorkerError as error:
            self._record_false_start(request, error)
            return
        with opened as child:
            facts = {"device": child.facts.device, "settings": child.facts.settings}
            self._journal.say(
                "process_start", f"process run {number} is ready", process_run=number, facts=facts
            )
            self._journal.observer.process_started(
                number, child.facts.description or child.facts.device
            )
            trials = process.trials
            while trials:
                if not self._measure_trials(child, request, trials):
                    return
                trials = self._goes_on()
        self._journal.say("process_end", f"process run {number} ended", process_run=number)

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
        # Counted here, not by their latencies: visits that fail have none.
        for visit in range(1, MOST_AGAIN + 1):
            if not self._speed.doubts(request.process_run, planned.block):
                break
            again = replace(planned, trial_id=f"{planned.trial_id}{AGAIN}{visit}")
            if not self._measure_trial(child, request, again):
                return False
        return True

    def _measure_trial(self, child: OpenRun, request: Open, planned: PlannedTrial) -> bool:
        """Measure one trial and record it; return whether its process lives."""
        self._limits.check(planned)
        self._journal.observer.trial_started(planned)
        timeout_s = self._limits.timeout_s(planned)
        try:
            trial = child.measure(planned, timeout_s)
        except WorkerError as error:
            self._record_death(planned, request, error, timeout_s)
            return False
        self._record(trial)
        self._limits.count(trial, self._plan)
        if planned.warmup and trial.status != "ok":
            # What follows would be measured cold.
            self._record_cold_start(trial)
            return False
        self._losses.survived(place_of(planned, self._spec.axis))
        self._speed.add(trial)
        self._tell_sampling(trial)
        return True

    def _judge_latest(self) -> None:
        """Judge the latest block, if an earlier invocation ended between its end and that."""
        latest = self._trials[-1] if self._trials else None
        if latest is None or not latest.sentinel or latest.block is None:
            return
        left = (trial for process in self._left() for trial in process.trials)
        if all(trial.block != latest.block or trial.warmup for trial in left):
            self._is_vetoed(latest.block, latest.process_run or 0)

    def _tell_sampling(self, trial: Trial) -> None:
        """Write down, once, why counters are not read during trials."""
        why = why_off(trial)
        if why is not None and not self._sampling_told:
            self._sampling_told = True
            self._journal.say("sampling_off", why, process_run=trial.process_run)

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
        then = "measured again" if self._vetoes[block] <= MAX_REDOS else "given up"
        self._journal.say(
            "veto",
            f"block {block}: the sentinel took {ratio(shift)} its earlier time; {then}",
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
        self._journal.record(trial)
        self._trials.append(trial)
        self._finished.add(trial.trial_id)

    def _record_death(
        self, planned: PlannedTrial, request: Open, error: WorkerError, timeout_s: float
    ) -> None:
        """Record a trial whose process died or hung; the rest goes on in a fresh one.

        Raises:
            MeasurementError: Processes keep dying at this point.
        """
        timed_out = isinstance(error, WorkerTimeout)
        value = axes.value(planned.cell, self._spec.axis)
        self._journal.say_lost(f"{self._spec.axis} {value}: {error}", request, error, planned)
        message = f"{error.cause.value}: {error}"
        status: Status = "timeout" if timed_out else "failed"
        given_s = timeout_s if timed_out else None
        self._record(lost_trial(request, planned, status, message, timeout_s=given_s))
        if not self._losses.lost(place_of(planned, self._spec.axis)):
            return
        if planned.warmup or value is None:
            raise MeasurementError(f"{MAX_LOSSES} processes died while warming up: {error}")
        self._skip(value)

    def _record_cold_start(self, warm_up: Trial) -> None:
        """Record a process that ends because its warm-up failed; another one is tried.

        Raises:
            MeasurementError: Warm-ups keep failing.
        """
        value = axes.value(warm_up.cell, self._spec.axis)
        why = f"the warm-up at {self._spec.axis} {value} failed"
        self._journal.say(
            "process_death",
            f"process run {warm_up.process_run} is ended, {why}: {warm_up.message}",
            process_run=warm_up.process_run,
            trial_id=warm_up.trial_id,
            reason=Reason.BACKEND_FAILURES,
        )
        warm = any(trial.warmup and trial.status == "ok" for trial in self._trials)
        follows = self._losses.lost_cold(ever_warm=warm)
        if follows == "end" or (follows == "skip" and value is None):
            raise MeasurementError(f"{why} in {MAX_LOSSES} processes: {warm_up.message}")
        if follows == "skip" and value is not None:
            self._skip(value)

    def _record_false_start(self, request: Open, error: WorkerError) -> None:
        """Record a process that was lost before its first trial; another one is tried.

        Raises:
            WorkerError: Processes keep dying there, or one hung.
        """
        message = f"process run {request.process_run} was lost while it started: {error}"
        self._journal.say_lost(message, request, error)
        if self._losses.lost(None) or isinstance(error, WorkerTimeout):
            raise error

    def _skip(self, value: int) -> None:
        """Take a value that keeps ending its process out of what is left."""
        axis = self._spec.axis
        self._losses.skipped.add(value)
        self._plan = without_values(self._plan, {value}, self._finished, axis)
        self._pending = None
        self._journal.say(
            "skip",
            f"{axis} {value} ended its process {MAX_LOSSES} times in a row; not tried again",
            reason=Reason.BACKEND_FAILURES,
            facts={"value": value},
        )
        self._show_plan()

    def _way_on(self, stop: StopMeasuring) -> str:
        """Return how the run can go on, where it can."""
        if stop.reason is not Reason.LIMIT_REACHED:
            return ""
        command = " ".join(["--resume", str(self._journal.path), stop.options]).rstrip()
        return f"; go on with: regimescope scan {command}"
