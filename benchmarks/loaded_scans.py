"""Real scans on the CPU while another program loads all cores for half of the time.

    python benchmarks/loaded_scans.py [--scans 10] [--model tiny]

No regime is there, so that none may be confirmed. The table of verdicts is written into
docs/benchmarks.md between the markers of this benchmark.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from regimescope.api import analyze, scan
from regimescope.host.facts import processor_name, versions
from regimescope.results import Grade, Verdict
from regimescope.spec import ScanSpec

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- loaded: begin -->", "<!-- loaded: end -->"
PERIOD_S = 5.0
# Busy for a period, idle for a period, until it is ended or its parent is gone.
HOG = (
    "import os, time\n"
    "parent = os.getppid()\n"
    "while os.getppid() == parent:\n"
    f"    end = time.monotonic() + {PERIOD_S}\n"
    "    while time.monotonic() < end: pass\n"
    f"    time.sleep({PERIOD_S})\n"
)


def main():
    """Scan under load, print and write the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--scans", type=int, default=10)
    options.add_argument("--model", default="tiny")
    asked = options.parse_args()
    hogs = [subprocess.Popen([sys.executable, "-c", HOG]) for _ in range(os.cpu_count() or 1)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = [one_scan(asked.model, seed, Path(folder)) for seed in range(asked.scans)]
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    confirmed = sum(
        regime.verdict is Verdict.SPIKE and regime.grade is not Grade.C
        for conclusion, _ in found
        for regime in conclusion.regimes
    )
    verdicts = Counter(
        f"{conclusion.verdict.value} (grade {conclusion.grade.value})" for conclusion, _ in found
    )
    lines = [
        BEGIN,
        "",
        f"{processor_name()}, {os.cpu_count()} cores, all of them loaded for {PERIOD_S:g} s of "
        f"every {2 * PERIOD_S:g} s; {asked.scans} scans of {asked.model}, budgets 16 to 192 by 16, "
        f"2 processes, one thread, seeds 0 to {asked.scans - 1}; regimescope "
        f"{versions()['regimescope']}. `python benchmarks/loaded_scans.py`.",
        "",
        "| verdict | scans |",
        "|---|---|",
        *(f"| {verdict} | {number} |" for verdict, number in verdicts.most_common()),
        f"| **regimes confirmed** | **{confirmed}** |",
        f"| blocks vetoed by the sentinel | {sum(vetoes for _, vetoes in found)} |",
        "",
        END,
    ]
    block = "\n".join(lines)
    print(block)
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: block, text), encoding="utf-8")


def one_scan(model, seed, folder):
    """Return the verdict of one scan and how many blocks were vetoed."""
    spec = ScanSpec(
        model=model,
        device="cpu",
        budgets=tuple(range(16, 193, 16)),
        processes=2,
        seed=seed,
        engine_options={"threads": 1},
    )
    run = scan(spec, out=folder / f"scan-{seed}")
    conclusion = analyze(run)
    print(seed, conclusion.verdict.value, [reason.value for reason in conclusion.reasons])
    return conclusion, [event.kind for event in run.events].count("veto")


if __name__ == "__main__":
    main()
