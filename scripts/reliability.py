"""Kill scans at random moments and count what is lost.

    python scripts/reliability.py [--kills 200] [--real 20] [--seed 0]

Each case starts a short scan in a process of its own, kills that process or the one it measures in
with SIGKILL, loads what is left, resumes it, and compares the result with the
plan. The scans of ``--real`` cases decode with transformers (model tiny, CPU), all others with the
simulated engine in a real child process. Half of the kills come at a random time after the scan has
its folder, which mostly falls into the start of a process; the other half once a random number of
trials is on the disk, so that they fall among trials. The table is written into
docs/reliability.md between its markers. Needs a system that can fork.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

import psutil

from regimescope.api import resume, scan
from regimescope.errors import RegimescopeError
from regimescope.host.facts import processor_name, versions
from regimescope.records import Run, Trial
from regimescope.report.progress import SilentObserver
from regimescope.spec import ScanSpec
from regimescope.store import HEADER, TRIALS, load_run

PAGE = Path(__file__).parent.parent / "docs" / "reliability.md"
BEGIN, END = "<!-- kills: begin -->", "<!-- kills: end -->"
# Inherited by everything a case starts, so that what is left of it can be found.
MARK = "REGIMESCOPE_CASE"
# A killed scan is resumed within seconds; far more is a hang, which is a finding.
PATIENCE_S = 300.0
# The end of a parent is noticed at once, on a busy machine within seconds.
GONE_S = 30.0

# A simulated trial with its way to the disk and back takes a few milliseconds.
TRIAL_S = 0.005

Victim = Literal["parent", "child"]
SPECS = {
    "simulated": ScanSpec(
        engine="simulated",
        model="smooth",
        budgets=tuple(range(16, 145, 16)),
        prompt_tokens=8,
        processes=2,
        repeats=3,
        isolation="process",
        engine_options={"noise": "none"},
    ),
    "hf": ScanSpec(
        engine="hf",
        model="tiny",
        device="cpu",
        budgets=(8, 16, 24, 32),
        prompt_tokens=8,
        processes=1,
        repeats=3,
        warm_up_s=0.1,
        sentinel_every=0,  # a busy machine would be vetoed, and each veto waits for it to cool
        engine_options={"threads": 1},
    ),
}


class Case(NamedTuple):
    """One kill.

    Attributes:
        engine: Key of ``SPECS``.
        victim: Which process is killed: the scan, or the one it measures in.
        trials: How many trials have to be on the disk first.
        delay_s: After how many seconds from then on.
    """

    engine: str
    victim: Victim
    trials: int
    delay_s: float


class Outcome(NamedTuple):
    """What one kill came to.

    Attributes:
        finished: Trials on the disk when the kill was sent.
        lost: Trials reported as finished that were not on the disk afterwards.
        in_flight: Trials recorded as lost with their process.
        torn: Half-written lines.
        loads: Whether the folder could be loaded at once.
        completes: Whether resuming it gave the whole plan, and kept what was there.
        left: Processes that outlived the case.
        note: What went wrong.
    """

    finished: int
    lost: int
    in_flight: int
    torn: int
    loads: bool
    completes: bool
    left: int
    note: str = ""


class Reporter(SilentObserver):
    """Tells another process of each finished trial, by a pipe that outlives this one."""

    def __init__(self, pipe: int) -> None:
        """Write to a pipe."""
        self._pipe = pipe

    def trial_finished(self, trial: Trial) -> None:
        """Tell the id; the trial is on the disk by now, or it is a finding."""
        os.write(self._pipe, trial.trial_id.encode() + b"\n")


class Forked:
    """A process that runs a call and ends; its reports can be read when it is gone."""

    def __init__(self, call: Callable[[Reporter], object]) -> None:
        """Fork."""
        self._reports, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os._exit(_run(call, writing))
        os.close(writing)
        self.status: int | None = None

    def ended(self) -> bool:
        """Return whether it has ended."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = status if pid else None
        return self.status is not None

    def wait(self, patience_s: float) -> bool:
        """Return whether it ended within a time; end it otherwise."""
        deadline = time.monotonic() + patience_s
        while not self.ended():
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                _, self.status = os.waitpid(self.pid, 0)
                return False
            time.sleep(0.01)
        return True

    def reports(self) -> list[str]:
        """Return the lines it wrote, once it is gone."""
        with os.fdopen(self._reports, "rb") as pipe:
            return pipe.read().decode().split()


def _run(call: Callable[[Reporter], object], writing: int) -> int:
    """Run a call in the forked process and return its exit status."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        call(Reporter(writing))
    except RegimescopeError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def main() -> None:
    """Kill, count, print and write the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kills", type=int, default=200)
    options.add_argument("--real", type=int, default=20)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--page", type=Path, default=PAGE)
    asked = options.parse_args()
    outcomes: dict[tuple[str, Victim], list[Outcome]] = {}
    with tempfile.TemporaryDirectory() as base:
        used = ["hf"] * (asked.real > 0) + ["simulated"] * (asked.real < asked.kills)
        spans = {engine: _span(engine, Path(base)) for engine in used}
        too_late = 0
        rng = random.Random(asked.seed)
        for number in range(asked.kills):
            engine = "hf" if number < asked.real else "simulated"
            victim: Victim = "parent" if number % 2 else "child"
            while True:
                case = draw(rng, engine, victim, spans[engine], among=number % 4 >= 2)
                outcome = kill(case, Path(base) / f"run-{number}")
                if outcome is not None:
                    break
                too_late += 1  # it had ended before; drawn again from the same span
            outcomes.setdefault((engine, victim), []).append(outcome)
            print(number, case, outcome, flush=True)
    table = render(outcomes, asked.seed, too_late)
    print(table)
    write(table, asked.page)
    sys.exit(0 if all(_is_good(o) for group in outcomes.values() for o in group) else 1)


def _is_good(outcome: Outcome) -> bool:
    """Return whether nothing but the trial in flight was lost, and nothing is left."""
    return (
        outcome.loads
        and outcome.completes
        and outcome.lost == 0
        and outcome.left == 0
        and outcome.in_flight <= 1
    )


class Span(NamedTuple):
    """A scan that nobody kills: its trials, and the seconds from its folder to its end."""

    trials: int
    seconds: float


def _span(engine: str, base: Path) -> Span:
    """Measure the span within which a scan can be killed."""
    folder = base / engine
    whole = Forked(lambda reporter: scan(SPECS[engine], out=folder, observer=reporter))
    _wait_for_trials(folder, whole, 0)
    begun_s = time.monotonic()
    whole.wait(PATIENCE_S)
    return Span(len(whole.reports()), time.monotonic() - begun_s)


def draw(rng: random.Random, engine: str, victim: Victim, span: Span, *, among: bool) -> Case:
    """Draw the moment of a kill: in time, or among the trials."""
    if among:
        return Case(engine, victim, rng.randrange(1, span.trials), rng.uniform(0.0, TRIAL_S))
    return Case(engine, victim, 0, rng.uniform(0.0, span.seconds))


def _wait_for_trials(folder: Path, running: Forked, trials: int) -> None:
    """Wait until a scan has its folder and so many trials in it, or has ended."""
    while not running.ended():
        if (folder / HEADER).exists() and _lines(folder) >= trials:
            return
        time.sleep(0.0005)


def _lines(folder: Path) -> int:
    """Return how many trials are on the disk."""
    try:
        return (folder / TRIALS).read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def kill(case: Case, folder: Path) -> Outcome | None:
    """Run one case.

    Returns:
        ``None`` if the scan, or the child to be killed, was gone before its time had come.
    """
    os.environ[MARK] = uuid.uuid4().hex
    while folder.exists():
        folder = folder.with_name(f"{folder.name}x")
    spec = SPECS[case.engine]
    running = Forked(lambda reporter: scan(spec, out=folder, observer=reporter))
    _wait_for_trials(folder, running, case.trials)
    time.sleep(case.delay_s)
    finished = _lines(folder)
    if not _strike(case.victim, running):
        running.wait(PATIENCE_S)
        running.reports()
        return None
    ended = running.wait(PATIENCE_S)
    reported = running.reports()
    note = "" if ended else "the scan hung"
    left = _left(os.environ[MARK])
    return _compare(folder, reported, left, note)._replace(finished=finished)


def _strike(victim: Victim, running: Forked) -> bool:
    """Kill the scan or the process it measures in; return whether there was one."""
    if running.ended():
        return False
    if victim == "parent":
        os.kill(running.pid, signal.SIGKILL)
        return True
    for child in psutil.Process(running.pid).children():
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
        return True
    return False


def _compare(folder: Path, reported: list[str], left: int, note: str) -> Outcome:
    """Load what is left of a killed scan, resume it, and compare both with the plan."""
    try:
        before = load_run(folder)
    except RegimescopeError as error:
        return Outcome(0, len(reported), 0, 0, False, False, left, str(error))
    on_disk = {trial.trial_id for trial in before.trials}
    again = Forked(lambda reporter: resume(folder, observer=reporter))
    ended = again.wait(PATIENCE_S)
    again.reports()
    after = load_run(folder)
    kept = after.trials[: len(before.trials)] == before.trials
    completes = ended and again.status == 0 and kept and is_whole(after)
    return Outcome(
        finished=0,
        lost=len(set(reported) - on_disk),
        in_flight=sum(trial.status != "ok" for trial in after.trials),
        torn=before.torn_lines,
        loads=True,
        completes=completes and before.header.plan == after.header.plan,
        left=left + _left(os.environ[MARK]),
        note=note if completes else f"{note} resumed with status {again.status}, kept {kept}",
    )


def is_whole(run: Run) -> bool:
    """Return whether every planned trial was measured exactly once, sentinels included."""
    if run.header.plan is None:
        return False
    planned = Counter(t.trial_id for p in run.header.plan.processes for t in p.trials)
    warm_ups = {t.trial_id for p in run.header.plan.processes for t in p.trials if t.warmup}
    measured = Counter(t.trial_id for t in run.trials if not t.warmup)
    wanted = {name for name in planned if name not in warm_ups}
    # A sentinel that opens what a kill left of a block comes on top of the plan.
    extra = {t.trial_id for t in run.trials if t.sentinel} - wanted
    return set(measured) - extra == wanted and max(measured.values()) == 1


def _left(mark: str) -> int:
    """Return how many processes of a case outlive it; they are ended."""
    deadline = time.monotonic() + GONE_S
    while True:
        marked = [process for process in psutil.process_iter() if _is_marked(process, mark)]
        if not marked or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    for process in marked:
        process.kill()
    return len(marked)


def _is_marked(process: psutil.Process, mark: str) -> bool:
    """Return whether a process belongs to a case and is not this one."""
    try:
        return (
            process.pid != os.getpid()
            and process.environ().get(MARK) == mark
            and process.status() != psutil.STATUS_ZOMBIE
        )
    except (psutil.Error, OSError):
        return False


def render(outcomes: dict[tuple[str, Victim], list[Outcome]], seed: int, too_late: int) -> str:
    """Return the table with a line of what it was made with."""
    rows = [
        "| scan | killed | kills | before the first trial was on disk | trials on disk by then "
        "| finished trials lost | recorded as lost in flight | torn lines | folders that load "
        "| resumed to the whole plan | processes left |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (engine, victim), group in sorted(outcomes.items()):
        n = len(group)
        sums = [sum(o[k] for o in group) for k in range(4)]  # type: ignore[misc]
        loads, completes = sum(o.loads for o in group), sum(o.completes for o in group)
        left, early = sum(o.left for o in group), sum(not o.finished for o in group)
        rows.append(
            f"| {engine} | {victim} | {n} | {early} "
            f"| {sums[0]} | {sums[1]} | {sums[2]} | {sums[3]} "
            f"| {loads} of {n} | {completes} of {n} | {left} |"
        )
    kills = sum(map(len, outcomes.values()))
    made = (
        f"{kills} kills, seed {seed}; {too_late} more drawn came too late and were drawn again; "
        f"{processor_name()}, {os.cpu_count()} cores; "
        f"regimescope {versions()['regimescope']}. `python scripts/reliability.py --kills {kills}`."
    )
    return "\n".join([made, "", *rows])


def write(table: str, page: Path) -> None:
    """Put the table between its markers."""
    text = page.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    page.write_text(pattern.sub(lambda _: f"{BEGIN}\n\n{table}\n\n{END}", text), encoding="utf-8")


if __name__ == "__main__":
    main()
