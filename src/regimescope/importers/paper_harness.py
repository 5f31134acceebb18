"""The harness of arXiv 2605.08913: CSV, or a list in JSON. Layer: ``importers``.

Source: formats, section 2.1. One server process per budget, so that budget and process cannot be
told apart; means without their runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from regimescope.importers.content import Content, above_zero, number, whole
from regimescope.importers.foreign import Format, Found, Hints, Place, settings, trial
from regimescope.reasons import Reason
from regimescope.records import Cell, Phase, Series
from regimescope.spec import KvCache

_DECISIVE = {"execution_mode", "max_tokens", "avg_latency"}
_MIB = 1024 * 1024
_MEMORY = {
    "rss": "peak_cpu_rss_mb",
    "live": "peak_mps_allocated_mb",
    "system": "peak_system_memory_mb",
}
_TRUE, _FALSE = {"true", "1"}, {"false", "0"}


def fits(content: Content) -> bool:
    """Return whether a file is of this harness."""
    row = next(_rows(content), None)
    return row is not None and row[1].keys() >= _DECISIVE


def read(content: Content, hints: Hints) -> Found:
    """Return a measurement for each row; ``hints`` tell the prompt, of which there is a name."""
    found = Found([], [], Counter())
    told = hints.of(content.path.name)
    for place, row in _rows(content):
        budget, seconds = whole(row.get("max_tokens")), above_zero(row.get("avg_latency"))
        if not budget or seconds is None:
            found.rejected.append(f"{place}: no max_tokens or no positive avg_latency")
            continue
        prefill, decode = (
            above_zero(row.get(name)) for name in ("avg_prefill_time", "avg_decode_time")
        )
        device, _, dtype = str(row.get("execution_mode") or "").partition("-")
        split = prefill is not None and decode is not None
        phase: Phase = "decode" if split else "mixed"
        found.trials.append(
            trial(
                Place(place),
                Series(
                    engine="paper harness",
                    model=str(row.get("model") or "") or None,
                    device=device or None,
                    dtype=dtype or None,
                ),
                Cell(
                    budget=budget,
                    prompt_tokens=told.get("prompt_tokens"),
                    batch=whole(row.get("offered_load")),
                    kv_cache=_cache(row.get("use_cache")),
                ),
                phase,
                ttft_s=prefill if split else None,
                decode_s=decode if split else None,
                e2e_s=seconds,
                # The loop passes over any end-of-sequence token.
                output_tokens=budget,
                decode_steps=budget - 1 or None,
                memory_bytes=_memory(row),
                reasons=_reasons(row),
                env=settings(prompt=row.get("prompt_name")),
            )
        )
    return found


FORMAT = Format("harness of arXiv 2605.08913", fits, read)


def _rows(content: Content) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows of either form, with where each stands."""
    if content.objects:
        yield from ((f"[{k}]", row) for k, row in enumerate(content.objects))
    else:
        yield from ((f"row {k + 2}", row) for k, row in enumerate(content.rows()))


def _reasons(row: Mapping[str, Any]) -> Iterator[Reason]:
    """Yield what limits a row."""
    yield Reason.SUMMARY_STATISTICS_ONLY
    yield Reason.BUDGET_EQUALS_PROCESS
    rate = number(row.get("success_rate"))
    if rate is not None and rate < 100:
        yield Reason.BACKEND_FAILURES


def _cache(value: Any) -> KvCache | None:
    """Return whether the KV cache was on, where the row says so."""
    text = str(value).strip().lower()
    return "on" if text in _TRUE else "off" if text in _FALSE else None


def _memory(row: Mapping[str, Any]) -> dict[str, int] | None:
    """Return the peaks in bytes. The one of MPS counts live tensors, not what is reserved."""
    found = {
        kind: round(value * _MIB)
        for kind, key in _MEMORY.items()
        if (value := above_zero(row.get(key))) is not None
    }
    return found or None
