"""asiai, JSON of schema version 2: rates of engines on a Mac. Layer: ``importers``.

Source: formats, section 2.16. A file has one context size, so that several files are a sweep; the
kind of prompt fixes the limit of the output and is never the axis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from regimescope.importers.content import Content, above_zero, at, whole
from regimescope.importers.foreign import Format, Found, Hints, Place, settings, trial
from regimescope.reasons import Reason
from regimescope.records import Cell, Series

SCHEMA = 2
MS_PER_S = 1e3


def fits(content: Content) -> bool:
    """Return whether a file is of this tool."""
    return (
        "asiai_version" in content.first
        and content.first.get("schema_version") == SCHEMA
        and isinstance(at(content.first, "benchmark.engines"), Mapping)
    )


def read(content: Content, hints: Hints) -> Found:
    """Return a measurement for each run of each engine; ``hints`` are not needed."""
    found = Found([], [], Counter())
    benchmark = content.first["benchmark"]
    for name, engine in benchmark["engines"].items():
        runs = engine.get("raw_runs") if isinstance(engine, Mapping) else None
        if not isinstance(runs, list):
            found.rejected.append(f"engines.{name}: no raw_runs")
            continue
        for ordinal, run in enumerate(runs):
            _add(found, f"engines.{name}.raw_runs[{ordinal}]", name, run, content.first)
    return found


FORMAT = Format("asiai", fits, read)


def _add(found: Found, place: str, engine: str, run: Any, table: Mapping[str, Any]) -> None:
    """Add one run, or say why it is none."""
    tokens, rate = whole(at(run, "tokens_generated")), above_zero(at(run, "tok_per_sec"))
    if not tokens or rate is None:
        found.rejected.append(f"{place}: no tokens_generated or no positive tok_per_sec")
        return
    ttft_ms = above_zero(at(run, "ttft_ms"))
    # 0 stands for the prompts that come with the tool, whose length is unknown.
    context = whole(at(table, "benchmark.context_size")) or None
    model = at(table, "benchmark.model")
    found.trials.append(
        trial(
            Place(place, whole(at(run, "run_index")) or 0),
            Series(
                engine=engine,
                model=str(model) if model else None,
                device=str(at(table, "machine.chip") or "") or None,
            ),
            Cell(depth=context, batch=1),
            "decode",
            ttft_s=None if ttft_ms is None else ttft_ms / MS_PER_S,
            decode_s=tokens / rate,
            decode_steps=tokens,
            output_tokens=tokens,
            reasons=[Reason.CACHED_PROMPT_UNKNOWN, Reason.CLIENT_SIDE_TIMES],
            env=settings(prompt_type=at(run, "prompt_type")),
        )
    )
