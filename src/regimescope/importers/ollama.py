"""Ollama: the answers of its API, and the table of its benchmark. Layer: ``importers``.

Source: formats, section 2.13. Budget and capacity stand in the request, not in the answer, so that
the user tells them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from regimescope.importers.content import Content, above_zero, whole
from regimescope.importers.foreign import Format, Found, Hints, Place, cell_of, trial
from regimescope.reasons import Reason
from regimescope.records import Series

_COLUMNS = {"NAME", "STEP", "COUNT", "NS_PER_COUNT"}
NS_PER_S = 1e9
# A load that long is a load, not a look at a model that is there.
FRESH_LOAD_S = 1.0


def fits_api(content: Content) -> bool:
    """Return whether a file holds answers of the API."""
    return any({"eval_count", "eval_duration"} <= answer.keys() for answer in content.objects)


def fits_table(content: Content) -> bool:
    """Return whether a file is a table of the benchmark."""
    rows = [] if content.objects else content.rows()
    return bool(rows) and rows[0].keys() >= _COLUMNS


def read_api(content: Content, hints: Hints) -> Found:
    """Return a measurement for each answer that is done."""
    found = Found([], [], Counter())
    told = hints.of(content.path.name)
    for ordinal, answer in enumerate(content.objects):
        if answer.get("done") is not True:
            found.dropped["a part of a stream, not an answer that is done"] += 1
            continue
        seconds = above_zero(answer.get("eval_duration"))
        tokens = whole(answer.get("eval_count"))
        if seconds is None or not tokens:
            found.rejected.append(f"[{ordinal}]: no eval_count or no eval_duration")
            continue
        prompt = whole(answer.get("prompt_eval_count")) or None
        prefill = above_zero(answer.get("prompt_eval_duration"))
        found.trials.append(
            trial(
                Place(f"[{ordinal}]"),
                Series(engine="ollama", model=str(answer.get("model") or "") or None),
                cell_of({"budget": tokens, "prompt_tokens": prompt, "batch": 1}, told),
                "decode",
                ttft_s=None if prefill is None else prefill / NS_PER_S,
                decode_s=seconds / NS_PER_S,
                decode_steps=tokens,
                output_tokens=tokens,
                order_index=ordinal,
                reasons=_reasons(answer, prompt, bool(told.get("budget"))),
                env={"fresh_load": _is_fresh(answer)},
            )
        )
    return found


def read_table(content: Content, hints: Hints) -> Found:
    """Return a measurement for each row of a step ``generate``, with its prefill where one is."""
    found = Found([], [], Counter())
    told = hints.of(content.path.name)
    prefills: dict[str, list[float]] = defaultdict(list)
    repeats: Counter[str] = Counter()
    for row in content.rows():
        if row["STEP"] == "prefill" and (time := _row_s(row)) is not None:
            prefills[row["NAME"]].append(time)
    for ordinal, row in enumerate(content.rows(), start=2):
        if row["STEP"] != "generate":
            if row["STEP"] != "prefill":
                found.dropped[f"step {row['STEP']}"] += 1
            continue
        tokens, seconds = whole(row["COUNT"]), _row_s(row)
        if not tokens or seconds is None:
            found.rejected.append(f"row {ordinal}: no count or no positive time")
            continue
        name = row["NAME"]
        found.trials.append(
            trial(
                Place(f"{name}:{ordinal}", repeats[name]),
                Series(engine="ollama", model=name or None),
                cell_of({"budget": tokens, "batch": 1}, told),
                "decode",
                ttft_s=_nth(prefills[name], repeats[name]),
                decode_s=seconds,
                decode_steps=tokens,
                output_tokens=tokens,
                reasons=[Reason.CACHED_PROMPT_UNKNOWN],
            )
        )
        repeats[name] += 1
    return found


API = Format("ollama answers", fits_api, read_api)
TABLE = Format("ollama benchmark", fits_table, read_table)


def _row_s(row: Mapping[str, str]) -> float | None:
    """Return the seconds of a row: its count times the time of one."""
    tokens, each = above_zero(row["COUNT"]), above_zero(row["NS_PER_COUNT"])
    return None if tokens is None or each is None else tokens * each / NS_PER_S


def _nth(values: Sequence[float], index: int) -> float | None:
    return values[index] if index < len(values) else None


def _reasons(answer: Mapping[str, Any], prompt: int | None, knows_budget: bool) -> list[Reason]:
    """Return what limits an answer."""
    reasons = []
    if answer.get("done_reason") == "stop" or not knows_budget:
        # The model may have ended before its budget, which the answer does not hold.
        reasons.append(Reason.TOKENS_NOT_VERIFIED)
    if prompt is None:
        reasons.append(Reason.CACHED_PROMPT_UNKNOWN)
    return reasons


def _is_fresh(answer: Mapping[str, Any]) -> bool:
    """Return whether the model was loaded for this answer."""
    return (above_zero(answer.get("load_duration")) or 0.0) / NS_PER_S > FRESH_LOAD_S
