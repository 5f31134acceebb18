"""A public report retyped as TOML: one sweep with what is known of its design. Layer: importers.

Source: formats, sections 0 and 1 (case TOML). The verdict that such a file expects, and the other
curves beside the one in question, are not read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regimescope import axes
from regimescope.importers.case_file import (
    CaseFile,
    Row,
    case_rows,
    failed_values,
    read_case_file,
)
from regimescope.importers.case_units import Quantity, Timing, to_timing
from regimescope.reasons import Reason
from regimescope.records import SCHEMA_VERSION, Cell, Run, RunHeader, Series, Trial
from regimescope.spec import Axis
from regimescope.units import utc_now

_AXES: dict[str, Axis] = {
    "budget": "budget",
    "context": "context",
    "depth": "context",
    "prompt": "prompt",
    "batch": "batch",
    "capacity": "capacity",
    "time": "time",
}
_MONOTONE = {"ascending", "descending"}
_UNORDERED = {"unknown", ""}
_TAIL = re.compile(r"percentile|\bp9\d", re.IGNORECASE)
_SUMMARY = re.compile(r"\b(mean|median|average) (of|over)\b", re.IGNORECASE)


def read_case(path: Path) -> Run:
    """Read one case file.

    Args:
        path: UTF-8 TOML with ``id``, ``axis``, ``phase``, ``unit``, ``better`` and measurements
            under ``points``, ``samples``, ``plateaus`` or ``[[run]]``.

    Returns:
        A run of trials. A ``[[run]]`` is a process, or an occasion if each of its points had a
        process of its own. What the file does not say stays absent.

    Raises:
        InputError: A key or a number is impossible.
        UserError: The file cannot be read or is no TOML.
    """
    case = read_case_file(path)
    rows = case_rows(path, case)
    header = RunHeader(
        schema_version=SCHEMA_VERSION,
        run=case.id,
        created_utc=utc_now(),
        axis=_AXES[case.axis],
        source="case",
    )
    axis = _AXES[case.axis]
    quantity = Quantity(axis, case.phase, case.unit, case.tokens_per_measure)
    places = _places(case, rows)
    trials = [
        _trial(case, row, place, to_timing(quantity, row.x, row.value), path.name)
        for row, place in zip(rows, places, strict=True)
    ]
    for k, (x, what) in enumerate(failed_values(path, case)):
        trials.append(_failure(case, x, what, k, path.name))
    return Run(header=header, trials=tuple(trials))


def _places(case: CaseFile, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return occasion, process, block and order of each row, as far as the file tells."""
    ordered = case.order not in _UNORDERED
    process: dict[tuple[int | None, int], int] = {}
    visits: Counter[int | None] = Counter()
    found = []
    each = _process_each(case, rows)
    for row in rows:
        of_run = case.run[row.run] if row.run is not None else None
        known: dict[str, Any] = {}
        if of_run is not None and of_run.process_per_point:
            known["occasion"] = of_run.id or f"run {row.run}"
            known["process_run"] = process.setdefault((row.run, row.x), len(process))
        elif of_run is not None:
            known["process_run"] = row.run
        elif each:
            known["process_run"] = process.setdefault((None, row.x), len(process))
        elif case.processes == 1:
            known["process_run"] = 0
        if row.run is not None:
            known["block"] = row.run
        if ordered:
            at = known.get("process_run")
            known["order_index"] = visits[at]
            visits[at] += 1
        found.append(known)
    return found


def _process_each(case: CaseFile, rows: Sequence[Row]) -> bool:
    """Return whether every row had a process of its own: as many processes as single rows."""
    single = max(Counter(row.x for row in rows).values()) == 1
    return single and case.samples_per_point == 1 and case.processes == len(rows) > 1


def _trial(case: CaseFile, row: Row, place: dict[str, Any], timing: Timing, occasion: str) -> Trial:
    """Return the record of one number."""
    duration = {"decode": "decode_s", "prefill": "ttft_s"}.get(case.phase, "e2e_s")
    # Where the number is the time that x tokens take, x tokens were decoded. A limit alone does
    # not say how many tokens came.
    counted = _AXES[case.axis] == "budget" and case.phase == "decode" and timing.total
    values: dict[str, Any] = {
        "trial_id": f"{row.key}.{row.repeat}",
        "occasion": occasion,
        duration: timing.seconds,
        "decode_steps": timing.steps if case.phase == "decode" else None,
        "output_tokens": row.x if counted else None,
        "reasons": _reasons(case) or None,
    }
    if case.run or case.samples or row.repeat:
        values["trial_id"] = f"{row.key}.{row.x}.{row.repeat}"
    if case.plateaus and not case.run:
        values["trial_id"] = f"{row.key}.{row.x}"
    return _record(case, row.x, repeat=row.repeat, status="ok", **(values | place))


def _failure(case: CaseFile, x: int, what: str, number: int, occasion: str) -> Trial:
    """Return the record of a value at which there is no number."""
    return _record(
        case,
        x,
        trial_id=f"failures[{number}]",
        occasion=occasion,
        status="failed",
        message=what,
    )


def _record(case: CaseFile, x: int, **values: Any) -> Trial:
    axis = _AXES[case.axis]
    foreign = case.axis_unit is not None or axis not in axes.LAWS
    env: dict[str, Any] = {"metric": case.metric, "unit": case.unit}
    if foreign:
        # Not in the unit of the record's field; the value itself is what the axis shows.
        env |= {"x": x, "axis_unit": case.axis_unit or axis}
    return Trial(
        series=Series(
            engine=case.stack.get("engine", "case"),
            model=case.stack.get("model"),
            device=case.stack.get("hardware"),
        ),
        cell=Cell() if foreign else axes.at(Cell(), axis, x),
        warmup=False,
        phase=case.phase,
        env=env,
        **values,
    )


def _reasons(case: CaseFile) -> list[Reason]:
    """Return what the design and the form of the numbers limit."""
    found = []
    raw = bool(case.run or case.samples)
    if case.order in _MONOTONE:
        found += [Reason.FIXED_ORDER, Reason.TIME_AND_AXIS_CONFOUNDED]
    if case.rounded:
        found.append(Reason.ROUNDED_VALUES)
    if case.phase == "kernel":
        found.append(Reason.KERNEL_ONLY)
    if case.spread or (not raw and _SUMMARY.search(case.metric)):
        found.append(Reason.SUMMARY_STATISTICS_ONLY)
    if _TAIL.search(case.metric):
        found.append(Reason.TAIL_STATISTIC)
    if any("speculative" in text.lower() for text in case.stack.values()):
        found.append(Reason.SPECULATIVE_DECODING)
    return found
