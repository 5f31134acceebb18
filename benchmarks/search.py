"""What a search finds, and what it costs: simulated machines with known truth.

    python benchmarks/search.py [--machines 300] [--cells NAME,...] [--processes 1] [--table]

Each machine is one whole `regimescope scan` on the simulated engine with its own seed: a curve, a
noise law, a slow interval at a random place. Results are appended to build/search.jsonl, so that a
run that was cut short goes on; the table is written into docs/benchmarks.md between the markers of
this benchmark. Beside the search stand three plans without one: every budget three times, every
16th with 3 warm-ups and 5 runs as published (arXiv 2605.08913), and a plain bisection.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import tempfile
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import msgspec
import numpy as np
from scipy import stats

from regimescope.api import analyze, scan
from regimescope.engines.simulated_laws import Machine, Options
from regimescope.host.facts import processor_name, versions
from regimescope.records import Cell
from regimescope.results import Grade, Verdict
from regimescope.spec import ScanSpec

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "build" / "search.jsonl"
BEGIN, END = "<!-- search: begin -->", "<!-- search: end -->"
LOW, HIGH, PROMPT = 64, 1024, 65


class CellOfBench(NamedTuple):
    """One kind of machine.

    Attributes:
        width: Tokens that are slow; 0 for a clean machine.
        slowdown: How slow.
        noise: Name of the noise law.
        options: Settings of the scan that differ from the default.
        span: The range searched.
        onset: First slow budget; drawn at random where absent.
    """

    width: int
    slowdown: float
    noise: str
    options: tuple[tuple[str, Any], ...] = ()
    span: tuple[int, int] = (LOW, HIGH)
    onset: int | None = None


CELLS: dict[str, CellOfBench] = {
    "clean, skew": CellOfBench(0, 1.0, "skew"),
    "clean, heavy": CellOfBench(0, 1.0, "heavy"),
    "10x, 128 wide, skew": CellOfBench(128, 10.0, "skew"),
    "10x, 128 wide, heavy": CellOfBench(128, 10.0, "heavy"),
    "2x, 128 wide, skew": CellOfBench(128, 2.0, "skew"),
    "2x, 128 wide, heavy": CellOfBench(128, 2.0, "heavy"),
    "1.5x, 128 wide, skew": CellOfBench(128, 1.5, "skew"),
    "10x, 40 wide, skew": CellOfBench(40, 10.0, "skew"),
    "2x, 40 wide, skew": CellOfBench(40, 2.0, "skew"),
    "clean, skew, prevalence 0.7 asked": CellOfBench(0, 1.0, "skew", (("prevalence", 0.7),)),
    "10x, 128 wide, skew, in 7 of 10 processes": CellOfBench(
        128, 10.0, "skew", (("prevalence", 0.7),)
    ),
    "published regime": CellOfBench(128, 11.0, "skew", (), (128, 768), 512),
}


def options_of(cell: CellOfBench, seed: int) -> dict[str, Any]:
    """Return the simulated machine of a seed."""
    random = np.random.default_rng((seed, 99))
    found: dict[str, Any] = {
        "base_s": float(np.exp(random.uniform(np.log(0.005), np.log(0.05)))),
        "slope_s": float(np.exp(random.uniform(np.log(1e-7), np.log(2e-5)))),
        "noise": cell.noise,
    }
    if cell.width:
        low, high = cell.span
        # A normal value stays on each side, as the guarantee asks for.
        onset = cell.onset or int(random.integers(low + 45, high - cell.width - 45))
        found["bands"] = [
            {
                "onset": onset,
                "recovery": onset + cell.width,
                "slowdown": cell.slowdown,
                "prevalence": dict(cell.options).get("prevalence", 1.0),
            }
        ]
    return found


def one(name: str, seed: int) -> dict[str, Any]:
    """Search one machine and compare with its truth."""
    cell = CELLS[name]
    machine = options_of(cell, seed)
    low, high = cell.span
    spec = ScanSpec(
        engine="simulated",
        model="smooth",
        low=low,
        high=high,
        seed=seed,
        engine_options=machine,
        **dict(cell.options),
    )
    shared = Path("/dev/shm")  # noqa: S108 - memory, so that the disk does not bound the benchmark
    folder = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
    try:
        run = scan(spec, out=folder / "run")
        found = analyze(run)
    finally:
        shutil.rmtree(folder)
    # What only some processes do is BIMODAL; with a prevalence below one that is what is sought.
    sought = Verdict.BIMODAL if spec.prevalence < 1 else Verdict.SPIKE
    sure = [r for r in found.regimes if r.verdict is sought and r.grade is not Grade.C]
    truth = machine.get("bands", [None])[0]
    hits = [r for r in sure if truth and overlaps(r, truth)]
    row: dict[str, Any] = {
        "cell": name,
        "seed": seed,
        "verdict": found.verdict.value,
        "false": len(sure) - len(hits),
        "tokens": found.guarantee.tokens if found.guarantee else 0,
        "seconds": sum(seconds_of(t) for t in run.trials),
        "plain_seconds": plain_seconds(machine, low, high),
        "bisection": bisection(machine, low, high, seed),
    }
    if truth:
        row |= {"found": bool(hits), "pieces": len(hits)}
    if hits and truth:
        best = hits[0]
        row |= {
            "onset_error": abs(best.onset[1] - truth["onset"]),
            "recovery_error": abs(best.recovery[1] - truth["recovery"]),
            "onset_covered": best.onset[0] < truth["onset"] <= best.onset[1],
            "recovery_covered": best.recovery[0] < truth["recovery"] <= best.recovery[1],
            "slowdown": best.slowdown.value / truth["slowdown"],
            "slowdown_covered": covers(best.slowdown, truth["slowdown"]),
            "grade": best.grade.value,
        }
    return row


def covers(estimate: Any, truth: float) -> bool | None:
    """Return whether an interval holds the truth; absent where there is no interval."""
    return None if estimate.low is None else bool(estimate.low <= truth <= estimate.high)


def overlaps(regime: Any, truth: dict[str, Any]) -> bool:
    """Return whether a regime shares a budget with the truth."""
    return regime.onset[1] < truth["recovery"] and truth["onset"] < regime.recovery[1]


def seconds_of(trial: Any) -> float:
    """Return the model seconds of a trial, repetitions of a warm-up included."""
    return (trial.counters or {}).get("warm_up_s", trial.e2e_s or 0.0)


def law_s(machine: dict[str, Any], budgets: np.ndarray) -> np.ndarray:
    """Return the noiseless seconds of each budget."""
    context = PROMPT + np.cumsum(np.ones(int(budgets.max())))
    step_s = machine["base_s"] + machine["slope_s"] * context
    total = np.concatenate([[0.0], np.cumsum(step_s)])[budgets - 1]
    for band in machine.get("bands", []):
        total[(budgets >= band["onset"]) & (budgets < band["recovery"])] *= band["slowdown"]
    return total


def plain_seconds(machine: dict[str, Any], low: int, high: int) -> dict[str, float]:
    """Return what plans without a search take, in model seconds."""
    every = law_s(machine, np.arange(low, high + 1)).sum()
    sixteenth = law_s(machine, np.arange(low, high + 1, 16)).sum()
    return {"exhaustive": 3 * float(every), "grid16": 8 * float(sixteenth)}


def bisection(machine: dict[str, Any], low: int, high: int, seed: int) -> dict[str, Any]:
    """Search by a coarse grid of 64 and by halving, one run each, ratio to the value below."""
    options = msgspec.convert({"positions": 10**6} | machine, Options)
    process = Machine(options, np.random.default_rng((seed, 7)))
    spent = {"tokens": 0, "seconds": 0.0}

    def per_step_s(budget: int) -> float:
        factor = process.trial_factor(budget, spent["seconds"])
        cell = Cell(budget=budget, prompt_tokens=PROMPT, kv_cache="on", batch=1)
        total = float(process.step_seconds(PROMPT, cell, 0.0).sum()) * factor
        spent["tokens"] += budget
        spent["seconds"] += total
        return total / (budget - 1)

    grid = list(range(low, high + 1, 64))
    rates = [per_step_s(budget) for budget in grid]
    normal = float(np.median(rates))
    slow = [rate > 1.5 * normal for rate in rates]
    edges = []
    for (a, left), (b, right) in zip(
        zip(grid, slow, strict=True), list(zip(grid, slow, strict=True))[1:], strict=False
    ):
        if left == right:
            continue
        inner_low, inner_high = a, b
        while inner_high - inner_low > 1:
            middle = (inner_low + inner_high) // 2
            if (per_step_s(middle) > 1.5 * normal) == left:
                inner_low = middle
            else:
                inner_high = middle
        edges.append(inner_high)
    return spent | {"edges": edges}


def interval(successes: int, trials: int) -> str:
    """Return a share with its Clopper-Pearson interval."""
    found = stats.binomtest(successes, trials).proportion_ci(method="exact")
    return f"{successes / trials:.3f} [{found.low:.3f}, {found.high:.3f}]"


def write_table() -> None:
    """Write the table from everything measured so far."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in RESULTS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        rows[row["cell"]].append(row)
    lines = [
        BEGIN,
        "",
        f"{processor_name()}; regimescope {versions()['regimescope']}; range {LOW} to {HIGH} "
        "unless the cell says otherwise, prompt 65, default settings, warm-ups included in tokens "
        "and seconds; one machine a seed, seeds from 0; shares with Clopper-Pearson 95 % "
        "intervals. `make bench-search`.",
        "",
        "| machines | n | false regimes | found | both edges exact | edges in their interval | "
        "slowdown in its interval | tokens, median | of grid 16 x (3+5) | of every budget x 3 | "
        "seconds of grid 16 |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [line_of(name, rows[name]) for name in CELLS if rows.get(name)]
    lines += [
        "",
        "A plain bisection (grid of 64, one run each, halving) on the same machines:",
        "",
        "| machines | n | edge on a clean machine | both edges exact | tokens, median |",
        "|---|---|---|---|---|",
    ]
    lines += [bisection_line(name, rows[name]) for name in CELLS if rows.get(name)]
    block = "\n".join([*lines, "", END])
    print(block)
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: block, text), encoding="utf-8")


def line_of(name: str, rows: list[dict[str, Any]]) -> str:
    """Return one line of the table."""
    n = len(rows)
    low, high = CELLS[name].span
    grid = 8 * sum(range(low, high + 1, 16))
    exhaustive = 3 * sum(range(low, high + 1))
    tokens = float(np.median([r["tokens"] for r in rows]))
    share_s = float(np.median([r["seconds"] / r["plain_seconds"]["grid16"] for r in rows]))
    cells = [name, str(n), interval(sum(r["false"] > 0 for r in rows), n)]
    hits = [r for r in rows if r.get("found")]
    if CELLS[name].width:
        cells.append(interval(len(hits), n))
        exact = sum(r["onset_error"] == 0 and r["recovery_error"] == 0 for r in hits)
        covered = sum(r["onset_covered"] + r["recovery_covered"] for r in hits)
        cells.append(interval(exact, len(hits)) if hits else "-")
        cells.append(interval(covered, 2 * len(hits)) if hits else "-")
        inside = [r["slowdown_covered"] for r in hits if r["slowdown_covered"] is not None]
        cells.append(interval(sum(inside), len(inside)) if inside else "-")
    else:
        cells += ["-"] * 4
    cells += [
        f"{tokens:,.0f}",
        f"1/{grid / tokens:.1f}",
        f"1/{exhaustive / tokens:.0f}",
        f"1/{1 / share_s:.1f}",
    ]
    return "| " + " | ".join(cells) + " |"


def bisection_line(name: str, rows: list[dict[str, Any]]) -> str:
    """Return one line about the plain bisection."""
    n = len(rows)
    tokens = float(np.median([r["bisection"]["tokens"] for r in rows]))
    cells = [name, str(n)]
    if CELLS[name].width:
        truths = [options_of(CELLS[name], r["seed"])["bands"][0] for r in rows]
        exact = sum(
            r["bisection"]["edges"] == [t["onset"], t["recovery"]]
            for r, t in zip(rows, truths, strict=True)
        )
        cells += ["-", interval(exact, n)]
    else:
        cells += [interval(sum(bool(r["bisection"]["edges"]) for r in rows), n), "-"]
    return "| " + " | ".join([*cells, f"{tokens:,.0f}"]) + " |"


def main() -> None:
    """Search what is not yet searched, and write the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--machines", type=int, default=300)
    options.add_argument("--cells", default="")
    options.add_argument("--processes", type=int, default=1)
    options.add_argument("--table", action="store_true", help="only write the table again")
    asked = options.parse_args()
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.touch()
    if not asked.table:
        done = {
            (row["cell"], row["seed"])
            for row in map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
        }
        wanted = [name for name in asked.cells.split(";") if name] or list(CELLS)
        # Seed by seed over all cells, so that a run cut short has as many of each.
        todo = [
            (name, seed)
            for seed in range(asked.machines)
            for name in wanted
            if (name, seed) not in done
        ]
        with ProcessPoolExecutor(asked.processes) as pool:
            for row in pool.map(one, *zip(*todo, strict=True)) if todo else ():
                with RESULTS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    write_table()


if __name__ == "__main__":
    main()
