"""GuideLLM: requests with two real times each, first and last token. Layer: ``importers``.

Source: formats, section 2.9. Times between the two are spread evenly by the tool and never read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from regimescope.importers.content import Content, above_zero, at, number, whole
from regimescope.importers.foreign import Format, Found, Hints, Place, cell_of, settings, trial
from regimescope.reasons import Reason
from regimescope.records import Cell, Series, Trial

_FAILED = ("errored", "incomplete")


def fits(content: Content) -> bool:
    """Return whether a file is of this tool."""
    benchmarks = content.first.get("benchmarks")
    if not isinstance(benchmarks, list) or not benchmarks:
        return False
    return isinstance(at(benchmarks[0], "requests.successful"), list)


def read(content: Content, hints: Hints) -> Found:
    """Return a measurement for each request; those that failed are failed trials."""
    found = Found([], [], Counter())
    lengths = hints.of(content.path.name)
    for k, benchmark in enumerate(content.first["benchmarks"]):
        strategy = at(benchmark, "config.strategy")
        env = _settings(strategy if isinstance(strategy, Mapping) else {})
        one = env["settings"].get("type_") == "synchronous"
        cell = cell_of({"batch": 1 if one else None}, lengths)
        for number_, request in enumerate(at(benchmark, "requests.successful") or ()):
            _add(found, Place(f"benchmarks[{k}].successful[{number_}]"), request, cell, env)
        for fate in _FAILED:
            for number_, request in enumerate(at(benchmark, f"requests.{fate}") or ()):
                place = Place(f"benchmarks[{k}].{fate}[{number_}]")
                found.trials.append(_failed(place, request, cell, env, fate))
    return found


FORMAT = Format("guidellm", fits, read)


def _settings(strategy: Mapping[str, Any]) -> dict[str, Any]:
    """Return what kept requests apart or together."""
    return settings(**{key: strategy.get(key) for key in ("type_", "streams", "rate")})


def _with_prompt(cell: Cell, prompt: Any) -> Cell:
    """Return a cell with the prompt that was counted, if it was."""
    return replace(cell, prompt_tokens=whole(prompt) or cell.prompt_tokens)


def _failed(place: Place, request: Any, cell: Cell, env: dict[str, Any], fate: str) -> Trial:
    return trial(
        place,
        Series(engine="guidellm"),
        _with_prompt(cell, at(request, "prompt_tokens")),
        "decode",
        status="failed",
        message=fate,
        env=env,
    )


def _add(found: Found, place: Place, request: Any, cell: Cell, env: dict[str, Any]) -> None:
    """Add one request, or say why it is none."""
    cached, tokens = whole(at(request, "cached_tokens")), whole(at(request, "output_tokens"))
    if cached:
        found.dropped["part of the prompt came from a prefix cache"] += 1
        return
    ttft_ms = above_zero(at(request, "time_to_first_token_ms"))
    first = number(at(request, "info.timings.first_token_iteration"))
    last = number(at(request, "info.timings.last_token_iteration"))
    decode_s = None if first is None or last is None else last - first
    decodes = tokens is not None and tokens > 1 and decode_s is not None and decode_s > 0
    if ttft_ms is None or tokens is None or (tokens > 1 and not decodes):
        found.rejected.append(f"{place.key}: no positive times or no tokens")
        return
    reasons = [Reason.CLIENT_SIDE_TIMES, Reason.INTERPOLATED_TIMES]
    if cached is None:
        reasons.append(Reason.CACHED_PROMPT_UNKNOWN)
    found.trials.append(
        trial(
            place,
            Series(engine="guidellm"),
            _with_prompt(cell, at(request, "prompt_tokens")),
            "decode" if decodes else "prefill",
            ttft_s=ttft_ms / 1e3,
            decode_s=decode_s if decodes else None,
            decode_steps=tokens - 1 if decodes else None,
            output_tokens=tokens,
            cached_tokens=cached,
            reasons=reasons,
            env=env,
        )
    )
