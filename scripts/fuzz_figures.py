"""Put the figures in a log of ``make fuzz`` into docs/reliability.md, between their markers.

make fuzz 2>&1 | tee fuzz.log; python scripts/fuzz_figures.py fuzz.log
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from regimescope.host.facts import processor_name

PAGE = Path(__file__).parent.parent / "docs" / "reliability.md"
BEGIN, END = "<!-- fuzz: begin -->", "<!-- fuzz: end -->"


def main() -> None:
    """Read the log and write the page."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("log", type=Path)
    sentence = figures(options.parse_args().log.read_text(encoding="utf-8", errors="replace"))
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    page = pattern.sub(lambda _: f"{BEGIN}\n\n{sentence}\n\n{END}", text)
    PAGE.write_text(page, encoding="utf-8")
    print(sentence)


def figures(log: str) -> str:
    """Return what a fuzzer said of itself; a log without an end is said to have none."""
    runs = re.findall(r"stat::number_of_executed_units:\s*(\d+)", log)
    largest = re.findall(r"stat::peak_rss_mb:\s*(\d+)", log)
    seconds = re.findall(r"Done \d+ runs in (\d+) second", log)
    findings = len(re.findall(r"ERROR: libFuzzer|Uncaught Python exception", log))
    if not (runs and largest and seconds):
        return "The fuzzer was ended before it was done."
    return (
        f"{int(runs[-1]):,} inputs in {int(seconds[-1]):,} s, {findings} findings, "
        f"{largest[-1]} MB of memory at most; {processor_name()}. `make fuzz`."
    )


if __name__ == "__main__":
    main()
