"""The rows behind every table, shared by terminal and page. Layer: report.

Cells are finished text: one unit per column, outside strings made plain. How they are laid out is
the business of ``text`` and ``html``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from regimescope.reasons import Reason, meaning
from regimescope.records import Event, Run, RunHeader, Trial
from regimescope.report.display_units import TimeUnit, time_unit
from regimescope.report.escaping import plain
from regimescope.report.measured import axis_value
from regimescope.report.wording import (
    Words,
    axis_words,
    edge_text,
    estimate_basis,
    points_of,
    reason_text,
    regime_kind,
    span,
)
from regimescope.results import Conclusion, Estimate, Point, Range, Regime
from regimescope.units import NS_PER_S, count, listing, ratio, seconds, share, size

# Events that every healthy run has; the others are worth a reader's time.
ROUTINE_EVENTS = frozenset({"process_start", "process_end", "sampling_off", "phase", "done"})

Fact = tuple[str, str]


class PointRow(NamedTuple):
    """One value of the swept axis; ``slow`` if an interval covers it."""

    x: str
    median: str
    fastest: str
    slowest: str
    expected: str
    slowdown: str
    trials: str
    slow: bool


class PointTable(NamedTuple):
    """Points with the unit of their durations.

    Attributes:
        unit: The unit.
        rows: The points shown.
        omitted: How many points are not among them.
        expected: Whether there is an expectation to compare them with.
    """

    unit: TimeUnit
    rows: list[PointRow]
    omitted: int
    expected: bool


class RegimeRow(NamedTuple):
    """One interval of any class."""

    kind: str
    grade: str
    values: str
    onset: str
    recovery: str
    slowdown: str
    basis: str
    peak: str
    against_reference: str
    lost: str
    reasons: list[str]


class EventRow(NamedTuple):
    """Something worth knowing that happened while measuring."""

    at: str
    kind: str
    message: str
    meaning: str


class FailedRow(NamedTuple):
    """A trial without a latency."""

    trial: str
    x: str
    status: str
    message: str


def point_table(conclusion: Conclusion, *, most: int | None = None) -> PointTable:
    """Return the points as rows, ascending.

    Args:
        conclusion: Whose points.
        most: Greatest number of rows, at least 4; all points if ``None``. Slow points, their
            neighbors, and both ends are kept first, then points at even distances. With more
            slow points than that, ends and slowest of every interval stay.
    """
    points = points_of(conclusion)
    slow = [any(_covers(regime, point.x) for regime in conclusion.regimes) for point in points]
    kept = range(len(points)) if most is None else _choose(points, slow, most)
    unit = time_unit(point.latency_s for point in points)
    rows = [_point_row(points[index], unit, slow[index]) for index in kept]
    expected = any(point.expected_s is not None for point in points)
    return PointTable(unit, rows, len(points) - len(rows), expected)


def _point_row(point: Point, unit: TimeUnit, slow: bool) -> PointRow:
    """Return one point as text."""
    return PointRow(
        x=str(point.x),
        median=unit.show(point.latency_s),
        fastest=unit.show(point.low_s),
        slowest=unit.show(point.high_s),
        expected=unit.show(point.expected_s),
        slowdown="-" if point.slowdown is None else ratio(point.slowdown),
        trials=f"{point.n:,}",
        slow=slow,
    )


def _covers(regime: Regime, x: int) -> bool:
    """Tell whether a value surely lies inside an interval."""
    if regime.onset is None and regime.recovery is None:
        return False
    after_onset = regime.onset is None or x >= regime.onset[1]
    return after_onset and (regime.recovery is None or x <= regime.recovery[0])


def _choose(points: tuple[Point, ...], slow: list[bool], most: int) -> list[int]:
    """Return the ascending indices of the rows worth showing."""
    everything = range(len(points))
    if len(points) <= most:
        return list(everything)
    changes = [i for i in everything[1:] if slow[i] != slow[i - 1]]
    borders = [i for change in changes for i in (change - 1, change)]
    inside = [i for i in everything if slow[i]]
    worst = sorted(inside, key=lambda i: points[i].slowdown or 0.0, reverse=True)[:1]
    kept = list(dict.fromkeys([0, len(points) - 1, *worst, *borders, *_evenly(inside, most)]))
    rest = [i for i in everything if i not in set(kept)]
    return sorted([*kept, *_evenly(rest, most - len(kept))][:most])


def _evenly(pool: list[int], most: int) -> list[int]:
    """Return at most ``most`` of some indices at even distances."""
    if len(pool) <= most:
        return pool
    return [pool[round((k + 0.5) * len(pool) / most - 0.5)] for k in range(max(most, 0))]


def regime_rows(conclusion: Conclusion) -> list[RegimeRow]:
    """Return every interval as text, ascending as stored."""
    return [_regime_row(regime, conclusion) for regime in conclusion.regimes]


def _regime_row(regime: Regime, conclusion: Conclusion) -> RegimeRow:
    """Return one interval as text."""
    return RegimeRow(
        kind=regime_kind(regime),
        grade=regime.grade.value,
        values=span(regime) or "all",
        onset=edge_text(regime.onset) if regime.onset else "not seen",
        recovery=edge_text(regime.recovery) if regime.recovery else "not seen",
        slowdown=_ratio(regime.slowdown),
        basis=estimate_basis(regime.slowdown),
        peak=_ratio(regime.peak),
        against_reference="-"
        if regime.ratio_to_reference is None
        else ratio(regime.ratio_to_reference),
        lost="-" if regime.lost_s is None else seconds(max(regime.lost_s, 0.0)),
        reasons=[reason_text(reason, conclusion) for reason in regime.reasons],
    )


def _ratio(estimate: Estimate | None) -> str:
    """Return the value of an estimated ratio, or a dash."""
    return "-" if estimate is None else ratio(estimate.value)


def reason_rows(conclusion: Conclusion) -> list[Fact]:
    """Return the codes that limit the verdict or an interval, each once, with their sentences."""
    everything: list[Reason] = list(conclusion.reasons)
    for regime in conclusion.regimes:
        everything.extend(regime.reasons)
    return [(reason.value, reason_text(reason, conclusion)) for reason in dict.fromkeys(everything)]


def counts_text(run: Run, conclusion: Conclusion) -> str:
    """Return the trials by fate in one line."""
    counts = conclusion.counts
    parts = [
        f"{count(counts.trials, 'trial')} measured",
        f"{counts.failed:,} failed",
        f"{counts.dropped:,} left out",
    ]
    warm_ups = sum(trial.warmup for trial in run.trials)
    if warm_ups:
        parts.append(count(warm_ups, "warm-up"))
    keys = {(trial.occasion, trial.process_run) for trial in run.trials}
    processes = sum(process_run is not None for _, process_run in keys)
    if processes:
        parts.append(f"in {count(processes, 'process run')}")
    if run.torn_lines:
        parts.append(count(run.torn_lines, "torn line"))
    return ", ".join(parts)


def phase_sentences(conclusion: Conclusion) -> list[str]:
    """Return what is known of prefill and decode, one sentence each."""
    phases = conclusion.phases
    if phases is None:
        return []
    sentences = []
    if phases.prefill_share is not None:
        sentences.append(f"prefill takes {share(phases.prefill_share)} of the time")
    if phases.ttft_s is not None:
        sentences.append(f"median TTFT {_duration(phases.ttft_s)}")
    if phases.tpot_s is not None:
        sentences.append(f"median TPOT {_duration(phases.tpot_s)}")
    return sentences


def _duration(spread: Range) -> str:
    """Return a median duration with its extremes and the number behind it."""
    extremes = f"{seconds(spread.low)} to {seconds(spread.high)}"
    return f"{seconds(spread.value)} ({extremes}, n = {spread.n:,})"


def event_rows(run: Run, *, most: int = 50) -> list[EventRow]:
    """Return the events that a healthy run does not have, the last ``most`` of them."""
    words = axis_words(run.header.axis)
    return [_event_row(event, words) for event in notable_events(run)[-most:]]


def notable_events(run: Run) -> list[Event]:
    """Return the events that a healthy run does not have."""
    return [event for event in run.events if event.kind not in ROUTINE_EVENTS]


def _event_row(event: Event, words: Words) -> EventRow:
    """Return one event as text."""
    return EventRow(
        at=plain(event.at_utc),
        kind=event.kind.replace("_", " "),
        message=plain(event.message),
        meaning=meaning(event.reason, one=words.one, many=words.many) if event.reason else "",
    )


def failed_rows(run: Run, conclusion: Conclusion, *, most: int = 20) -> list[FailedRow]:
    """Return the first ``most`` trials that gave no latency."""
    return [
        FailedRow(
            trial=plain(trial.trial_id),
            x="-" if (x := axis_value(trial, conclusion.axis)) is None else str(x),
            status=trial.status,
            message=plain(trial.message or ""),
        )
        for trial in failed_trials(run)[:most]
    ]


def failed_trials(run: Run) -> list[Trial]:
    """Return the trials that failed or ran out of time."""
    return [trial for trial in run.trials if trial.status in ("failed", "timeout")]


def host_rows(header: RunHeader) -> list[Fact]:
    """Return the facts of the machine and of the software that measured."""
    rows = fact_rows(header.host or {})
    return rows + [(plain(name), plain(version)) for name, version in header.versions.items()]


def model_rows(header: RunHeader) -> list[Fact]:
    """Return what was measured: engine, model, and the facts the engine knows of it."""
    rows: list[Fact] = []
    if header.spec:
        rows += fact_rows({"engine": header.spec.engine, "model": header.spec.model})
    if header.model:
        facts = {name: getattr(header.model, name) for name in header.model.__struct_fields__}
        rows += fact_rows(facts)
    return rows


def setting_rows(header: RunHeader) -> list[Fact]:
    """Return the resolved spec, which decides what the numbers mean."""
    if not header.spec:
        return []
    spec = {name: getattr(header.spec, name) for name in header.spec.__struct_fields__}
    for shown_elsewhere in ("engine", "model"):
        del spec[shown_elsewhere]
    return fact_rows(spec)


_SUFFIXES: dict[str, Callable[[float], str]] = {
    "_bytes": size,
    "_s": seconds,
    "_ns": lambda value: seconds(value / NS_PER_S),
    "_hz": lambda value: f"{value / 1e6:,.0f} MHz",
    "_w": lambda value: f"{value:.3g} W",
    "_c": lambda value: f"{value:.3g} C",
}


def fact_rows(facts: Mapping[str, Any], prefix: str = "") -> list[Fact]:
    """Return named facts as text: nested tables flattened, absent and empty values left out.

    Args:
        facts: Values by name; a unit suffix of the name (``_bytes``) decides how it is shown.
        prefix: What the names of a nested table begin with.
    """
    rows: list[Fact] = []
    for key, value in facts.items():
        name = f"{prefix}{plain(key)}"
        if isinstance(value, Mapping):
            rows += fact_rows(value, f"{name}: ")
        elif value is not None and value != "" and value != ():
            rows.append(_fact(name, value))
    return rows


def _fact(name: str, value: Any) -> Fact:
    """Return one fact, its unit taken from the name."""
    for suffix, show in _SUFFIXES.items():
        if name.endswith(suffix) and isinstance(value, int | float) and value >= 0:
            return name.removesuffix(suffix).replace("_", " "), show(value)
    label = name.replace("_", " ")
    if isinstance(value, bool):
        return label, "yes" if value else "no"
    if isinstance(value, int):
        return label, str(value)
    if isinstance(value, list | tuple):
        return label, plain(listing(value, most=24))
    return label, plain(value)
