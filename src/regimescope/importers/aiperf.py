"""AIPerf's records of requests (``profile_export.jsonl``). Layer: ``importers``.

Source: formats, section 2.10. Every value carries its unit; ``inter_chunk_latency`` is a list, one
number a message of the stream, and is absent where nothing was streamed.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec.structs import replace

from regimescope.errors import UserError
from regimescope.importers.content import Content, Table, above_zero, at, numbers, whole
from regimescope.importers.foreign import Format, Found, Hints, Place, cell_of, gaps, trial
from regimescope.reasons import Reason
from regimescope.records import Cell, Series, Trial
from regimescope.units import listing

_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_MEASURED = "profiling"


def fits(content: Content) -> bool:
    """Return whether a file is of this tool."""
    record = content.first
    return (
        at(record, "metadata.benchmark_phase") is not None
        and at(record, "metrics.request_latency") is not None
    )


def read(content: Content, hints: Hints) -> Found:
    """Return a measurement for each request that belongs to the profile.

    Raises:
        UserError: A time has an unknown unit.
    """
    found = Found([], [], Counter())
    lengths = hints.of(content.path.name)
    ordered = sorted(enumerate(content.objects), key=lambda pair: _start(pair[1]))
    for order, (k, record) in enumerate(ordered):
        phase = at(record, "metadata.benchmark_phase")
        if phase != _MEASURED:
            found.dropped[f"phase {phase}"] += 1
        elif at(record, "metadata.was_cancelled") is True:
            found.dropped["canceled"] += 1
        elif record.get("error"):
            found.dropped["ended in an error"] += 1
        else:
            _add(found, content, Place(f"[{k}]"), record, lengths, order)
    return found


FORMAT = Format("aiperf", fits, read)


def _start(record: Table) -> int:
    return whole(at(record, "metadata.request_start_ns")) or 0


def _add(
    found: Found,
    content: Content,
    place: Place,
    record: Table,
    lengths: dict[str, int],
    order: int,
) -> None:
    """Add one request, or say why it is none."""
    metrics = record.get("metrics")
    e2e_s = _seconds(content, metrics, "request_latency")
    ttft_s = _seconds(content, metrics, "time_to_first_token")
    if e2e_s is None or (ttft_s is not None and ttft_s > e2e_s):
        found.rejected.append(f"{place.key}: no positive request_latency")
        return
    found.trials.append(
        _trial(place, (e2e_s, ttft_s), _chunks(content, metrics), metrics, cell_of(lengths), order)
    )


def _trial(
    place: Place,
    times: tuple[float, float | None],
    chunks: list[float] | None,
    metrics: Any,
    given: Cell,
    order: int,
) -> Trial:
    """Return the record of one request."""
    (e2e_s, ttft_s), tokens = times, whole(at(metrics, "output_sequence_length.value"))
    prompt = whole(at(metrics, "input_sequence_length.value"))
    cell = replace(given, prompt_tokens=prompt or given.prompt_tokens)
    itl_s, reasons = gaps(chunks, tokens)
    decode_s = None if ttft_s is None else e2e_s - ttft_s
    decodes = decode_s is not None and decode_s > 0 and tokens != 1
    return trial(
        place,
        Series(engine="aiperf"),
        cell,
        "mixed" if ttft_s is None else "decode" if decodes else "prefill",
        ttft_s=ttft_s,
        decode_s=decode_s if decodes else None,
        decode_steps=tokens - 1 if tokens and decodes else None,
        e2e_s=e2e_s,
        itl_s=itl_s,
        output_tokens=tokens,
        order_index=order,
        reasons=(Reason.CLIENT_SIDE_TIMES, Reason.CACHED_PROMPT_UNKNOWN, *reasons),
    )


def _factor(content: Content, metrics: Any, tag: str) -> float:
    """Return the seconds of one unit of a metric.

    Raises:
        UserError: The unit is unknown.
    """
    unit = at(metrics, f"{tag}.unit")
    if unit not in _UNITS:
        raise UserError(
            f"{content.path}: {tag}: the unit {unit!r} is unknown.",
            remedy=f"Known units: {listing(_UNITS)}.",
        )
    return _UNITS[unit]


def _seconds(content: Content, metrics: Any, tag: str) -> float | None:
    """Return a time in seconds; ``None`` where it is absent or impossible."""
    value = above_zero(at(metrics, f"{tag}.value"))
    return None if value is None else value * _factor(content, metrics, tag)


def _chunks(content: Content, metrics: Any) -> list[float] | None:
    """Return the times between messages in seconds; a single number is a mean of an older build."""
    values = numbers(at(metrics, "inter_chunk_latency.value"))
    if values is None:
        return None
    factor = _factor(content, metrics, "inter_chunk_latency")
    return [value * factor for value in values]
