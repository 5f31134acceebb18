"""optimum-benchmark: repetitions of one point, a process each file. Layer: ``importers``.

Source: formats, section 2.5. Memory comes from a pass of its own and is not paired with a trial.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from regimescope.errors import UserError
from regimescope.importers.content import Content, Table, at, numbers, whole
from regimescope.importers.foreign import Format, Found, Hints, Place, cell_of, trial
from regimescope.reasons import Reason
from regimescope.records import Cell, Series, Trial

_PARTS = ("generate", "prefill", "decode", "per_token")


class _Point(NamedTuple):
    """What a file measured, and whether the length of the output was forced."""

    cell: Cell
    series: Series
    forced: bool


class _Times(NamedTuple):
    """Seconds of each repetition, by part; empty lists where a part is absent."""

    generate: list[float]
    prefill: list[float]
    decode: list[float]
    per_token: list[float]


def fits(content: Content) -> bool:
    """Return whether a file is of this tool: it has a report with raw times."""
    report = _report(content.first)
    return any(isinstance(at(report, f"{part}.latency.values"), list) for part in _PARTS)


def read(content: Content, hints: Hints) -> Found:
    """Return a measurement for each repetition.

    Raises:
        UserError: The file does not tell the budget, and neither does the user.
    """
    found = Found([], [], Counter())
    table = content.first
    point = _point(content, table, hints)
    report = _report(table)
    times, bad = _times(report)
    found.rejected.extend(f"{part}.latency.values: not a list of positive times" for part in bad)
    if bad:
        return found
    if str(point.series.device or "").startswith("mps"):
        # Prefill ends when it is queued there, so that the two parts cannot be told apart.
        found.trials.extend(_whole(point, times.generate, (Reason.PHASE_UNSYNCHRONIZED,)))
        if times.decode:
            found.dropped["prefill and decode on a device that was not waited for"] += 1
    elif times.decode:
        found.trials.extend(_decoded(found, point, times))
    else:
        found.trials.extend(_whole(point, times.generate, ()))
    return found


FORMAT = Format("optimum-benchmark", fits, read, file_is_process=True)


def _report(table: Table) -> Any:
    """Return the report of a file, which may be the whole file."""
    report = table.get("report")
    return report if isinstance(report, dict) else table


def _point(content: Content, table: Table, hints: Hints) -> _Point:
    """Return what a file measured."""
    scenario = at(table, "config.scenario")
    budget = whole(at(scenario, "generate_kwargs.max_new_tokens"))
    known = {
        "budget": budget,
        "prompt_tokens": whole(at(scenario, "input_shapes.sequence_length")),
        "batch": whole(at(scenario, "input_shapes.batch_size")),
    }
    told = {name: value or None for name, value in known.items()}
    cell = cell_of(told, hints.of(content.path.name))
    if cell.budget is None:
        raise UserError(
            f"{content.path} does not say how many tokens it asked for.",
            remedy="Give --budget, or --pattern with the group budget for names of files.",
        )
    device, name = at(table, "config.backend.device"), at(table, "config.backend.model")
    series = Series(
        engine=str(at(table, "config.backend.name") or "optimum-benchmark"),
        model=str(name) if name else None,
        device=str(device) if device else None,
    )
    least = whole(at(scenario, "generate_kwargs.min_new_tokens"))
    return _Point(cell, series, least == cell.budget)


def _times(report: Any) -> tuple[_Times, list[str]]:
    """Return the times of each part, and the parts whose times are impossible."""
    found: dict[str, list[float]] = {}
    bad = []
    for part in _PARTS:
        raw = at(report, f"{part}.latency.values")
        times = numbers(raw) if raw is not None else []
        found[part] = times or []
        if times is None:
            bad.append(part)
    return _Times(**found), bad


def _whole(point: _Point, times: list[float], reasons: tuple[Reason, ...]) -> list[Trial]:
    """Return the repetitions of whole generations."""
    return [
        trial(
            Place("generate", repeat),
            point.series,
            point.cell,
            "mixed",
            e2e_s=seconds,
            order_index=repeat,
            output_tokens=point.cell.budget if point.forced else None,
            reasons=(Reason.MIXED_PHASES, *reasons),
        )
        for repeat, seconds in enumerate(times)
    ]


def _decoded(found: Found, point: _Point, times: _Times) -> list[Trial]:
    """Return the repetitions with prefill and decode apart, and their gaps where they add up."""
    steps = (point.cell.budget or 1) - 1
    repeats = len(times.decode)
    fitting = bool(times.per_token) and len(times.per_token) == repeats * steps
    if times.per_token and not fitting:
        found.dropped["times per token that are no multiple of the steps"] += len(times.per_token)
    paired = len(times.prefill) == repeats
    return [
        trial(
            Place("decode", repeat),
            point.series,
            point.cell,
            "decode",
            ttft_s=times.prefill[repeat] if paired else None,
            decode_s=seconds,
            decode_steps=steps,
            itl_s=times.per_token[repeat * steps : (repeat + 1) * steps] if fitting else None,
            order_index=repeat,
            output_tokens=point.cell.budget if point.forced else None,
        )
        for repeat, seconds in enumerate(times.decode)
    ]
