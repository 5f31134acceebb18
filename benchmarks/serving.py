"""What our own server adds to a model: bare against served, paired, in fresh processes.

    python benchmarks/serving.py [--model distilgpt2] [--starts 6] [--seconds 60] [--tokens 48]

Every start is a new server and a new process that holds the same model bare. Within a start the
ways take turns in random order, one generation each, from the same prompt: bare, and over HTTP
alone and beside others, which are sent right after it. Before each turn a request of one token
waits until the server is idle, which still works on what the turn before has left. The ratio of
served to bare is taken round by round, its median is the figure of the start, and starts are the
replicates of the t interval (of logarithms) that goes into docs/benchmarks.md between the markers
of this benchmark.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy import stats

from regimescope.engines.base import EngineRequest
from regimescope.engines.registry import get_engine
from regimescope.errors import EngineError
from regimescope.host.facts import processor_name, versions
from regimescope.measure.trial import generate, latency, prompt
from regimescope.metrics import tpot_s
from regimescope.records import Cell
from regimescope.testing.local_server import local_server

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- serving: begin -->", "<!-- serving: end -->"
PROMPT_TOKENS = 65
LEAST_ROUNDS = 4
CONCURRENCY = (1, 2, 4)
NAMES = ("TTFT", "TPOT")


def opened(engine, model, **options):
    """Return a session of a model, with one thread where it decodes here."""
    device = "cpu" if engine == "hf" else "auto"
    request = EngineRequest(model=model, device=device, dtype="float32", seed=0, options=options)
    return get_engine(engine).open(request)


def one_start(model, tokens, seconds, seed):
    """Return the medians of one start and how many generations failed, by way.

    Returns:
        Seconds of TTFT and TPOT by way, the median ratios to bare by way, both of shape (2,), and
        a count of generations whose tokens did not come one by one.
    """
    random = np.random.default_rng(seed)
    cell = Cell(budget=tokens, prompt_tokens=PROMPT_TOKENS, kv_cache="on", batch=1)
    with local_server(model, "--device", "cpu", "--engine-option", "threads=1") as url:
        sessions = {"bare": opened("hf", model, threads=1)}
        for number in CONCURRENCY:
            sessions[number] = opened("openai", "server", url=f"{url}/v1", concurrency=number)
        vocabulary = sessions["bare"].facts().vocabulary
        failed, rounds = Counter(), []

        def run(way, name):
            idle = prompt(seed, f"{name}.idle", 1, vocabulary)
            generate(sessions[CONCURRENCY[0]], idle, Cell(budget=1, prompt_tokens=1))
            found = latency(
                generate(sessions[way], prompt(seed, name, PROMPT_TOKENS, vocabulary), cell)
            )
            return found.ttft_s, tpot_s(found.ttft_s, found.e2e_s, tokens)

        end = time.monotonic() + seconds
        for number in range(-1, 10**6):
            times = {}
            for way in random.permutation(np.array(list(sessions), dtype=object)):
                try:
                    times[way] = run(way, f"{number}")
                except EngineError as error:
                    failed[way, str(error)[:60]] += 1
            # The round before the first warms everything up.
            if number >= 0 and len(times) == len(sessions):
                rounds.append(times)
            if time.monotonic() > end and len(rounds) >= LEAST_ROUNDS:
                break
        for session in sessions.values():
            session.close()
    seen = {way: np.array([r[way] for r in rounds]) for way in sessions}
    ratios = {way: np.median(seen[way] / seen["bare"], axis=0) for way in CONCURRENCY}
    return {way: np.median(values, axis=0) for way, values in seen.items()}, ratios, failed


def interval(values):
    """Return a geometric mean with its 95 % t interval; values of shape (starts,)."""
    logs = np.log(values)
    half = stats.t.ppf(0.975, logs.size - 1) * stats.sem(logs)
    return np.exp([logs.mean(), logs.mean() - half, logs.mean() + half])


def rows(found):
    """Yield the lines of the table."""
    for number in CONCURRENCY:
        for index, name in enumerate(NAMES):
            bare, served = (
                1e3 * np.median([times[way][index] for times, _, _ in found])
                for way in ("bare", number)
            )
            mean, low, high = interval(np.array([ratios[number][index] for _, ratios, _ in found]))
            yield (
                f"| {name} | {number} | {bare:.1f} ms | {served:.1f} ms | {mean:.3f} | "
                f"{low:.3f} to {high:.3f} |"
            )


def main():
    """Measure, print and write the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", default="distilgpt2")
    options.add_argument("--starts", type=int, default=6)
    options.add_argument("--seconds", type=float, default=60.0, help="of each start")
    options.add_argument("--tokens", type=int, default=48)
    options.add_argument("--seed", type=int, default=0)
    asked = options.parse_args()
    found = []
    for start in range(asked.starts):
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            seed = asked.seed + start
            found.append(
                pool.submit(one_start, asked.model, asked.tokens, asked.seconds, seed).result()
            )
        print(f"start {start}: {found[-1]}", flush=True)
    failed = sum((count for _, _, count in found), Counter())
    libraries = ", ".join(f"{name} {version}" for name, version in versions().items())
    lines = [
        BEGIN,
        "",
        f"{processor_name()}, {os.cpu_count()} cores, one thread; {libraries}; {asked.model}, "
        f"float32, {asked.tokens} tokens after a prompt of {PROMPT_TOKENS}; {asked.starts} starts "
        f"of {asked.seconds:g} s, seeds from {asked.seed}; {failed.total()} generations failed. "
        "`python benchmarks/serving.py`.",
        "",
        "| what | requests at once | bare, median | served, median | served / bare "
        "| 95 % interval |",
        "|---|---|---|---|---|---|",
        *rows(found),
    ]
    block = "\n".join([*lines, "", END])
    print(block, dict(failed))
    text = PAGE.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{PAGE} has no place for this table: {BEGIN} {END}")
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: block, text), encoding="utf-8")


if __name__ == "__main__":
    main()
