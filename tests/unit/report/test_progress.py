import io

import pytest
from rich.console import Console
from tests.unit.report.builders import make_trial

from regimescope.reasons import Reason, meaning
from regimescope.records import Cell, Event, Plan, PlannedProcess, PlannedTrial
from regimescope.report.consoles import wrapped
from regimescope.report.progress import (
    ProgressObserver,
    QuietObserver,
    SilentObserver,
    make_observer,
)

BUDGETS = (64, 128, 192)
SKIP = Event(
    kind="skip",
    at_utc="t",
    message="budget 700 is not tried again",
    reason=Reason.BACKEND_FAILURES,
)
# Told in two lines, since 80 columns do not hold it.
SKIPPED = wrapped(
    f"skip: budget 700 is not tried again ({meaning(Reason.BACKEND_FAILURES)})", 80
).splitlines()


class Clock:
    """Seconds that pass when told to."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


def planned(budget, *, warmup=False):
    return PlannedTrial(
        trial_id=f"t{budget}", cell=Cell(budget=budget), block=0, repeat=0, warmup=warmup
    )


PLAN = Plan(
    seed=0,
    processes=(PlannedProcess(arm="warm", trials=tuple(planned(budget) for budget in BUDGETS)),),
    skipped=("budget 2048: longer than the model",),
)


def watch(observer, clock=None, *, seconds_each=0.0):
    """Play a run of three trials, the last of which fails."""
    observer.plan_ready(PLAN, 1)
    observer.process_started(0, "mps")
    for budget in BUDGETS:
        observer.trial_started(planned(budget))
        if clock:
            clock.now_s += seconds_each
        ok = budget != 192
        observer.trial_finished(
            make_trial(budget, budget * 0.01 if ok else None, trial_id=f"t{budget}", message="oom")
        )
    observer.event(Event(kind="process_end", at_utc="t", message="process run 0 ended"))
    observer.event(SKIP)
    observer.finished("plan finished")


def console_on(file, *, terminal=False, width=80):
    return Console(file=file, width=width, force_terminal=terminal, highlight=False)


def test_a_log_has_lines_without_control_characters():
    file, clock = io.StringIO(), Clock()
    watch(ProgressObserver(console_on(file), now_s=clock), clock, seconds_each=60)
    text = file.getvalue()
    assert not [char for char in text if char != "\n" and not char.isprintable()]
    assert text.splitlines() == [
        "3 trials to measure in 1 process run, 1 trial on disk already",
        "skip: budget 2048: longer than the model",
        "process run 0: mps",
        "50.0 % | process run 0 | budget 64 | last TPOT 10.2 ms | about 3.70 s left",
        "75.0 % | process run 0 | budget 128 | last TPOT 10.1 ms | about 2.15 s left",
        "failed: budget 192: oom",
        "100.0 % | process run 0 | budget 192 | last TPOT 10.1 ms",
        *SKIPPED,
        "plan finished",
    ]


def test_a_log_of_fast_trials_says_little():
    file, clock = io.StringIO(), Clock()
    watch(ProgressObserver(console_on(file), now_s=clock), clock, seconds_each=1)
    states = [line for line in file.getvalue().splitlines() if "%" in line]
    assert states == []


def test_a_terminal_redraws_one_line_and_events_stay():
    file = io.StringIO()
    watch(ProgressObserver(console_on(file, terminal=True)))
    text = file.getvalue()
    # One erasure for every line that replaces a line of state.
    assert text.count("\r\x1b[2K") >= 6
    assert "\x1b[?25l" not in text
    kept = [line.split("\x1b[2K")[-1] for line in text.split("\n")]
    assert sum("|" in line for line in kept) == 0
    assert any("failed: budget 192: oom" in line for line in kept)


@pytest.mark.parametrize("width", [20, 40])
def test_the_line_of_state_fits_a_narrow_terminal(width):
    file = io.StringIO()
    watch(ProgressObserver(console_on(file, terminal=True, width=width)))
    before_erasing = file.getvalue().split("\r\x1b[2K")[:-1]
    states = [part.split("\n")[-1] for part in before_erasing]
    assert len(states) >= 6
    assert all(0 < len(state) < width for state in states)


def test_quiet_prints_what_went_wrong_only():
    file = io.StringIO()
    watch(QuietObserver(console_on(file)))
    assert file.getvalue().splitlines() == [
        "failed: budget 192: oom",
        *SKIPPED,
    ]


def test_a_death_told_by_its_event_is_not_told_again():
    file = io.StringIO()
    observer = QuietObserver(console_on(file))
    observer.event(
        Event(kind="timeout", at_utc="t", message="budget 64: no answer in 10 s", trial_id="t64")
    )
    observer.trial_finished(make_trial(64, None, trial_id="t64", status="timeout"))
    observer.trial_finished(make_trial(128, None, trial_id="t128", status="timeout"))
    assert file.getvalue().splitlines() == [
        "timeout: budget 64: no answer in 10 s",
        "timeout: budget 128: no message",
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_strings_from_outside_stay_text(terminal):
    hostile = "[red]x[/red]\x1b[31m\nnext\x07"
    file = io.StringIO()
    observer = ProgressObserver(console_on(file, terminal=terminal))
    observer.process_started(0, hostile)
    observer.event(Event(kind="veto", at_utc="t", message=hostile))
    observer.finished(hostile)
    assert file.getvalue().count("[red]x[/red][31m next") == 3
    assert "\x07" not in file.getvalue()
    assert "\x1b[31m" not in file.getvalue()


def test_a_log_in_ascii_can_be_written():
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    ProgressObserver(Console(file=file, width=80)).finished("模型 finished")
    file.flush()
    assert b"\\u6a21" in raw.getvalue()


def test_the_command_line_gets_the_observer_it_asked_for():
    console = console_on(io.StringIO())
    assert isinstance(make_observer(console), ProgressObserver)
    assert type(make_observer(console, quiet=True)) is QuietObserver


def test_silence_says_nothing(capsys):
    watch(SilentObserver())
    assert capsys.readouterr() == ("", "")


def test_lines_end_before_the_last_column_and_paths_stay_whole():
    path = "/data/" + "x" * 40
    lines = wrapped(f"Give one or the other, for it is known that {path} is there", 44).splitlines()
    assert lines == ["Give one or the other, for it is known that", f"  {path}", "  is there"]
    assert wrapped("one two", 3).splitlines() == ["one", "two"]
