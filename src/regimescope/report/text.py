"""The summary a terminal shows. Layer: report.

Everything is built from rich ``Text`` objects, whose content is never parsed as markup, so a model
name in square brackets stays a name. Colors appear on a terminal only and not under NO_COLOR.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from regimescope.records import Run
from regimescope.report import tables, wording
from regimescope.report.compilation import compilation_sentences
from regimescope.report.disturbances import (
    cause_sentences,
    memory_sentences,
    noise_sentences,
)
from regimescope.report.escaping import encodable, plain
from regimescope.report.promise import promise_sentences
from regimescope.report.terminal_chart import EXPECTED_MARK, MEDIAN_MARK, draw_curve
from regimescope.results import Conclusion, Grade, Verdict
from regimescope.units import count

# Wider lines are harder to read, and the curve gains nothing from more columns.
MOST_WIDTH = 100
# A table that scrolls the verdict off the screen is worse than a cut one.
MOST_ROWS = 20

_ALARMING = {Verdict.SPIKE, Verdict.STEP, Verdict.RAMP, Verdict.BIMODAL}


class EngineRow(Protocol):
    """What is shown of an engine."""

    @property
    def name(self) -> str:
        """Name in specs and on the command line."""
        ...

    @property
    def state(self) -> str:
        """Whether the modules it needs are there."""
        ...

    @property
    def install(self) -> str:
        """The line that installs it."""
        ...

    @property
    def description(self) -> str:
        """One line for people."""
        ...


class Screen(NamedTuple):
    """What the terminal can show: columns, and the characters of its encoding."""

    width: int
    encoding: str

    @property
    def ascii_only(self) -> bool:
        """Whether lines and marks must be drawn in ASCII."""
        return not self.encoding.lower().startswith("utf")

    def text(self, content: str, style: str = "") -> Text:
        """Return text that the terminal can encode."""
        return Text(encodable(content, self.encoding), style=style)


def print_conclusion(
    console: Console,
    run: Run,
    conclusion: Conclusion,
    *,
    folder: Path | None = None,
    report_path: Path | None = None,
) -> None:
    """Print verdict, curve, points, phases, reasons, counts and where the files are.

    Args:
        console: Where to print; its width, encoding and color decide the looks.
        run: The measurements.
        conclusion: The verdict on them.
        folder: The run folder, if there is one.
        report_path: The page, if it was written.
    """
    screen = Screen(min(console.width, MOST_WIDTH), console.encoding)
    files = [("run folder", folder), ("report", report_path)]
    parts = [
        *_verdict(screen, run, conclusion),
        *_curve(screen, conclusion),
        *_points(screen, conclusion),
        *_notes(screen, run, conclusion),
    ]
    console.print(Group(*parts), width=screen.width, highlight=False)
    for name, path in files:
        if path:
            # Never broken over lines: a path is there to be copied.
            console.print(screen.text(f"{name}: {plain(path)}"), soft_wrap=True, highlight=False)


def _verdict(screen: Screen, run: Run, conclusion: Conclusion) -> list[RenderableType]:
    """Return the name of the run, the headline, and what stands without a curve."""
    if conclusion.verdict is Verdict.CLEAN:
        style = "bold green"
    elif conclusion.verdict in _ALARMING and conclusion.grade is not Grade.C:
        style = "bold red"
    else:
        style = "bold yellow"
    parts: list[RenderableType] = [
        screen.text(_name(run, conclusion), "dim"),
        screen.text(wording.headline(conclusion), style),
    ]
    certificate = wording.certificate_sentence(conclusion)
    return [*parts, screen.text(certificate)] if certificate else parts


def _name(run: Run, conclusion: Conclusion) -> str:
    """Return run, model, device and element type in one line."""
    spec, model = run.header.spec, run.header.model
    parts = [conclusion.run]
    if spec:
        parts += [spec.model, spec.engine]
    if model:
        parts += [model.device, model.dtype]
    return plain(" / ".join(plain(part) for part in parts))


def _curve(screen: Screen, conclusion: Conclusion) -> list[RenderableType]:
    """Return the plot of medians and expectation, with its key above it."""
    table = tables.point_table(conclusion)
    points = wording.points_of(conclusion)
    drawn = draw_curve(points, table.unit, width=screen.width, ascii_only=screen.ascii_only)
    if drawn is None:
        return []
    name, latency = wording.axis_words(conclusion.axis).one, wording.latency_word(conclusion)
    key = f"{latency} ({table.unit.name}) by {name}: {MEDIAN_MARK} median"
    if any(point.expected_s is not None for point in points):
        key += f", {EXPECTED_MARK} expected"
    return [Text(), screen.text(key, "dim"), Text(encodable(drawn, screen.encoding))]


def _points(screen: Screen, conclusion: Conclusion) -> list[RenderableType]:
    """Return the table of points, cut to a screen, with a note when it was cut."""
    table = tables.point_table(conclusion, most=MOST_ROWS)
    if not table.rows:
        return []
    unit = table.unit.name
    heads = [wording.axis_words(conclusion.axis).one, f"median ({unit})"]
    # From too few values no curve follows, and a ratio to it would be a claim.
    compared = [f"expected ({unit})", "ratio"] if table.expected else []
    grid = _grid(screen, [*heads, *compared, "n", ""])
    for row in table.rows:
        against = [row.expected, row.slowdown] if table.expected else []
        mark = "slow" if row.slow else ""
        cells = [row.x, row.median, *against, row.trials, mark]
        grid.add_row(*cells, style="bold" if row.slow else None)
    parts: list[RenderableType] = [Text(), grid]
    if table.omitted:
        note = f"{table.omitted:,} more rows left out; the JSON output holds them all"
        parts.append(screen.text(note, "dim"))
    return parts


def _grid(screen: Screen, heads: Sequence[str]) -> Table:
    """Return an empty table with numbers to the right and nothing that needs box characters."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for head in heads:
        grid.add_column(screen.text(head), justify="right" if head else "left", overflow="fold")
    return grid


def _notes(screen: Screen, run: Run, conclusion: Conclusion) -> list[RenderableType]:
    """Return phases, disturbances, reasons, what grade C means, counts and events."""
    phases = tables.phase_sentences(conclusion)
    reasons = tables.reason_rows(conclusion)
    parts: list[RenderableType] = [Text()]
    if phases:
        parts.append(screen.text("; ".join(phases)))
    disturbances = [
        *noise_sentences(conclusion),
        *compilation_sentences(run),
        *cause_sentences(conclusion),
        *memory_sentences(conclusion),
    ]
    if disturbances:
        parts.append(screen.text("what disturbed it, and what it follows:", "bold"))
        parts += _bullets(screen, disturbances)
    if reasons:
        parts.append(screen.text("limits of this verdict:", "bold"))
        parts += _bullets(screen, (f"{sentence} ({code})" for code, sentence in reasons))
    promise = promise_sentences(conclusion)
    if promise:
        parts.append(screen.text("what this search promises:", "bold"))
        parts += _bullets(screen, promise)
    if conclusion.grade is Grade.C:
        parts.append(screen.text(f"grade C: {wording.GRADE_MEANINGS[Grade.C]}", "dim"))
    parts.append(screen.text(tables.counts_text(run, conclusion)))
    events = tables.notable_events(run)
    if events:
        heading = f"{count(len(events), 'event')} worth a look, the latest last:"
        parts.append(screen.text(heading, "bold"))
        shown = tables.event_rows(run, most=5)
        parts += _bullets(screen, (f"{row.kind}: {row.message}" for row in shown))
    return parts


def _bullets(screen: Screen, lines: Iterable[str]) -> list[RenderableType]:
    """Return a list whose long items are indented under themselves."""
    items: list[RenderableType] = []
    for line in lines:
        item = Table.grid(padding=(0, 1))
        item.add_row(Text("-"), screen.text(line))
        items.append(Padding(item, (0, 0, 0, 2)))
    return items


def print_engines(console: Console, engines: Iterable[EngineRow]) -> None:
    """Print the engines, their state, and the install line of those that are missing."""
    screen = Screen(min(console.width, MOST_WIDTH), console.encoding)
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for head in ("engine", "state", "what it is, or how to install it"):
        grid.add_column(head, overflow="fold")
    for engine in engines:
        missing = engine.state == "missing"
        last = engine.install if missing else engine.description
        style = "yellow" if missing else "green"
        cells = (screen.text(plain(engine.name)), screen.text(plain(engine.state), style))
        grid.add_row(*cells, screen.text(plain(last)))
    console.print(grid, width=screen.width, highlight=False)
