"""Step time behind a synthetic KV cache against a decoded one of the same depth: paired.

    python benchmarks/fill.py [--model tiny] [--depths 128,512,960] [--seconds 120] [--tokens 32]
                              [--device cpu] [--dtype float32] [--seed 0]

Both sides run in one session, in random order within a pair, and read the same context lengths:
one decodes its way to the depth, one token after the other, the other has it filled in. The ratio
of the median steps beyond the depth is taken pair by pair; the table gives its median with a
bootstrap interval and is written into docs/benchmarks.md between the markers of this benchmark.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from regimescope.engines.base import EngineRequest
from regimescope.engines.hf import HfEngine
from regimescope.host.facts import versions
from regimescope.measure.trial import generate, latency, prompt
from regimescope.records import Cell

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- fill: begin -->", "<!-- fill: end -->"
LEAST_PAIRS = 8


def decoded_step_s(session, prompt_ids, depth, tokens):
    """Return the median step beyond a depth that was decoded."""
    cell = Cell(budget=depth + tokens + 1, prompt_tokens=1)
    return float(np.median(latency(generate(session, prompt_ids, cell)).itl_s[depth:]))


def filled_step_s(session, prompt_ids, depth, tokens):
    """Return the median step beyond a depth that was filled in."""
    cell = Cell(budget=tokens + 1, prompt_tokens=1, depth=depth)
    session.fill(depth, cell)
    return float(np.median(latency(generate(session, prompt_ids, cell)).itl_s))


def compare(session, depth, seconds, tokens, random):
    """Return step times of both sides, filled and decoded, one row per pair, in seconds."""
    prompt_ids = prompt(0, "fill", 1, session.facts().vocabulary)
    for warm_up in (filled_step_s, decoded_step_s):
        warm_up(session, prompt_ids, depth, tokens)
    rows = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(rows) < LEAST_PAIRS:
        sides = [filled_step_s, decoded_step_s]
        random.shuffle(sides)
        found = {side: side(session, prompt_ids, depth, tokens) for side in sides}
        rows.append((found[filled_step_s], found[decoded_step_s]))
    return np.array(rows)


def interval(ratio, random):
    """Return the 95 % bootstrap interval of the median ratio."""
    draws = random.choice(ratio, size=(10_000, ratio.size))
    return np.quantile(np.median(draws, axis=1), [0.025, 0.975])


def write(block):
    """Put a table in the place of the last one."""
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: block, text), encoding="utf-8")


def main():
    """Measure, print and write the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", default="tiny")
    options.add_argument("--depths", default="128,512,960")
    options.add_argument("--seconds", type=float, default=120.0)
    options.add_argument("--tokens", type=int, default=32)
    options.add_argument("--device", default="cpu")
    options.add_argument("--dtype", default="float32")
    options.add_argument("--seed", type=int, default=0)
    asked = options.parse_args()
    random = np.random.default_rng(asked.seed)
    session = HfEngine().open(
        EngineRequest(model=asked.model, device=asked.device, dtype=asked.dtype, seed=0)
    )
    facts = session.facts()
    lines = [
        BEGIN,
        "",
        f"{facts.description}, one thread; torch {torch.__version__}; {asked.model}, "
        f"{facts.dtype}; {asked.seconds:g} s of pairs a depth, {asked.tokens} steps beyond it, "
        f"seed {asked.seed}; regimescope {versions()['regimescope']}. `python benchmarks/fill.py`.",
        "",
        "| depth | pairs | decoded step, median | filled / decoded, median | 95 % interval |",
        "|---|---|---|---|---|",
    ]
    for depth in map(int, asked.depths.split(",")):
        rows = compare(session, depth, asked.seconds, asked.tokens, random)
        ratio = rows[:, 0] / rows[:, 1]
        low, high = interval(ratio, random)
        lines.append(
            f"| {depth:,} | {ratio.size} | {1e3 * np.median(rows[:, 1]):.3f} ms | "
            f"{np.median(ratio):.4f} | {low:.4f} to {high:.4f} |"
        )
    block = "\n".join([*lines, "", END])
    print(block)
    write(block)


if __name__ == "__main__":
    main()
