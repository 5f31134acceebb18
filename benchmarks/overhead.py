"""Step time inside the tool against the bare loop: paired, interleaved, in one process.

    python benchmarks/overhead.py [--models tiny,gpt2] [--seconds 240] [--tokens 32] [--seed 0]

Both sides run the same model object, one generation each in random order within a pair. The ratio
of their median steps is taken pair by pair, for as long as asked; the table gives its median with a
bootstrap interval and is written into docs/benchmarks.md between the markers of this benchmark.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from transformers import DynamicCache

from regimescope.engines.base import EngineRequest
from regimescope.engines.hf import HfEngine
from regimescope.engines.hf_cache import CACHE_KEYWORDS
from regimescope.host.facts import processor_name, versions
from regimescope.measure.trial import generate, latency, prompt
from regimescope.records import Cell

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- overhead: begin -->", "<!-- overhead: end -->"
PROMPT_TOKENS = 65
LEAST_PAIRS = 8


def bare_step_s(model, keyword, prompt_ids, tokens):
    """Return the median step of the plainest loop that ends each step on the host."""
    stamps = []
    with torch.inference_mode():
        ids = torch.tensor([prompt_ids])
        cache = DynamicCache(config=model.config)
        for _ in range(tokens):
            logits = model(ids, **{keyword: cache}, use_cache=True, logits_to_keep=1).logits
            ids = logits[:, -1].argmax(-1, keepdim=True)
            ids.tolist()
            stamps.append(time.perf_counter_ns())
    return float(np.median(np.diff(stamps))) / 1e9


def compare(name, seconds, tokens, random):
    """Return step times of both sides, one row per pair, in seconds."""
    request = EngineRequest(model=name, device="cpu", dtype="float32", seed=0)
    session = HfEngine().open(request)
    model = session._loop._model
    names = inspect.signature(model.forward).parameters
    keyword = next(name for name in CACHE_KEYWORDS if name in names)
    prompt_ids = prompt(0, "overhead", PROMPT_TOKENS, session.facts().vocabulary)
    cell = Cell(budget=tokens, prompt_tokens=PROMPT_TOKENS, kv_cache="on", batch=1)

    def tool():
        return float(np.median(latency(generate(session, prompt_ids, cell)).itl_s))

    def bare():
        return bare_step_s(model, keyword, prompt_ids, tokens)

    for warm_up in (tool, bare):
        warm_up()
    rows = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(rows) < LEAST_PAIRS:
        sides = [("tool", tool), ("bare", bare)]
        random.shuffle(sides)
        found = {side: run() for side, run in sides}
        rows.append((found["tool"], found["bare"]))
    return np.array(rows)


def interval(ratio, random):
    """Return the 95 % bootstrap interval of the median ratio."""
    draws = random.choice(ratio, size=(10_000, ratio.size))
    return np.quantile(np.median(draws, axis=1), [0.025, 0.975])


def main():
    """Measure, print and write the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--models", default="tiny,gpt2")
    options.add_argument("--seconds", type=float, default=240.0)
    options.add_argument("--tokens", type=int, default=32)
    options.add_argument("--seed", type=int, default=0)
    asked = options.parse_args()
    random = np.random.default_rng(asked.seed)
    lines = [
        BEGIN,
        "",
        f"{processor_name()}, {os.cpu_count()} cores, one thread; torch {torch.__version__}; "
        f"{asked.seconds:g} s of pairs of {asked.tokens} tokens a model, seed {asked.seed}; "
        f"regimescope {versions()['regimescope']}. `make bench-overhead`.",
        "",
        "| model | pairs | bare step, median | tool / bare, median | 95 % interval | target |",
        "|---|---|---|---|---|---|",
    ]
    for name in asked.models.split(","):
        rows = compare(name, asked.seconds, asked.tokens, random)
        ratio = rows[:, 0] / rows[:, 1]
        low, high = interval(ratio, random)
        lines.append(
            f"| {name} | {ratio.size} | {1e3 * np.median(rows[:, 1]):.2f} ms | "
            f"{np.median(ratio):.4f} | {low:.4f} to {high:.4f} | within 0.5 % |"
        )
    block = "\n".join([*lines, "", END])
    print(block)
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: block, text), encoding="utf-8")


if __name__ == "__main__":
    main()
