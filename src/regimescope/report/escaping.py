"""Strings from outside, made safe to show. Layer: report.

Model names, server answers and file contents may hold anything. ``plain`` makes them one line of
text for a terminal, a page or a chart; ``script_json`` puts data inside a ``<script>`` element.
HTML itself is escaped by the template engine, and rich markup is never parsed.
"""

from __future__ import annotations

import unicodedata
from typing import Any

import msgspec

# Longest outside string shown in full: a command line fits, a dumped server answer does not.
MAX_LENGTH = 500

# Joiners are format characters too, but scripts such as Persian and emoji need them.
_JOINERS = "\u200c\u200d"


def plain(text: object, *, limit: int = MAX_LENGTH) -> str:
    """Return an outside value as one line of printable text.

    Line breaks and tabs become spaces. Control characters (an escape sequence loses its ESC),
    direction overrides and lone surrogates are dropped.

    Args:
        text: Anything; its ``str`` is taken.
        limit: Characters kept; the rest is replaced by the number of characters left out.
    """
    spaced = " ".join(str(text).split())
    kept = "".join(char for char in spaced if char in _JOINERS or _is_printable(char))
    if len(kept) <= limit:
        return kept
    return f"{kept[:limit]} ... ({len(kept) - limit:,} more characters)"


def _is_printable(char: str) -> bool:
    """Tell whether a character shows something or is a space."""
    return unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def encodable(text: str, encoding: str) -> str:
    """Return the text with every character the encoding lacks written as a backslash escape."""
    return text.encode(encoding, "backslashreplace").decode(encoding)


def script_json(value: Any) -> str:
    """Return JSON that can stand inside a ``<script>`` element.

    ``<``, ``>`` and ``&`` become escapes, so neither ``</script>`` nor ``<!--`` nor ``]]>`` can
    end or bend the element; U+2028 and U+2029, line ends in old JavaScript, likewise.
    """
    text = msgspec.json.encode(value).decode("utf-8")
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text
