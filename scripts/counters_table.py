"""Write the table of counters in docs/counters.md from the catalogue.

Run it after a change of ``regimescope.host.catalogue``; a test compares the page with it.
"""

from __future__ import annotations

from pathlib import Path

from regimescope.host.catalogue import SOURCES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "counters.md"
BEGIN, END = "<!-- counters: begin -->", "<!-- counters: end -->"


def table() -> str:
    """Return the catalogue as a Markdown table, a counter a row."""
    lines = ["| system | source | counter | kind | meaning | read |", "|---|---|---|---|---|---|"]
    for source in SOURCES:
        when = "between steps too" if source.cost == "cheap" else "around trials"
        lines += [
            f"| {source.system} | `{source.name}` | `{counter.name}` | {counter.kind} "
            f"| {counter.meaning} | {when} |"
            for counter in source.counters
        ]
    return "\n".join(lines)


def with_table(page: str) -> str:
    """Return a page with the table between its two marks."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
