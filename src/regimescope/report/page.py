"""What the page says, in the order it says it; the template lays it out. Layer: report."""

from __future__ import annotations

import shlex
from typing import Any, NamedTuple

from regimescope.reasons import Reason, meaning
from regimescope.records import Run
from regimescope.report import charts, measured, tables, wording
from regimescope.report.compilation import compilation_sentences
from regimescope.report.display_units import time_unit
from regimescope.report.disturbances import (
    cause_sentences,
    memory_sentences,
    noise_sentences,
)
from regimescope.report.escaping import plain
from regimescope.report.promise import promise_sentences
from regimescope.results import Conclusion, Grade, Verdict
from regimescope.units import count, ratio

# A command line is worth showing whole unless somebody listed budgets one by one.
_LONGEST_COMMAND = 4000


class Figure(NamedTuple):
    """A chart on the page.

    Attributes:
        name: Identifier of its element.
        label: What it shows, for a screen reader.
        caption: The same in numbers, for everybody.
        definition: The Vega-Lite object; absent if there is nothing to draw.
        absent: Why there is nothing to draw.
    """

    name: str
    label: str
    caption: str = ""
    definition: dict[str, Any] | None = None
    absent: str = ""


def page_content(run: Run, conclusion: Conclusion) -> dict[str, Any]:
    """Return everything the template needs, as plain text, rows and figures."""
    points = tables.point_table(conclusion)
    return {
        "title": f"{plain(conclusion.run)}: {conclusion.verdict.value}",
        "subtitle": _subtitle(run, conclusion),
        "tone": _tone(conclusion),
        "headline": wording.headline(conclusion),
        "certificate": wording.certificate_sentence(conclusion),
        "grade": conclusion.grade.value,
        "grade_meaning": wording.GRADE_MEANINGS[conclusion.grade],
        "grades": [(grade.value, text) for grade, text in wording.GRADE_MEANINGS.items()],
        "latency": _latency_figure(run, conclusion),
        "axis": wording.axis_words(conclusion.axis),
        "regimes": tables.regime_rows(conclusion),
        "points": points.rows,
        "point_unit": points.unit.name,
        "compared": points.expected,
        "gaps": _gap_figures(run, conclusion),
        "phases": _phase_figure(conclusion),
        "phase_sentences": tables.phase_sentences(conclusion),
        "disturbances": [
            *noise_sentences(conclusion),
            *compilation_sentences(run),
            *cause_sentences(conclusion),
            *memory_sentences(conclusion),
        ],
        "promise": promise_sentences(conclusion),
        "reasons": tables.reason_rows(conclusion),
        "counts": tables.counts_text(run, conclusion),
        "failed": tables.failed_rows(run, conclusion),
        "failed_total": len(tables.failed_trials(run)),
        "baseline": _baseline_sentence(conclusion),
        "model_facts": tables.model_rows(run.header),
        "setting_facts": tables.setting_rows(run.header),
        "host_facts": tables.host_rows(run.header),
        "command": _command(run),
        "source": plain(run.header.source),
        "created": plain(run.header.created_utc),
        "events": tables.event_rows(run),
        "events_total": len(tables.notable_events(run)),
    }


def figures(content: dict[str, Any]) -> list[Figure]:
    """Return the figures of a page that have something to draw."""
    every: list[Figure] = [content["latency"], *content["gaps"], content["phases"]]
    return [figure for figure in every if figure.definition is not None]


def _tone(conclusion: Conclusion) -> str:
    """Return how the verdict is colored: good, bad or open."""
    if conclusion.verdict is Verdict.CLEAN:
        return "good"
    proven = conclusion.grade is not Grade.C and conclusion.verdict is not Verdict.INCONCLUSIVE
    return "bad" if proven else "open"


def _subtitle(run: Run, conclusion: Conclusion) -> str:
    """Return run, model, engine and device in one line."""
    spec, model = run.header.spec, run.header.model
    parts = [conclusion.run]
    if spec:
        parts += [spec.model, spec.engine]
    if model:
        parts += [model.device, model.dtype]
    return plain(" / ".join(plain(part) for part in parts))


def _latency_figure(run: Run, conclusion: Conclusion) -> Figure:
    """Return the chart of latency against the swept axis."""
    names, latency = wording.axis_words(conclusion.axis), wording.latency_word(conclusion)
    label = f"{latency} by {names.one}"
    chart = charts.latency_chart(run, conclusion)
    if chart is None:
        absent = "No trial gave a latency, so there is no curve to draw."
        return Figure("latency", label, absent=absent)
    caption = _latency_caption(run, conclusion)
    return Figure("latency", label, caption, _defined(chart, caption))


def _latency_caption(run: Run, conclusion: Conclusion) -> str:
    """Describe the curve in words, and say what is not drawn."""
    names, points = wording.axis_words(conclusion.axis), wording.points_of(conclusion)
    sentences = []
    if points:
        slowest = max(points, key=lambda point: point.slowdown or 0.0)
        unit = time_unit([slowest.latency_s])
        sentences.append(f"{len(points)} {names.many} from {points[0].x} to {points[-1].x}.")
        if slowest.slowdown is not None:
            sentences.append(
                f"Furthest above its expectation: {names.one} {slowest.x} with "
                f"{unit.show(slowest.latency_s)} {unit.name}, {ratio(slowest.slowdown)}."
            )
    shown = len(measured.on_curve(run, conclusion).trials)
    if shown > charts.MOST_TRIALS:
        sentences.append(
            f"Of {shown:,} trials at most {charts.MOST_TRIALS:,} are drawn, "
            "the fastest and slowest among them."
        )
    warm_ups = sum(trial.warmup for trial in run.trials)
    if warm_ups:
        sentences.append(f"{count(warm_ups, 'warm-up trial')} not drawn.")
    return " ".join(sentences)


def _gap_figures(run: Run, conclusion: Conclusion) -> list[Figure]:
    """Return the maps of gaps between tokens: by the median and by the longest gap of a cell."""
    grid = charts.gap_grid(run, conclusion)
    label = "gaps between tokens"
    if grid is None:
        return [Figure("gaps", label, absent=f"Not drawn: {meaning(Reason.NO_TRACES)}.")]
    axis = measured.trace_axis(run, conclusion)
    total, unit = int(grid.gaps.sum()), time_unit([float(grid.longest_s[grid.gaps > 0].max())])
    texts: dict[charts.GapKind, str] = {
        "median": f"Median of {total:,} gaps by step and {wording.axis_words(axis).one}: "
        "bright where steps are slow throughout.",
        "longest": "Longest gap of the same cells: single slow steps that a median hides. "
        f"Longest of all: {unit.show(float(grid.longest_s[grid.gaps > 0].max()))} {unit.name}.",
    }
    return [
        Figure(
            f"gaps-{kind}",
            f"{kind} {label}",
            caption,
            _defined(charts.gap_chart(grid, axis, kind), caption),
        )
        for kind, caption in texts.items()
    ]


def _phase_figure(conclusion: Conclusion) -> Figure:
    """Return the chart of the shares of prefill and decode."""
    label = f"share of prefill and decode by {wording.axis_words(conclusion.axis).one}"
    chart = charts.phase_chart(conclusion)
    if chart is None:
        if conclusion.phases and conclusion.phases.by_value:
            return Figure("phases", label, absent="Not drawn: they are known of one value only.")
        return Figure("phases", label, absent=f"Not drawn: {meaning(Reason.MIXED_PHASES)}.")
    return Figure("phases", label, "", _defined(chart, label))


def _defined(chart: Any, description: str) -> dict[str, Any]:
    """Return the Vega-Lite object that fills its element, with its text alternative."""
    return charts.definition(chart, width="container") | {"description": description}


def _baseline_sentence(conclusion: Conclusion) -> str:
    """Say what the expectation of this run is."""
    baseline = conclusion.baseline
    if baseline is None or baseline.degree is None:
        return "No expected curve could be drawn from these measurements."
    sentence = f"The expected curve of this run is a polynomial of degree {baseline.degree}"
    if baseline.spread is None:
        return f"{sentence}."
    return f"{sentence}; normal points scatter around it by {100 * baseline.spread:.1f} %."


def _command(run: Run) -> str | None:
    """Return the command line that repeats the run, quoted for a shell."""
    # A header may come from a stranger; what is not ours is not put before people to be copied.
    command = run.header.command or []
    if command[:2] != ["regimescope", "scan"]:
        return None
    words = (plain(word, limit=_LONGEST_COMMAND) for word in command)
    return plain(shlex.join(words), limit=_LONGEST_COMMAND)
