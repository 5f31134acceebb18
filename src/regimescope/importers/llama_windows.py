"""llama-batched-bench and llama-sweep-bench of llama.cpp: JSON lines and Markdown.

Layer: ``importers``. Source: formats, sections 2.3 and 2.4. A row times prefill of ``pp`` tokens
and decoding of ``tg``: the first tool for ``pl`` sequences together, the second behind ``n_kv``
positions of one sequence, window after window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from regimescope.importers.content import Content, above_zero, whole
from regimescope.importers.foreign import Format, Found, Hints, Place, settings, trial
from regimescope.reasons import Reason
from regimescope.records import Cell, Series, Trial

_DECISIVE = {"pp", "tg", "n_kv", "t_pp", "t_tg"}
_TITLES = {
    "PP": "pp", "TG": "tg", "B": "pl", "N_KV": "n_kv", "T_PP s": "t_pp", "T_TG s": "t_tg",
    "T_PP": "t_pp", "T_TG": "t_tg",
}  # fmt: skip
_SETTINGS = ("n_batch", "n_ubatch", "flash_attn", "n_gpu_layers", "n_threads", "is_pp_shared")
_MIB = 1024 * 1024
# A window that much slower than the next one still carries warm-up.
FIRST_SLOWER = 1.25

Row = Mapping[str, Any]


class _Window(NamedTuple):
    """One row: lengths, and the seconds of prefill and decoding; absent where not positive."""

    prompt: int
    generated: int
    sequences: int | None
    held: int
    capacity: int | None
    prefill_s: float | None
    decode_s: float | None


def _fits(content: Content, *, batched: bool) -> bool:
    """Return whether a file is of one of the two tools, which differ in the column ``pl``."""
    row = next(_rows(content), None)
    return row is not None and row[1].keys() >= _DECISIVE and ("pl" in row[1]) == batched


def fits_batched(content: Content) -> bool:
    """Return whether a file is of llama-batched-bench."""
    return _fits(content, batched=True)


def fits_sweep(content: Content) -> bool:
    """Return whether a file is of llama-sweep-bench."""
    return _fits(content, batched=False)


def read_batched(content: Content, hints: Hints) -> Found:
    """Return the decode time of each row against the batch; ``hints`` are not needed."""
    found = Found([], [], Counter())
    for place, row in _rows(content):
        window = _window(row)
        if window is None or window.sequences is None or window.decode_s is None:
            found.rejected.append(f"{place}: no lengths or no positive time")
            continue
        cell = Cell(
            budget=window.generated or None,
            prompt_tokens=window.prompt,
            batch=window.sequences,
            capacity=window.capacity,
        )
        found.trials.append(_trial(place, "llama-batched-bench", cell, window, row))
    return found


def read_sweep(content: Content, hints: Hints) -> Found:
    """Return the decode time of each window against its depth; ``hints`` are not needed."""
    found = Found([], [], Counter())
    for ordinal, (place, row) in enumerate(_rows(content)):
        window = _window(row)
        if window is None or window.decode_s is None:
            found.rejected.append(f"{place}: no lengths or no positive time")
            continue
        cell = Cell(
            budget=window.generated or None,
            prompt_tokens=window.prompt,
            batch=1,
            depth=window.held,
            capacity=window.capacity,
        )
        order = {"order_index": ordinal}
        found.trials.append(_trial(place, "llama-sweep-bench", cell, window, row, **order))
    return Found(_warm_up_marked(found.trials), found.rejected, found.dropped)


BATCHED = Format("llama-batched-bench", fits_batched, read_batched)
SWEEP = Format("llama-sweep-bench", fits_sweep, read_sweep)


def _trial(place: str, engine: str, cell: Cell, window: _Window, row: Row, **values: Any) -> Trial:
    """Return the record of a row: one step serves all sequences of a batch."""
    memory = {
        kind: round(found * _MIB)
        for kind, key in (("rss_peak", "rss_hwm_mib"), ("vram", "vram_delta_mib"))
        if (found := above_zero(row.get(key))) is not None
    }
    return trial(
        Place(place),
        Series(engine=engine),
        cell,
        "decode",
        ttft_s=window.prefill_s,
        decode_s=window.decode_s,
        decode_steps=window.generated or None,
        output_tokens=window.generated or None,
        memory_bytes=memory or None,
        env=settings(**{name: row.get(name) for name in _SETTINGS}),
        **values,
    )


def _warm_up_marked(trials: Sequence[Trial]) -> list[Trial]:
    """Leave the first window out of the curve where it is slower than the one behind it."""
    if len(trials) < 2 or trials[0].cell.depth != 0:
        return list(trials)
    first, second = trials[0].decode_s or 0.0, trials[1].decode_s or 0.0
    if first <= FIRST_SLOWER * second:
        return list(trials)
    marked = replace(trials[0], warmup=True, reasons=[Reason.WARM_UP_SUSPECTED])
    return [marked, *trials[1:]]


def _window(row: Row) -> _Window | None:
    """Return what a row timed; ``None`` where its lengths cannot be read."""
    prompt, generated, held = (whole(row.get(name)) for name in ("pp", "tg", "n_kv"))
    if prompt is None or generated is None or held is None:
        return None
    return _Window(
        prompt,
        generated,
        whole(row.get("pl")),
        held,
        whole(row.get("n_kv_max")),
        above_zero(row.get("t_pp")),
        above_zero(row.get("t_tg")),
    )


def _rows(content: Content) -> Iterator[tuple[str, Row]]:
    """Yield the rows of either form, with where each stands."""
    if content.objects:
        yield from ((f"line {k + 1}", row) for k, row in enumerate(content.objects))
        return
    titles: list[str] = []
    for line_number, line in enumerate(content.text.splitlines(), start=1):
        if not line.strip().startswith("|"):
            titles = []
            continue
        fields = [field.strip() for field in line.strip().strip("|").split("|")]
        named = [_TITLES.get(field, field) for field in fields]
        if set(named) >= _DECISIVE:
            titles = named
        elif titles and len(fields) == len(titles) and not set(line) <= set("|-: "):
            yield f"line {line_number}", dict(zip(titles, fields, strict=True))
