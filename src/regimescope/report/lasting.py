"""An observer that never ends what it watches. Layer: report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from regimescope.records import Event, Plan, PlannedTrial, Trial
from regimescope.report.progress import SilentObserver


class Watching(Protocol):
    """What is passed on: the calls of someone who watches a run."""

    def plan_ready(self, plan: Plan, done: int) -> None:
        """Show what will be measured."""
        ...

    def process_started(self, process_run: int, message: str) -> None:
        """Show that a process run is ready."""
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


class LastingObserver:
    """Passes everything on until nobody listens any more, and is silent from then on.

    A terminal that was closed or a log on a full disk is no reason to lose a measurement.
    """

    def __init__(self, watched: Watching) -> None:
        """Pass on to another observer."""
        self._watched: Watching = watched

    def plan_ready(self, plan: Plan, done: int) -> None:
        """Pass on what will be measured."""
        self._tell(self._watched.plan_ready, plan, done)

    def process_started(self, process_run: int, message: str) -> None:
        """Pass on that a process run is ready."""
        self._tell(self._watched.process_started, process_run, message)

    def trial_started(self, trial: PlannedTrial) -> None:
        """Pass on what is measured next."""
        self._tell(self._watched.trial_started, trial)

    def trial_finished(self, trial: Trial) -> None:
        """Pass on what came of it."""
        self._tell(self._watched.trial_finished, trial)

    def event(self, event: Event) -> None:
        """Pass on something that is not a trial."""
        self._tell(self._watched.event, event)

    def finished(self, message: str) -> None:
        """Pass on why the run ended."""
        self._tell(self._watched.finished, message)

    def _tell(self, listener: Callable[..., None], *what: Any) -> None:
        """Tell a listener, and nobody from now on if it cannot be reached."""
        try:
            listener(*what)
        except OSError:
            self._watched = SilentObserver()
