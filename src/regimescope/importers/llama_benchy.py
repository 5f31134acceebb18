"""llama-benchy, JSON: rates of an OpenAI-compatible server. Layer: ``importers``.

Source: formats, section 2.15. How many tokens came is not in the file, only seconds per token, so
that a measurement is the time of one step, and the budget a limit that nobody verified.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from regimescope.importers.content import Content, above_zero, at, numbers, whole
from regimescope.importers.foreign import Format, Found, Hints, Place, settings, trial
from regimescope.reasons import Reason
from regimescope.records import Cell, Series


def fits(content: Content) -> bool:
    """Return whether a file is of this tool."""
    first = content.first
    rows = first.get("benchmarks")
    return (
        "latency_mode" in first
        and isinstance(rows, list)
        and any(isinstance(row, Mapping) and "response_size" in row for row in rows)
    )


def read(content: Content, hints: Hints) -> Found:
    """Return the time of a step for each run of each benchmark; ``hints`` are not needed."""
    found = Found([], [], Counter())
    table = content.first
    for ordinal, row in enumerate(table["benchmarks"]):
        if not isinstance(row, Mapping):
            found.rejected.append(f"benchmarks[{ordinal}]: no table")
            continue
        if row.get("is_context_prefill_phase") is True:
            found.dropped["prefill of the context, a phase of its own"] += 1
            continue
        if whole(row.get("concurrency")) not in (None, 1):
            found.dropped["several requests at a time, whose rate is a sum"] += 1
            continue
        _read_row(f"benchmarks[{ordinal}]", row, table, found)
    return found


FORMAT = Format("llama-benchy", fits, read)


def _read_row(place: str, row: Mapping[str, Any], table: Mapping[str, Any], found: Found) -> None:
    """Add the measurements of one benchmark."""
    rates, budget = _rates(row), whole(row.get("response_size"))
    if not rates or not budget:
        found.rejected.append(f"{place}: no response_size or no positive tg_throughput")
        return
    is_summary = not numbers(at(row, "tg_throughput.values"))
    reasons = [Reason.TOKENS_NOT_VERIFIED, Reason.CLIENT_SIDE_TIMES]
    if table.get("prefix_caching_enabled") is not False:
        reasons.append(Reason.CACHED_PROMPT_UNKNOWN)
    if is_summary:
        reasons.append(Reason.SUMMARY_STATISTICS_ONLY)
    prompt = whole(row.get("prompt_size")) or None
    cell = Cell(budget=budget, prompt_tokens=prompt, depth=whole(row.get("context_size")), batch=1)
    for repeat, rate in enumerate(rates):
        found.trials.append(
            trial(
                Place(place, repeat),
                Series(engine="llama-benchy", model=str(table.get("model") or "") or None),
                cell,
                "decode",
                decode_s=1.0 / rate,
                decode_steps=1,
                reasons=reasons,
                env=settings(latency_mode=table.get("latency_mode")),
            )
        )


def _rates(row: Mapping[str, Any]) -> list[float]:
    """Return tokens per second of each run, or their mean alone."""
    raw = numbers(at(row, "tg_throughput.values"))
    if raw:
        return raw
    mean = above_zero(at(row, "tg_throughput.mean"))
    return [] if mean is None else [mean]
