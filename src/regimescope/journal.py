"""What a run writes down, and who is told. Layer: below ``run``.

Everything is on the disk before it is shown.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from regimescope.errors import WorkerError, WorkerTimeout
from regimescope.measure.messages import Open
from regimescope.reasons import Reason
from regimescope.records import Event, EventKind, Plan, PlannedTrial, Trial
from regimescope.store import RunFolder
from regimescope.units import utc_now


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


class Journal:
    """The events and trials of one invocation."""

    def __init__(self, folder: RunFolder, observer: Observer, occasion: str) -> None:
        """Write to a folder and tell an observer, in the name of one invocation."""
        self._folder = folder
        self.observer, self.occasion = observer, occasion

    @property
    def path(self) -> Path:
        """Where it is written."""
        return self._folder.path

    def record(self, trial: Trial) -> None:
        """Store a trial, then show it."""
        self._folder.append_trial(trial)
        self.observer.trial_finished(trial)

    def say(self, kind: EventKind, message: str, **values: Any) -> None:
        """Store an event, then show it."""
        self.observer.event(self.keep(kind, message, **values))

    def keep(self, kind: EventKind, message: str, **values: Any) -> Event:
        """Store an event that somebody else tells the user, and return it."""
        event = Event(
            kind=kind, at_utc=utc_now(), message=message, occasion=self.occasion, **values
        )
        self._folder.append_event(event)
        return event

    def say_lost(
        self, message: str, request: Open, error: WorkerError, planned: PlannedTrial | None = None
    ) -> None:
        """Store and show that a process was lost.

        Args:
            message: What happened.
            request: The process run.
            error: How it was lost.
            planned: The trial it was lost in; ``None`` before the first.
        """
        hung = planned is not None and isinstance(error, WorkerTimeout)
        self.say(
            "timeout" if hung else "process_death",
            message,
            trial_id=None if planned is None else planned.trial_id,
            process_run=request.process_run,
            reason=Reason.BACKEND_FAILURES,
            facts={"cause": error.cause.value},
        )
