"""llama-bench of llama.cpp: JSON, JSON lines, CSV, SQL and Markdown. Layer: ``importers``.

Source: formats, section 2.2. A row is prefill of ``n_prompt`` tokens, decoding of ``n_gen``, or
both in one time; the context is new at each row, the process is not.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, NamedTuple

from regimescope.importers.content import Content, above_zero, numbers, whole
from regimescope.importers.foreign import Format, Found, Hints, Place, settings, trial
from regimescope.reasons import Reason
from regimescope.records import Cell, Phase, Series, Trial

_DECISIVE = {"n_prompt", "n_gen", "avg_ns"}
_INSERT = re.compile(r"INSERT INTO llama_bench \(([^)]*)\) VALUES \((.*)\);\s*$", re.IGNORECASE)
_TEST = re.compile(r"(?:pp(\d+))?\+?(?:tg(\d+))?(?: @ d(\d+))?$")
# These differ between rows because other rows are other sweeps.
_SETTINGS = (
    "n_batch", "n_ubatch", "n_threads", "type_k", "type_v", "n_gpu_layers", "flash_attn",
    "split_mode", "main_gpu", "no_kv_offload", "tensor_split", "use_mmap", "n_cpu_moe",
)  # fmt: skip
_TITLES = {
    "model": "model_type", "backend": "backends", "ngl": "n_gpu_layers", "fa": "flash_attn",
    "threads": "n_threads",
}  # fmt: skip
# A repetition that much slower than the others still carries warm-up: decoding warms up with one
# token only.
FIRST_SLOWER = 1.25
NS_PER_S = 1e9

Row = Mapping[str, Any]


class _Test(NamedTuple):
    """What one row timed: tokens of prefill and of decoding behind ``depth`` positions."""

    prompt: int
    generated: int
    depth: int

    @property
    def phase(self) -> Phase:
        """What was timed."""
        if not self.generated:
            return "prefill"
        return "mixed" if self.prompt else "decode"

    @property
    def cell(self) -> Cell:
        """What was requested."""
        return Cell(
            prompt_tokens=self.prompt or None, budget=self.generated or None, depth=self.depth
        )


def fits(content: Content) -> bool:
    """Return whether a file is of llama-bench."""
    if content.objects:
        return content.first.keys() >= _DECISIVE
    return next(_rows(content), None) is not None


def read(content: Content, hints: Hints) -> Found:
    """Return the measurements of a file; ``hints`` are not needed."""
    found = Found([], [], Counter())
    for ordinal, (place, row) in enumerate(_rows(content)):
        test = _test(row)
        times = None if test is None else _seconds(row, test)
        if test is None or times is None:
            found.rejected.append(f"{place}: no lengths or no positive time")
            continue
        found.trials.extend(_trials(place, ordinal, row, test, times))
    return found


FORMAT = Format("llama-bench", fits, read)


def _rows(content: Content) -> Iterator[tuple[str, Row]]:
    """Yield the rows of any of the forms, with where each stands."""
    if content.objects:
        yield from ((f"[{k}]", row) for k, row in enumerate(content.objects))
    elif "INSERT INTO llama_bench" in content.text:
        yield from _of_sql(content.text)
    elif content.text.lstrip().startswith("|") or re.search(r"(?m)^\| .*\bt/s \|", content.text):
        yield from _of_markdown(content.text)
    else:
        rows = content.rows()
        if rows and rows[0].keys() >= _DECISIVE:
            yield from ((f"row {k + 2}", row) for k, row in enumerate(rows))


def _of_sql(text: str) -> Iterator[tuple[str, Row]]:
    """Yield the rows of INSERT lines, read as text."""
    for line_number, line in enumerate(text.splitlines(), start=1):
        match = _INSERT.match(line.strip())
        if match is None:
            continue
        names = [name.strip() for name in match[1].split(",")]
        parts = next(csv.reader([match[2]], quotechar="'", skipinitialspace=True), [])
        if len(parts) == len(names):
            yield f"line {line_number}", dict(zip(names, parts, strict=True))


def _of_markdown(text: str) -> Iterator[tuple[str, Row]]:
    """Yield the rows of tables that have the titles ``test`` and ``t/s``."""
    titles: list[str] = []
    for line_number, line in enumerate(text.splitlines(), start=1):
        if not line.strip().startswith("|"):
            titles = []
            continue
        fields = [field.strip() for field in line.strip().strip("|").split("|")]
        if "test" in fields and "t/s" in fields:
            titles = fields
        elif titles and len(fields) == len(titles) and not set(line) <= set("|-: "):
            row = dict(zip(titles, fields, strict=True))
            match = _TEST.match(row["test"])
            lengths = match.groups("0") if match else ("", "", "")
            named = dict(zip(("n_prompt", "n_gen", "n_depth"), lengths, strict=True))
            renamed = {_TITLES.get(title, title): value for title, value in row.items()}
            yield f"line {line_number}", renamed | named | {"avg_ts": row["t/s"].split("±")[0]}


def _test(row: Row) -> _Test | None:
    """Return what a row timed; ``None`` where its lengths cannot be read or are both zero."""
    prompt, generated = whole(row.get("n_prompt")), whole(row.get("n_gen"))
    # Files before the column knew no depth.
    depth = whole(row.get("n_depth", 0))
    if prompt is None or generated is None or depth is None or not prompt + generated:
        return None
    return _Test(prompt, generated, depth)


def _seconds(row: Row, test: _Test) -> list[float] | None:
    """Return the seconds of each repetition, or their mean alone; ``None`` if one is impossible."""
    if "samples_ns" in row:
        samples = numbers(row["samples_ns"])
        return [value / NS_PER_S for value in samples] if samples else None
    mean_ns = above_zero(row.get("avg_ns"))
    if mean_ns is not None:
        return [mean_ns / NS_PER_S]
    rate = above_zero(row.get("avg_ts"))
    return None if rate is None else [(test.prompt + test.generated) / rate]


def _trials(place: str, ordinal: int, row: Row, test: _Test, times: list[float]) -> Iterator[Trial]:
    """Yield a record for each repetition."""
    series = Series(
        engine="llama-bench",
        model=str(row.get("model_type") or "") or None,
        device=str(row.get("gpu_info") or row.get("backends") or "") or None,
    )
    field = {"prefill": "ttft_s", "decode": "decode_s"}.get(test.phase, "e2e_s")
    env = settings(**{name: row.get(name) for name in _SETTINGS})
    env["capacity"] = test.prompt + test.generated + test.depth
    for repeat, seconds in enumerate(times):
        values: dict[str, Any] = {
            field: seconds,
            "start_utc": str(row["test_time"]) if row.get("test_time") else None,
            "order_index": ordinal if "test_time" in row else None,
            "output_tokens": test.generated or None,
            "decode_steps": test.generated if test.phase == "decode" else None,
            "reasons": _reasons(row, test, times, repeat),
            "env": env,
        }
        yield trial(Place(place, repeat), series, test.cell, test.phase, **values)


def _reasons(row: Row, test: _Test, times: list[float], repeat: int) -> Iterator[Reason]:
    """Yield what limits a number."""
    # The tool allocates exactly what the row needs.
    yield Reason.CAPACITY_COVARIES
    if "samples_ns" not in row:
        yield Reason.SUMMARY_STATISTICS_ONLY
    if test.phase == "mixed":
        yield Reason.MIXED_PHASES
    if repeat == 0 and len(times) > 1 and times[0] > FIRST_SLOWER * median(times[1:]):
        yield Reason.WARM_UP_SUSPECTED
