"""Quantities as people read them. Layer: bottom.

Inside the package every quantity has one unit, named by its suffix (``_s``, ``_ns``, ``_bytes``);
these functions convert at the moment of showing and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timezone

NS_PER_S = 1_000_000_000


def seconds(value_s: float) -> str:
    """Return a duration with three significant digits, in us, ms, s, min or h.

    Args:
        value_s: Duration in seconds, finite, zero or more.
    """
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms"), (100.0, 1.0, "s")):
        if value_s < limit:
            return f"{value_s * factor:#.3g}".rstrip(".") + f" {unit}"
    if value_s < 100 * 60:
        return f"{value_s / 60:.1f} min"
    return f"{value_s / 3600:.1f} h"


def ratio(value: float) -> str:
    """Return a ratio such as a slowdown with three significant digits and the sign ``x``."""
    return f"{value:.1f}x" if value >= 10 else f"{value:.2f}x"


def share(value: float) -> str:
    """Return a share of one as a percentage with one decimal."""
    return f"{100 * value:.1f} %"


def size(value_bytes: float) -> str:
    """Return a size in decimal units (1 GB is 1e9 bytes)."""
    for limit, factor, unit in ((1e3, 1, "B"), (1e6, 1e3, "kB"), (1e9, 1e6, "MB")):
        if value_bytes < limit:
            return f"{value_bytes / factor:.3g} {unit}"
    return f"{value_bytes / 1e9:.1f} GB"


def count(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is one."""
    return f"{number:,} {noun if number == 1 else _plural(noun)}"


def _plural(noun: str) -> str:
    """Return the plural of a noun, by the regular rules."""
    if re.search(r"(s|x|z|ch|sh)$", noun):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if re.search(r"[^aeiou]y$", noun) else f"{noun}s"


def listing(items: Iterable[object], *, most: int = 8) -> str:
    """Return items separated by commas, the first ``most`` of them and how many more there are."""
    names = [str(item) for item in items]
    if len(names) > most:
        names = [*names[:most], f"and {len(names) - most} more"]
    return ", ".join(names)


def utc_now() -> str:
    """Return the time of day as ISO 8601 in UTC, for people; durations never come from it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
