"""Real searches on the CPU while another program loads all cores for half of the time.

    python benchmarks/loaded_scans.py [--scans 10] [--model tiny] [--table]

No regime is there, so that none may be confirmed. Results are appended to build/loaded.jsonl, so
that a run that was cut short goes on; the table of verdicts is written into docs/benchmarks.md
between the markers of this benchmark.
"""

from __future__ import annotations

import argparse
import json
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

ROOT = Path(__file__).parent.parent
PAGE, RESULTS = ROOT / "docs" / "benchmarks.md", ROOT / "build" / "loaded.jsonl"
LOW, HIGH, WIDTH = 24, 256, 24
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
    """Search under load what is not yet searched, and write the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--scans", type=int, default=10)
    options.add_argument("--model", default="tiny")
    options.add_argument("--table", action="store_true", help="only write the table again")
    asked = options.parse_args()
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.touch()
    done = {row["seed"] for row in rows()}
    todo = [] if asked.table else [seed for seed in range(asked.scans) if seed not in done]
    hogs = [subprocess.Popen([sys.executable, "-c", HOG]) for _ in range(os.cpu_count() or 1)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            for seed in todo:
                row = one_scan(asked.model, seed, Path(folder))
                print(row)
                with RESULTS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    write_table(asked.model)


def rows():
    """Return everything measured so far."""
    return [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]


def write_table(model):
    """Write the table from everything measured so far."""
    found = rows()
    verdicts = Counter(row["verdict"] for row in found)
    lines = [
        BEGIN,
        "",
        f"{processor_name()}, {os.cpu_count()} cores, all of them loaded for {PERIOD_S:g} s of "
        f"every {2 * PERIOD_S:g} s; {len(found)} searches of {model}, range {LOW} to {HIGH}, least "
        f"width {WIDTH}, one thread, seeds from 0; regimescope {versions()['regimescope']}. "
        "`python benchmarks/loaded_scans.py`.",
        "",
        "| verdict | searches |",
        "|---|---|",
        *(f"| {verdict} | {number} |" for verdict, number in verdicts.most_common()),
        f"| **regimes confirmed** | **{sum(row['confirmed'] for row in found)}** |",
        f"| blocks vetoed by the sentinel | {sum(row['vetoes'] for row in found)} |",
        "",
        END,
    ]
    block = "\n".join(lines)
    print(block)
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: block, text), encoding="utf-8")


def one_scan(model, seed, folder):
    """Search once; return its verdict, what it confirmed, and how many blocks were vetoed."""
    spec = ScanSpec(
        model=model,
        device="cpu",
        low=LOW,
        high=HIGH,
        min_width=WIDTH,
        prompt_tokens=16,
        warm_up_s=1.0,
        seed=seed,
        engine_options={"threads": 1},
    )
    run = scan(spec, out=folder / f"scan-{seed}")
    found = analyze(run)
    sure = [r for r in found.regimes if r.verdict is Verdict.SPIKE and r.grade is not Grade.C]
    return {
        "seed": seed,
        "verdict": f"{found.verdict.value} (grade {found.grade.value})",
        "confirmed": len(sure),
        "vetoes": sum(event.kind == "veto" for event in run.events),
        "reasons": [reason.value for reason in found.reasons],
        "end": run.events[-1].message,
    }


if __name__ == "__main__":
    main()
