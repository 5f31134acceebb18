"""``vllm bench serve`` and ``sweep``: requests to a server, or their means. Layer: ``importers``.

Source: formats, sections 2.7 and 2.8. Times are those of the client; an "inter-token" time is one
of a message that may hold several tokens.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from regimescope.importers.content import Content, Table, above_zero, number, whole
from regimescope.importers.foreign import (
    Format,
    Found,
    Hints,
    Place,
    cell_of,
    gaps,
    settings,
    trial,
)
from regimescope.reasons import Reason
from regimescope.records import Series, Trial

_LIMITS = (Reason.CLIENT_SIDE_TIMES, Reason.CACHED_PROMPT_UNKNOWN)


def fits(content: Content) -> bool:
    """Return whether a file is of this tool."""
    first = next(iter(_tables(content)), {})
    return {"request_throughput", "completed"} <= first.keys()


def read(content: Content, hints: Hints) -> Found:
    """Return a measurement for each request, or one for the means where there is no detail."""
    found = Found([], [], Counter())
    lengths = hints.of(content.path.name)
    for k, table in enumerate(_tables(content)):
        if isinstance(table.get("ttfts"), list) and isinstance(table.get("itls"), list):
            _read_requests(found, f"[{k}]", table, lengths)
        else:
            _read_means(found, f"[{k}]", table, lengths)
    return found


FORMAT = Format("vllm bench serve", fits, read)


def _tables(content: Content) -> Sequence[Table]:
    """Return the results of a file; a sweep may come as CSV, its keys with either dash."""
    if content.objects:
        return content.objects
    # The tables of a sweep alone are CSV, so that other tables need not be read.
    return content.rows() if "run_number" in content.text[:10_000] else []


def _key(table: Table, name: str) -> Any:
    """Return a swept setting, which is written with underscores or with dashes."""
    return table.get(name, table.get(name.replace("_", "-")))


def _series(table: Table) -> Series:
    backend, model = table.get("backend"), table.get("model_id")
    return Series(engine=str(backend or "vllm"), model=str(model) if model else None)


def _read_requests(found: Found, key: str, table: Table, lengths: dict[str, int]) -> None:
    """Add a record for each request."""
    names = ("input_lens", "output_lens", "ttfts", "itls", "errors", "start_times")
    columns = [table.get(name) for name in names]
    lists = [column if isinstance(column, list) else [] for column in columns]
    for number_, values in enumerate(itertools.zip_longest(*lists)):
        request = dict(zip(names, values, strict=True))
        record = _request(Place(f"{key}.{number_}"), table, request, lengths)
        if record is None:
            found.rejected.append(f"{key}: request {number_}: no positive times")
        else:
            found.trials.append(record)


def _request(
    place: Place, table: Table, request: dict[str, Any], lengths: dict[str, int]
) -> Trial | None:
    """Return the record of a request; ``None`` where its times are impossible."""
    prompt, tokens = whole(request["input_lens"]), whole(request["output_lens"])
    told = {"prompt_tokens": prompt, "batch": whole(table.get("max_concurrency"))}
    cell, series = cell_of(told, lengths), _series(table)
    env = settings(request_rate=table.get("request_rate"))
    if request["errors"] or tokens == 0:
        message = str(request["errors"] or "no token came")
        return trial(place, series, cell, "decode", status="failed", message=message, env=env)
    ttft_s = above_zero(request["ttfts"])
    times = [above_zero(gap) for gap in request["itls"] or ()]
    good = [gap for gap in times if gap is not None]
    if ttft_s is None or len(good) < len(times):
        return None
    itl_s, reasons = gaps(good, tokens)
    start_s = number(request["start_times"])
    return trial(
        place,
        series,
        cell,
        "decode" if good else "prefill",
        ttft_s=ttft_s,
        decode_s=sum(good) or None,
        decode_steps=tokens - 1 if tokens is not None and good else None,
        # Where gaps depend on other requests, positions mean nothing.
        itl_s=itl_s if cell.batch == 1 else None,
        output_tokens=tokens,
        reasons=(*_LIMITS, *reasons),
        env=env | ({} if start_s is None else {"start_s": start_s}),
    )


def _read_means(found: Found, key: str, table: Table, lengths: dict[str, int]) -> None:
    """Add the mean of all requests as the one measurement that it is."""
    ttft_ms, tpot_ms = above_zero(table.get("mean_ttft_ms")), above_zero(table.get("mean_tpot_ms"))
    if ttft_ms is None and tpot_ms is None:
        found.rejected.append(f"{key}: neither mean_ttft_ms nor mean_tpot_ms")
        return
    found.trials.append(
        trial(
            Place(key, whole(table.get("run_number")) or 0),
            _series(table),
            cell_of(dict(_mean_lengths(table)), lengths),
            "prefill" if tpot_ms is None else "decode",
            ttft_s=None if ttft_ms is None else ttft_ms / 1e3,
            decode_s=None if tpot_ms is None else tpot_ms / 1e3,
            decode_steps=None if tpot_ms is None else 1,
            reasons=(*_LIMITS, Reason.SUMMARY_STATISTICS_ONLY),
            env=settings(request_rate=table.get("request_rate")),
        )
    )


def _mean_lengths(table: Table) -> Iterator[tuple[str, int]]:
    """Yield what all requests had in common, as far as totals tell."""
    batch, done = whole(table.get("max_concurrency")), whole(table.get("completed"))
    total = whole(table.get("total_input_tokens"))
    if batch is not None:
        yield "batch", batch
    for name, key in (("budget", "random_output_len"), ("capacity", "max_model_len")):
        swept = whole(_key(table, key))
        if swept:
            yield name, swept
    if total and done and total % done == 0:
        yield "prompt_tokens", total // done
