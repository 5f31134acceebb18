"""Seconds and memory of the analysis: the detector on long axes, and the traces of a large run.

    python benchmarks/analysis_scale.py [--repeats 5]

Each size of the detector is run on several simulated sweeps and the median is given. Each trace
case is a process of its own, so that its peak memory is its own: it makes the records, then draws
every conclusion from them. The table is written into docs/benchmarks.md between the markers of
this benchmark.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from regimescope.analysis.regimes import conclude
from regimescope.host.facts import processor_name, versions
from regimescope.records import SCHEMA_VERSION, Cell, Run, RunHeader, Series, Trial
from regimescope.stats.epidemic import detect

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- analysis: begin -->", "<!-- analysis: end -->"
SIZES = (64, 1000, 10_000)
TARGET_S = {64: "0.2 s", 1000: "", 10_000: "2 s, 12 times that of 1000"}
REPEATS = 3
# Trials, gaps of each, mode. Both hold 10^7 gaps.
TRACES = ((1000, 10_000, "nested"), (1000, 10_000, "independent"))
BUDGETS = 50
BYTES_PER_MB = 1 << 20
KB_PER_MB = 1 << 10  # ru_maxrss is in KiB on Linux


def sweep(n, kind, seed):
    """Return steps and medians of three repeats with t4 noise."""
    random = np.random.default_rng(seed)
    steps = np.linspace(64, 1024, n)
    x = steps / steps[-1]
    level = np.log(0.05 + 0.6 * x + 0.35 * x**2)
    if kind == "a sixth 3x slower":
        level[n // 3 : n // 2] += np.log(3)
    noise = 0.03 * random.standard_t(4, (REPEATS, n))
    if kind == "8 % of runs slow":
        noise += (random.random(noise.shape) < 0.08) * np.log(random.uniform(1.2, 2.5, noise.shape))
    return steps, level + np.median(noise, axis=0)


def detector_rows(repeats):
    """Time the detector for each kind of sweep and size."""
    rows = []
    for kind in ("clean", "a sixth 3x slower", "8 % of runs slow"):
        medians = {}
        for n in SIZES:
            taken = []
            for seed in range(repeats):
                steps, y = sweep(n, kind, seed)
                start = time.process_time()
                detect(steps, y, repeats=np.full(n, REPEATS), sigma=0.03, degree=2)
                taken.append(time.process_time() - start)
            medians[n] = float(np.median(taken))
            growth = f"{medians[n] / medians[1000]:.1f}" if n == 10_000 else ""
            rows.append(
                f"| detector, {kind} | {n} budgets | {medians[n]:.3f} s | {growth} | | "
                f"{TARGET_S[n]} |"
            )
    return rows


def traced_run(trials, gaps, mode):
    """Return a clean run with that many gaps per trial on average."""
    random = np.random.default_rng(0)
    series = Series(engine="simulated", mode=mode, arm="warm")
    made = []
    for k in range(trials):
        place = k % BUDGETS
        n = gaps if mode == "nested" else 2 * gaps * (place + 1) // (BUDGETS + 1)
        itl_s = 0.01 * (1 + 1e-5 * np.arange(n)) * np.exp(0.03 * random.standard_normal(n))
        decode_s = float(itl_s.sum())
        made.append(
            Trial(
                trial_id=str(k),
                occasion="benchmark",
                series=series,
                cell=Cell(budget=n + 1, prompt_tokens=8, kv_cache="on"),
                status="ok",
                warmup=False,
                phase="decode",
                process_run=k // BUDGETS,
                block=k // BUDGETS,
                order_index=place,
                output_tokens=n + 1,
                ttft_s=0.5,
                decode_s=decode_s,
                e2e_s=decode_s + 0.5,
                itl_s=itl_s.tolist(),
            )
        )
    header = RunHeader(
        schema_version=SCHEMA_VERSION, run="traces", created_utc="2026-01-01T00:00:00+00:00"
    )
    return Run(header=header, trials=tuple(made))


def peak_mb():
    """Return the peak memory of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (BYTES_PER_MB if sys.platform == "darwin" else KB_PER_MB)


def measure_traces(trials, gaps, mode):
    """Print what one trace case took; the body of the process that measures it."""
    run = traced_run(trials, gaps, mode)
    held_mb = peak_mb()
    start = time.process_time()
    found = conclude(run)
    taken = time.process_time() - start
    count = sum(len(trial.itl_s) for trial in run.trials)
    print(
        json.dumps(
            {
                "seconds": taken,
                "peak_mb": peak_mb(),
                "held_mb": held_mb,
                "gaps": count,
                "verdict": found.verdict.value,
            }
        )
    )


def trace_rows():
    """Measure each trace case in a process of its own."""
    rows = []
    for trials, gaps, mode in TRACES:
        case = json.dumps([trials, gaps, mode])
        done = subprocess.run(
            [sys.executable, __file__, "--case", case], check=True, capture_output=True, text=True
        )
        found = json.loads(done.stdout)
        rows.append(
            f"| every conclusion, {mode}, {found['verdict']} | {trials} trials, "
            f"{found['gaps'] / 1e6:.1f} million gaps | {found['seconds']:.1f} s | | "
            f"{found['peak_mb']:.0f} MB, records {found['held_mb']:.0f} MB | 5 s, 1 GB |"
        )
    return rows


def main():
    """Measure, print and write the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repeats", type=int, default=5, help="sweeps of each kind and size")
    options.add_argument("--case", help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.case:
        measure_traces(*json.loads(asked.case))
        return
    lines = [
        BEGIN,
        "",
        f"{processor_name()}, {os.cpu_count()} cores, one thread; processor seconds, median of "
        f"{asked.repeats} sweeps; numpy {np.__version__}; regimescope {versions()['regimescope']}. "
        "`make bench-analysis`.",
        "",
        "| work | size | time | growth from 1000 | peak memory | target |",
        "|---|---|---|---|---|---|",
        *detector_rows(asked.repeats),
        *trace_rows(),
    ]
    block = "\n".join([*lines, "", END])
    print(block)
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: block, text), encoding="utf-8")


if __name__ == "__main__":
    main()
