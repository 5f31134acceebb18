"""ds4-bench, CSV: prefill and decode rates at growing depths. Layer: ``importers``.

Source: formats, section 2.17. One ascending pass, one sample a depth, a process a file.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from regimescope.importers.content import Content, above_zero, whole
from regimescope.importers.foreign import Format, Found, Hints, Place, trial
from regimescope.records import Cell, Series

_DECISIVE = {"ctx_tokens", "prefill_tps", "gen_tps"}


class _Decoded(NamedTuple):
    """Tokens of which the time is known, and it."""

    tokens: int
    seconds: float


def fits(content: Content) -> bool:
    """Return whether a table is of this tool."""
    rows = content.rows()
    return bool(rows) and rows[0].keys() >= _DECISIVE


def read(content: Content, hints: Hints) -> Found:
    """Return the decode time at each depth; ``hints`` are not needed."""
    found = Found([], [], Counter())
    for ordinal, row in enumerate(content.rows()):
        depth, decoded = whole(row.get("ctx_tokens")), _decoded(row)
        if depth is None or decoded is None:
            found.rejected.append(f"row {ordinal + 2}: no depth or no positive rate")
            continue
        cache = whole(row.get("kvcache_bytes"))
        found.trials.append(
            trial(
                Place(f"row {ordinal + 2}"),
                Series(engine="ds4-bench"),
                Cell(budget=whole(row.get("gen_tokens")), depth=depth, batch=1),
                "decode",
                decode_s=decoded.seconds,
                decode_steps=decoded.tokens,
                output_tokens=whole(row.get("gen_tokens")),
                # 0 stands for a cache of unknown size in the last rows.
                memory_bytes={"kv_cache": cache} if cache else None,
                order_index=ordinal,
            )
        )
    return found


FORMAT = Format("ds4-bench", fits, read, file_is_process=True)


def _decoded(row: dict[str, str]) -> _Decoded | None:
    """Return what was decoded: without the first token where the tool tells it apart."""
    for tokens_key, rate_key in (
        ("gen_steady_tokens", "gen_steady_tps"),
        ("gen_tokens", "gen_tps"),
    ):
        tokens, rate = whole(row.get(tokens_key)), above_zero(row.get(rate_key))
        if tokens and rate is not None:
            return _Decoded(tokens, tokens / rate)
    return None
