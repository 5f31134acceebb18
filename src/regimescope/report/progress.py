"""What a person sees while a run is being measured, on standard error. Layer: report.

Nothing here runs on its own: there is no thread and no timer, so no refresh can take a core from
the measured process. Every character is written inside a call of the one who measures, and the
line is redrawn in place without hiding the cursor, so that an interruption leaves nothing to mend.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from regimescope.metrics import tpot_s
from regimescope.reasons import meaning
from regimescope.records import Event, Plan, PlannedTrial, Trial
from regimescope.report.consoles import wrapped
from regimescope.report.escaping import encodable, plain
from regimescope.report.growing import GrowingCurve
from regimescope.report.tables import ROUTINE_EVENTS
from regimescope.report.time_left import TimeLeft
from regimescope.units import count, seconds, share

Clock = Callable[[], float]

# A log of a long run stays readable, and a reader who waits sees that it still moves.
SECONDS_BETWEEN_LINES = 5.0
# Wider lines are harder to read, and the curve gains nothing from more columns.
MOST_WIDTH = 100


class SilentObserver:
    """Says nothing: for calls from Python and for tests."""

    def plan_ready(self, plan: Plan, done: int) -> None:
        """Take no notice."""

    def process_started(self, process_run: int, message: str) -> None:
        """Take no notice."""

    def trial_started(self, trial: PlannedTrial) -> None:
        """Take no notice."""

    def trial_finished(self, trial: Trial) -> None:
        """Take no notice."""

    def event(self, event: Event) -> None:
        """Take no notice."""

    def finished(self, message: str) -> None:
        """Take no notice."""


class QuietObserver(SilentObserver):
    """Prints what went wrong or was left out, and nothing else."""

    def __init__(self, console: Console) -> None:
        """Print to a console, which should be the one on standard error."""
        self._console = console
        self._told: set[str | None] = set()

    def trial_finished(self, trial: Trial) -> None:
        """Say that a trial gave no latency, unless an event has told it already."""
        if trial.status in ("failed", "timeout") and trial.trial_id not in self._told:
            self._note(f"{trial.status}: {_failure(trial)}")

    def event(self, event: Event) -> None:
        """Say what happened, unless every healthy run has it."""
        if event.kind not in ROUTINE_EVENTS:
            self._told.add(event.trial_id)
            why = f" ({meaning(event.reason)})" if event.reason else ""
            self._note(f"{event.kind.replace('_', ' ')}: {event.message}{why}")

    def _note(self, message: str) -> None:
        """Print a line that stays."""
        self._print(message, style="yellow")

    def _print(self, message: str, style: str = "") -> None:
        """Print a message in lines that the console can show whole."""
        lines = wrapped(encodable(plain(message), self._console.encoding), self._console.width)
        self._console.print(Text(lines, style=style), highlight=False, soft_wrap=True)


class ProgressObserver(QuietObserver):
    """Shows one line of state: redrawn on a terminal, repeated every few seconds in a log."""

    def __init__(self, console: Console, *, now_s: Clock = time.monotonic) -> None:
        """Print to a console, which should be the one on standard error.

        Args:
            console: Where to print; whether it is a terminal decides the form.
            now_s: A clock in seconds that never goes back; it only spaces the lines of a log.
        """
        super().__init__(console)
        self._now_s = now_s
        self._last_line_s: float | None = None
        self._drawn = False
        self._left = TimeLeft()
        self._process = ""
        self._current = ""
        self._last = ""
        self._stage: str | None = None
        self._doing = ""
        self._tokens = 0
        self._most_tokens: int | None = None
        self._curve = GrowingCurve()

    def event(self, event: Event) -> None:
        """Show what a search does next, with the curve at the begin of each phase."""
        super().event(event)
        facts = event.facts or {}
        if event.kind != "phase":
            return
        spent, most = facts.get("tokens"), facts.get("max_tokens")
        self._tokens = spent if isinstance(spent, int) else self._tokens
        self._most_tokens = most if isinstance(most, int) else None
        if facts.get("stage") == self._stage:
            self._doing = event.message
            return
        self._stage, self._doing = facts.get("stage"), ""
        self._draw_curve()
        self._line(f"{event.message} ({self._cost()})")

    def _cost(self) -> str:
        """Return the tokens spent and the most that a search may spend."""
        most = "" if self._most_tokens is None else f" of at most {self._most_tokens:,}"
        return f"{self._tokens:,}{most} tokens"

    def _draw_curve(self) -> None:
        """Print the curve so far; a log gets the verdict's curve at the end."""
        if not self._console.is_terminal:
            return
        encoding = self._console.encoding
        ascii_only = not encoding.lower().startswith("utf")
        width = min(self._console.width - 1, MOST_WIDTH)
        drawn = self._curve.draw(width=width, ascii_only=ascii_only)
        if drawn is not None:
            self._erase()
            # Made here of numbers alone, and of several lines, so it is not made plain.
            text = Text(encodable(drawn, encoding))
            self._console.print(text, highlight=False, soft_wrap=True)

    def plan_ready(self, plan: Plan, done: int) -> None:
        """Say how much is to be measured."""
        self._left = TimeLeft(plan, done)
        todo = self._left.trials_left
        if self._stage is not None or not plan.processes:
            return  # a search says what it does next in words of its own
        already = f", {count(done, 'trial')} on disk already" if done else ""
        line = f"{count(todo, 'trial')} to measure in {count(len(plan.processes), 'process run')}"
        self._line(f"{line}{already}")
        for skipped in plan.skipped:
            self._note(f"skip: {skipped}")

    def process_started(self, process_run: int, message: str) -> None:
        """Show which process measures."""
        self._process = f"process run {process_run}"
        self._line(f"{self._process}: {message}")

    def trial_started(self, trial: PlannedTrial) -> None:
        """Show what is measured next."""
        kind = "warm-up at budget" if trial.warmup else "budget"
        self._current = f"{kind} {trial.cell.budget}"
        self._show_state()

    def trial_finished(self, trial: Trial) -> None:
        """Show how fast it was and what is left."""
        self._left.finish(trial)
        self._curve.add(trial)
        self._tokens += trial.output_tokens or 0
        super().trial_finished(trial)
        if trial.status == "ok" and trial.ttft_s is not None and trial.e2e_s is not None:
            per_token_s = tpot_s(trial.ttft_s, trial.e2e_s, trial.output_tokens or 0)
            self._last = f"last TPOT {seconds(per_token_s)}" if per_token_s is not None else ""
        self._show_state()

    def finished(self, message: str) -> None:
        """Say why the run ended."""
        self._line(message)

    def _state(self) -> str:
        """Return the line of state."""
        if self._stage is not None:
            # What a search has planned so far is not what is left of it.
            parts = [
                self._stage,
                f"{self._tokens:,} tokens",
                self._doing or self._current,
                self._last,
            ]
        else:
            left_s = self._left.seconds_left()
            left = f"about {seconds(left_s)} left" if left_s else ""
            parts = [
                share(self._left.share_done), self._process, self._current, self._last, left
            ]  # fmt: skip
        return " | ".join(part for part in parts if part)

    def _show_state(self) -> None:
        """Redraw the line of state; in a log, print it if the last line is old enough."""
        if self._console.is_terminal:
            self._erase()
            text = Text(encodable(plain(self._state()), self._console.encoding))
            # The last column stays free: a full line would make some terminals wrap.
            text.truncate(max(self._console.width - 1, 1))
            self._console.print(text, end="", highlight=False, soft_wrap=True)
            self._drawn = True
        elif (
            self._last_line_s is None or self._now_s() - self._last_line_s >= SECONDS_BETWEEN_LINES
        ):
            self._line(self._state())

    def _line(self, message: str) -> None:
        """Print a line that stays, in the place of the line of state."""
        self._erase()
        self._print(message)
        self._last_line_s = self._now_s()

    def _note(self, message: str) -> None:
        """Print a warning in the place of the line of state."""
        self._erase()
        super()._note(message)

    def _erase(self) -> None:
        """Take the line of state away."""
        if self._drawn:
            self._console.control(
                Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))
            )
            self._drawn = False


def _failure(trial: Trial) -> str:
    """Say which trial failed and what the engine said."""
    return f"budget {trial.cell.budget}: {trial.message or 'no message'}"


def make_observer(
    console: Console, *, quiet: bool = False, now_s: Clock = time.monotonic
) -> QuietObserver:
    """Return the observer for a command line.

    Args:
        console: The console on standard error.
        quiet: Print warnings only.
        now_s: A clock in seconds that never goes back.
    """
    return QuietObserver(console) if quiet else ProgressObserver(console, now_s=now_s)
