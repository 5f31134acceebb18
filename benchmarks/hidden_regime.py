"""A real transformer with a slow interval hidden in it, and the same without one.

    python benchmarks/hidden_regime.py [--hidden 10] [--clean 20] [--table]

Whole searches on the CPU through the hf engine. A plug-in engine of this benchmark waits at every
decode step while the budget lies in the hidden interval; nothing else is changed. Each search must
confirm the interval with both edges exact, and none may be confirmed where nothing is hidden.
Results are appended to build/hidden.jsonl, so that a run that was cut short goes on; the table is
written into docs/benchmarks.md between the markers of this benchmark.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from regimescope.api import analyze, scan
from regimescope.host.facts import processor_name, versions
from regimescope.results import Grade, Verdict
from regimescope.spec import ScanSpec

ROOT = Path(__file__).parent.parent
PAGE, RESULTS = ROOT / "docs" / "benchmarks.md", ROOT / "build" / "hidden.jsonl"
BEGIN, END = "<!-- hidden: begin -->", "<!-- hidden: end -->"
LOW, HIGH, WIDTH, SLOWDOWN_S = 24, 256, 24, 0.008

PLUG_IN = '''
import os, time
from regimescope.engines.hf import HfEngine

ONSET, RECOVERY, DELAY_S = (float(x) for x in os.environ["HIDDEN_REGIME"].split(","))


class Delayed:
    """A session of the hf engine that waits at each step of the hidden budgets."""

    def __init__(self, session):
        self._session = session

    def __getattr__(self, name):
        return getattr(self._session, name)

    def generate(self, prompt_ids, cell, **how):
        slow = ONSET <= cell.budget < RECOVERY
        for step in self._session.generate(prompt_ids, cell, **how):
            if slow:
                time.sleep(DELAY_S)
            yield step


class DelayedEngine(HfEngine):
    """The hf engine with a hidden slow interval."""

    name = "hidden"

    def open(self, request):
        return Delayed(super().open(request))
'''


def install(folder: Path) -> None:
    """Make the engine known to this process and to those it starts."""
    (folder / "hidden_engine.py").write_text(PLUG_IN, encoding="utf-8")
    facts = folder / "hidden_engine-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: hidden-engine\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[regimescope.engines]\nhidden = hidden_engine:DelayedEngine\n"
    )
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    )


def one(kind: str, seed: int, folder: Path) -> dict[str, Any]:
    """Search once and compare with the truth."""
    random = np.random.default_rng((seed, 17))
    width = int(random.integers(WIDTH + 4, 60))
    onset = int(random.integers(LOW + WIDTH + 4, HIGH - width - WIDTH - 4))
    hidden = kind == "hidden"
    os.environ["HIDDEN_REGIME"] = f"{onset},{onset + width},{SLOWDOWN_S if hidden else 0}"
    if not hidden:
        os.environ["HIDDEN_REGIME"] = "0,0,0"
    spec = ScanSpec(
        engine="hidden",
        model="tiny",
        device="cpu",
        low=LOW,
        high=HIGH,
        min_width=WIDTH,
        prompt_tokens=16,
        seed=seed,
        warm_up_s=1.0,
        engine_options={"threads": 1},
    )
    start = time.monotonic()
    run = scan(spec, out=folder / f"{kind}-{seed}")
    found = analyze(run)
    sure = [r for r in found.regimes if r.verdict is Verdict.SPIKE and r.grade is not Grade.C]
    return {
        "kind": kind,
        "seed": seed,
        "truth": [onset, onset + width] if hidden else None,
        "verdict": f"{found.verdict.value} {found.grade.value}",
        "reasons": [reason.value for reason in found.reasons],
        "end": run.events[-1].message,
        "regimes": [[r.onset, r.recovery, r.slowdown and r.slowdown.value] for r in sure],
        "vetoes": sum(event.kind == "veto" for event in run.events),
        "tokens": found.guarantee.tokens if found.guarantee else 0,
        "seconds": time.monotonic() - start,
    }


def write_table() -> None:
    """Write the table from everything measured so far."""
    rows = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    hidden = [row for row in rows if row["kind"] == "hidden"]
    clean = [row for row in rows if row["kind"] == "clean"]
    exact = [
        row
        for row in hidden
        if [[r[0][1], r[1][1]] for r in row["regimes"]] == [row["truth"]]
        and row["regimes"][0][0][0] + 1 == row["truth"][0]
        and row["regimes"][0][1][0] + 1 == row["truth"][1]
    ]
    lines = [
        BEGIN,
        "",
        f"{processor_name()}, {os.cpu_count()} cores, other programs running; tiny through hf, "
        f"one thread; range {LOW} to {HIGH}, least width {WIDTH}, {SLOWDOWN_S * 1e3:g} ms added to "
        f"each step of the hidden budgets; regimescope {versions()['regimescope']}. "
        "`python benchmarks/hidden_regime.py`.",
        "",
        "| what is hidden | searches | regimes confirmed | both edges exact | tokens, median | "
        "wall seconds, median | blocks vetoed |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, group, edges in (
        ("an interval of 28 to 59 budgets", hidden, f"{len(exact)}"),
        ("nothing", clean, "-"),
    ):
        if not group:
            continue
        tokens = float(np.median([row["tokens"] for row in group]))
        seconds = float(np.median([row["seconds"] for row in group]))
        lines.append(
            f"| {name} | {len(group)} | {sum(len(row['regimes']) for row in group)} | {edges} | "
            f"{tokens:,.0f} | {seconds:.0f} | {sum(row['vetoes'] for row in group)} |"
        )
    block = "\n".join([*lines, "", END])
    print(block)
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: block, text), encoding="utf-8")


def main() -> None:
    """Search what is not yet searched, and write the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--hidden", type=int, default=10)
    options.add_argument("--clean", type=int, default=20)
    options.add_argument("--table", action="store_true", help="only write the table again")
    asked = options.parse_args()
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.touch()
    done = {
        (row["kind"], row["seed"])
        for row in map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
    }
    todo = [("hidden", seed) for seed in range(asked.hidden)]
    todo += [("clean", seed) for seed in range(asked.clean)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        install(folder)
        for kind, seed in () if asked.table else todo:
            if (kind, seed) not in done:
                row = one(kind, seed, folder)
                print(row)
                with RESULTS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    write_table()


if __name__ == "__main__":
    main()
