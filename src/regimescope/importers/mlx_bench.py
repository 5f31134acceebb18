"""What ``mlx_lm.benchmark`` prints, one point a call. Layer: ``importers``.

Source: formats, section 2.12. The clock of decoding starts after the first token, but all tokens
are counted, so that ``G / generation_tps`` seconds cover G - 1 steps.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from regimescope.importers.content import Content, above_zero
from regimescope.importers.foreign import Format, Found, Hints, Place, trial
from regimescope.records import Cell, Series

_HEADER = re.compile(
    r"^Timing with prompt_tokens=(\d+), generation_tokens=(\d+), batch_size=(\d+)\.\s*$"
)
_TRIAL = re.compile(r"^Trial (\d+):\s*(.*)$")
_VALUE = re.compile(r"(\w+)=([\d.]+)")


def fits(content: Content) -> bool:
    """Return whether a text is of this tool."""
    return any(_HEADER.match(line) for line in content.text.splitlines())


def read(content: Content, hints: Hints) -> Found:
    """Return a measurement for each trial; averages are passed over. ``hints`` are not needed."""
    found = Found([], [], Counter())
    for process, (cell, lines) in enumerate(_sections(content.text)):
        for repeat, line in enumerate(lines):
            values = dict(_VALUE.findall(line))
            prompt_rate = above_zero(values.get("prompt_tps"))
            rate = above_zero(values.get("generation_tps"))
            if prompt_rate is None or rate is None:
                found.rejected.append(f"{line[:60]}: no positive rates")
                continue
            prompt, budget, batch = cell.prompt_tokens or 0, cell.budget or 0, cell.batch or 1
            found.trials.append(
                trial(
                    Place(f"timing[{process}]", repeat, process),
                    Series(engine="mlx"),
                    cell,
                    "decode",
                    ttft_s=batch * prompt / prompt_rate,
                    # Rates are sums over the batch.
                    decode_s=batch * budget / rate,
                    decode_steps=budget - 1 or None,
                    output_tokens=budget,
                    order_index=repeat,
                )
            )
    return found


FORMAT = Format("mlx_lm.benchmark", fits, read, file_is_process=True)


def _sections(text: str) -> Iterator[tuple[Cell, list[str]]]:
    """Yield each call in a log: what it measured, and its trials."""
    cell: Cell | None = None
    lines: list[str] = []
    for line in text.splitlines():
        header = _HEADER.match(line)
        if header is not None:
            if cell is not None:
                yield cell, lines
            prompt, budget, batch = map(int, header.groups())
            cell, lines = Cell(prompt_tokens=prompt, budget=budget, batch=batch), []
        elif cell is not None and (match := _TRIAL.match(line.strip())):
            lines.append(match[0])
    if cell is not None:
        yield cell, lines
