"""``vllm bench latency``: seconds of whole batches, one point a file. Layer: ``importers``.

Source: formats, section 2.6. Lengths are not in the file, and the end of a text is ignored without
anybody counting, so that the number of tokens is not verified.
"""

from __future__ import annotations

from collections import Counter

from regimescope.errors import UserError
from regimescope.importers.content import Content, numbers
from regimescope.importers.foreign import Format, Found, Hints, Place, cell_of, trial
from regimescope.reasons import Reason
from regimescope.records import Series

_NEEDED = ("budget",)


def fits(content: Content) -> bool:
    """Return whether a file is of this tool."""
    keys = content.first.keys()
    return {"latencies", "percentiles"} <= keys and "completed" not in keys


def read(content: Content, hints: Hints) -> Found:
    """Return a measurement for each repetition.

    Raises:
        UserError: The lengths are neither told nor in the name of the file.
    """
    lengths = hints.of(content.path.name)
    if not all(name in lengths for name in _NEEDED):
        raise UserError(
            f"{content.path} does not say how many tokens it timed.",
            remedy="Give --budget, or --pattern with the group budget for names of files.",
        )
    found = Found([], [], Counter())
    for k, table in enumerate(content.objects):
        times = numbers(table.get("latencies"))
        if not times:
            found.rejected.append(f"[{k}].latencies: not a list of positive times")
            continue
        for repeat, seconds in enumerate(times):
            found.trials.append(
                trial(
                    Place(f"[{k}].latencies", repeat),
                    Series(engine="vllm"),
                    cell_of(lengths),
                    "mixed",
                    e2e_s=seconds,
                    order_index=repeat,
                    reasons=(Reason.MIXED_PHASES, Reason.AXIS_FROM_USER),
                )
            )
    return found


FORMAT = Format("vllm bench latency", fits, read, file_is_process=True)
