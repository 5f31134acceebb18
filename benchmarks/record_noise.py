"""Record what noise a real machine has, for the detection benchmark to replay.

    nice -n 10 python benchmarks/record_noise.py --minutes 3
    python benchmarks/record_noise.py --device cuda --model gpt2 --budgets 32:512:32 --processes 12

Each model is swept in several processes, budgets in random order, as in any scan. What is kept is
the log of each latency less the median of its budget, process by process in the order of
measurement, so that drift, bursts and differences between processes survive. A machine on which a
regime is known to exist is not to be recorded. The result goes to benchmarks/noise/<device>.json:
facts of the machine, no name of it, no path.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from regimescope.api import scan
from regimescope.host.facts import host_facts, versions
from regimescope.records import Run, Trial
from regimescope.spec import ScanSpec

FOLDER = Path(__file__).parent / "noise"
DIGITS = 5  # of a log residual: a hundred-thousandth is below any clock here
FEWEST = 8  # trials of a process, below which a replay would go round too often

# What fits into a few minutes on two cores.
DEFAULTS = {"tiny": (range(16, 257, 16), 3), "distilgpt2": (range(8, 41, 4), 2)}


def main(given: list[str] | None = None) -> None:
    """Record every model that was asked for."""
    asked = arguments(given)
    path = asked.folder / f"{asked.device}.json"
    stored: dict[str, Any] = {"schema_version": 1, "series": []}
    if path.exists():
        stored = msgspec.json.decode(path.read_bytes())
    stored |= {"host": host_facts(), "versions": versions()}
    for model in asked.model or DEFAULTS:
        budgets, repeats = DEFAULTS.get(model, DEFAULTS["tiny"])
        budgets = range_of(asked.budgets) if asked.budgets else budgets
        with tempfile.TemporaryDirectory() as folder:
            run = scan(spec_of(asked, model, budgets, repeats), out=Path(folder) / "run")
        name = f"{asked.device}_{model.replace('-', '_')}"
        series = {"name": name, "model": model, "device": asked.device, **recorded(run)}
        others = [other for other in stored["series"] if other["name"] != name]
        stored["series"] = [*others, series]
        # Written after each model, so that a run cut short leaves what it has.
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(stored), indent=0) + b"\n")
        print(name, len(series["log_residuals"]), "processes,", series["trials"], "trials")


def spec_of(
    asked: argparse.Namespace, model: str, budgets: Sequence[int], repeats: int
) -> ScanSpec:
    """Describe the scan of one model."""
    options = {"threads": 1} if (asked.engine, asked.device) == ("hf", "cpu") else {}
    return ScanSpec(
        engine=asked.engine,
        model=model,
        device=asked.device,
        budgets=tuple(budgets),
        processes=asked.processes,
        repeats=asked.repeats or repeats,
        seed=asked.seed,
        max_seconds=60 * asked.minutes if asked.minutes else None,
        sentinel_every=0,  # a veto would take the disturbed blocks away, which are wanted here
        engine_options=options,
    )


def recorded(run: Run) -> dict[str, Any]:
    """Residuals of a run, one list per process in the order of measurement."""
    logs = [(t, math.log(t.decode_s)) for t in run.trials if is_measured(t) and t.decode_s]
    by_budget = defaultdict(list)
    for trial, log_s in logs:
        by_budget[trial.cell.budget].append(log_s)
    middle = {budget: float(np.median(values)) for budget, values in by_budget.items()}
    processes = defaultdict(list)
    for trial, log_s in sorted(logs, key=lambda row: (row[0].process_run, row[0].order_index)):
        processes[trial.process_run].append(round(log_s - middle[trial.cell.budget], DIGITS))
    kept = [values for values in processes.values() if len(values) >= FEWEST]
    return {
        "budgets": sorted(middle),
        "dtype": run.header.spec.dtype if run.header.spec else None,
        "trials": sum(map(len, kept)),
        "log_residuals": kept,
    }


def is_measured(trial: Trial) -> bool:
    """Whether a trial is one that the analysis would use."""
    return trial.status == "ok" and not trial.warmup and not trial.sentinel


def range_of(text: str) -> range:
    """Read ``first:last:gap``, the last included."""
    first, last, gap = (int(part) for part in text.split(":"))
    return range(first, last + 1, gap)


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", action="append", help="may be given again")
    parser.add_argument("--budgets", help="first:last:gap")
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, help="per model; what there is then is kept")
    parser.add_argument("--engine", default="hf")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    return parser.parse_args(given)


if __name__ == "__main__":
    main()
