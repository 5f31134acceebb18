"""What ``doctor`` found, for a terminal of 80 columns. Layer: ``report``."""

from __future__ import annotations

from itertools import groupby

from rich.console import Console
from rich.table import Table

from regimescope.host.examination import Counters, Examination
from regimescope.report.escaping import plain
from regimescope.report.text import MOST_WIDTH, Screen
from regimescope.units import listing, ratio, seconds, share


def print_examination(console: Console, found: Examination) -> None:
    """Print one table: what was examined, what came of it, and what to fix."""
    screen = Screen(min(console.width, MOST_WIDTH), console.encoding)
    grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for head, lines in _sections(found):
        for number, line in enumerate(lines):
            label = screen.text("" if number else head, "bold")
            grid.add_row(label, screen.text(plain(line)))
    console.print(grid, width=screen.width, highlight=False)


def _sections(found: Examination) -> list[tuple[str, list[str]]]:
    """Return the heads with their lines."""
    sections = [
        ("engines", [_engine(e.name, e.state, e.install) for e in found.engines]),
        ("devices", [listing(found.devices)]),
        ("examined", [f"{found.engine}, {found.model} on {found.device}: {found.description}"]),
        ("versions", [listing((f"{k} {v}" for k, v in found.versions.items()), most=12)]),
        (
            "timer",
            [
                f"resolution {seconds(found.timer.resolution_s)}, "
                f"a reading costs {seconds(found.timer.cost_s)}"
            ],
        ),
        ("synchronization", _synchronization(found)),
        ("noise floor", _noise(found)),
        ("counters", _read(found.counters)),
        ("absent", _absent(found.counters)),
        ("busy programs", _busy(found)),
    ]
    if found.calls:
        sections.append(("for a report", _calls(found)))
    return [*sections, ("to fix", list(found.to_fix) or ["nothing"])]


def _engine(name: str, state: str, install: str) -> str:
    """Return the line of an engine."""
    return f"{name}: {state}" if state == "installed" else f"{name}: {state}; {install}"


def _synchronization(found: Examination) -> list[str]:
    """Return what the check of waiting showed."""
    sync = found.synchronization
    times = f"{sync.steps} steps stamped {seconds(sync.stamped_s)}"
    if sync.queued_s is not None:
        times += f", queued {seconds(sync.queued_s)}"
    failed = "FAILED: " if sync.verdict == "does not wait" else ""
    return [f"{failed}{sync.verdict}; {sync.reason}", times]


def _noise(found: Examination) -> list[str]:
    """Return what the short trials showed."""
    noise = found.noise
    return [
        f"{noise.trials} trials of {noise.budget} tokens, step {seconds(noise.step_s)}",
        f"spread {share(noise.spread)}, accidents {share(noise.accident_share)} of trials",
        f"smallest slowdown to be seen: {ratio(noise.visible_3)} with 3 processes, "
        f"{ratio(noise.visible_6)} with 6",
        "(three standard errors; processes may differ more than trials of one do)",
    ]


def _busy(found: Examination) -> list[str]:
    """Return the programs that use the processor."""
    return [f"{b.name} (PID {b.pid}): {b.cores:.2f} cores" for b in found.busy] or ["none"]


def _read(counters: Counters) -> list[str]:
    """Return the sources that are read, with the cost of a reading."""
    lines = [
        f"{source} ({seconds(counters.costs_s[source])}): {listing(names, most=20)}"
        for source, names in counters.read.items()
    ]
    lines.append(f"engine: {listing(counters.engine, most=20) or 'none'}")
    during = "read between steps too" if counters.sampled else "only around trials: too slow"
    return [*lines, f"a reading between steps costs {seconds(counters.sample_cost_s)}; {during}"]


def _absent(counters: Counters) -> list[str]:
    """Return the reasons, each with the counters that it keeps away."""
    rows = sorted((reason, name) for name, reason in counters.absent.items())
    return [
        f"{reason}: {listing((name for _, name in group), most=20)}"
        for reason, group in groupby(rows, key=lambda row: row[0])
    ] or ["none"]


def _calls(found: Examination) -> list[str]:
    """Return the block that a user pastes into a report."""
    return [f"{'ok  ' if c.works else 'FAIL'} {c.name} -> {c.result}" for c in found.calls]
