"""Timings of llama-server, alone, in answers, or streamed. Layer: ``importers``.

Source: formats, section 2.14. With ``timings_per_token`` they run: the gaps between tokens are the
differences of ``predicted_ms`` where ``predicted_n`` rises by one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from regimescope.importers.content import Content, above_zero, at, number, whole
from regimescope.importers.foreign import Format, Found, Hints, Place, cell_of, trial
from regimescope.reasons import Reason
from regimescope.records import Series

MS_PER_S = 1e3


class _Request(NamedTuple):
    """The timings of one request, in the order they came."""

    place: str
    timings: list[Mapping[str, Any]]


def fits(content: Content) -> bool:
    """Return whether a file holds such timings."""
    return any(at(one, "timings.predicted_ms") is not None for one in _objects(content))


def read(content: Content, hints: Hints) -> Found:
    """Return a measurement for each request."""
    found = Found([], [], Counter())
    told = hints.of(content.path.name)
    for ordinal, request in enumerate(_requests(content)):
        last = request.timings[-1]
        tokens, decode_ms = whole(last.get("predicted_n")), above_zero(last.get("predicted_ms"))
        if not tokens or decode_ms is None:
            found.rejected.append(f"{request.place}: no predicted_n or no predicted_ms")
            continue
        itl_s, reasons = _gaps(request.timings, tokens)
        cached = whole(last.get("cache_n"))
        if cached is None:
            reasons.append(Reason.CACHED_PROMPT_UNKNOWN)
        if whole(last.get("draft_n")):
            itl_s = None
            reasons.append(Reason.SPECULATIVE_DECODING)
        prefill_ms = above_zero(last.get("prompt_ms"))
        lengths = {
            "budget": tokens,
            "prompt_tokens": whole(last.get("prompt_n")) or None,
            "depth": cached,
            "batch": 1,
        }
        found.trials.append(
            trial(
                Place(request.place),
                Series(engine="llama-server"),
                cell_of(lengths, told),
                "decode",
                ttft_s=None if prefill_ms is None else prefill_ms / MS_PER_S,
                decode_s=decode_ms / MS_PER_S,
                decode_steps=tokens,
                output_tokens=tokens,
                itl_s=itl_s,
                order_index=ordinal,
                reasons=reasons,
            )
        )
    return found


FORMAT = Format("llama-server timings", fits, read)


def _objects(content: Content) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects of a file, those of an event stream saved as text too."""
    if content.objects:
        yield from content.objects
        return
    for line in content.text.splitlines():
        if line.startswith("data:"):
            text = line.removeprefix("data:").strip()
            if text == "[DONE]":
                yield {"done": True}
                continue
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                yield value


def _requests(content: Content) -> Iterator[_Request]:
    """Yield the timings of each request: a count that does not rise begins another one."""
    timings: list[Mapping[str, Any]] = []
    number_of = 0
    for one in _objects(content):
        found = at(one, "timings")
        ends = one.get("done") is True
        if isinstance(found, Mapping):
            before = whole(timings[-1].get("predicted_n")) or 0 if timings else 0
            if timings and (whole(found.get("predicted_n")) or 0) <= before:
                yield _Request(f"request {number_of}", timings)
                timings, number_of = [], number_of + 1
            timings.append(found)
        if ends and timings:
            yield _Request(f"request {number_of}", timings)
            timings, number_of = [], number_of + 1
    if timings:
        yield _Request(f"request {number_of}", timings)


def _gaps(timings: list[Mapping[str, Any]], tokens: int) -> tuple[list[float] | None, list[Reason]]:
    """Return the gaps between tokens where every token has a time of its own."""
    if len(timings) < 2:
        return None, []
    counts = [whole(one.get("predicted_n")) for one in timings]
    times = [number(one.get("predicted_ms")) for one in timings]
    if counts != list(range(1, tokens + 1)) or None in times:
        return None, [Reason.CHUNKED_STREAM]
    known = [time for time in times if time is not None]
    gaps = [(b - a) / MS_PER_S for a, b in pairwise(known)]
    return (gaps, []) if min(gaps) > 0 else (None, [])
