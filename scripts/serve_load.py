"""Load on the server: parallel clients that know the right answers.

    python scripts/serve_load.py [--clients 32] [--seconds 60]

Every prompt is first completed alone. Then the clients ask for the same prompts in a random order,
streamed and whole, and compare. Writes the figures into docs/reliability.md.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from regimescope.host.facts import processor_name, versions
from regimescope.testing.local_server import local_server

PAGE = Path(__file__).parent.parent / "docs" / "reliability.md"
BEGIN, END = "<!-- serve: begin -->", "<!-- serve: end -->"
PROMPTS = {n: [n + 1, 2 * n + 1, 3 * n + 2] for n in range(64)}
BUDGET = 6


def ask(client: httpx.Client, number: int, *, stream: bool) -> list[int]:
    """Return the tokens that the server answers to a prompt."""
    body = {"prompt": PROMPTS[number], "max_tokens": BUDGET, "stream": stream}
    if not stream:
        answer = client.post("/v1/completions", json=body).raise_for_status().json()
        return list(answer["choices"][0]["token_ids"])
    with client.stream("POST", "/v1/completions", json=body) as response:
        response.raise_for_status()
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    if lines[-1] != "[DONE]":
        raise ValueError("the stream ended early")
    choices = (choice for line in lines[:-1] for choice in json.loads(line)["choices"])
    return [token for choice in choices for token in choice.get("token_ids", [])]


def client_loop(url: str, seed: int, known: dict[int, list[int]], until: float) -> Counter[str]:
    """Ask until the time is over, and count what came."""
    draw, found = random.Random(seed), Counter[str]()
    with httpx.Client(base_url=url, timeout=120) as client:
        while time.monotonic() < until:
            number, stream = draw.choice(list(known)), draw.random() < 0.5
            try:
                tokens = ask(client, number, stream=stream)
            except (httpx.HTTPError, ValueError, KeyError) as error:
                found[f"failed: {type(error).__name__}"] += 1
                continue
            found["right" if tokens == known[number] else "mixed up"] += 1
    return found


def load(url: str, clients: int, seconds: float) -> Counter[str]:
    """Return what all clients counted together."""
    with httpx.Client(base_url=url, timeout=120) as client:
        known = {number: ask(client, number, stream=False) for number in PROMPTS}
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(clients) as pool:
        found = pool.map(lambda seed: client_loop(url, seed, known, until), range(clients))
        return sum(found, Counter[str]())


def main() -> None:
    """Start the server, load it, write the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--clients", type=int, default=32)
    options.add_argument("--seconds", type=float, default=60.0)
    asked = options.parse_args()
    with local_server("tiny", "--device", "cpu") as url:
        found = load(url, asked.clients, asked.seconds)
    total = sum(found.values())
    lines = [
        BEGIN,
        "",
        f"`python scripts/serve_load.py`, {processor_name()}, regimescope "
        f"{versions()['regimescope']}, model tiny on the CPU: {asked.clients} clients for "
        f"{asked.seconds:.0f} s, {BUDGET} tokens a request, half of them streamed.",
        "",
        "| requests | right | mixed up | failed |",
        "|---|---|---|---|",
        f"| {total:,} | {found['right']:,} | {found['mixed up']:,} | "
        f"{total - found['right'] - found['mixed up']:,} |",
        "",
        END,
    ]
    text, block = PAGE.read_text(encoding="utf-8"), "\n".join(lines)
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: block, text), encoding="utf-8")
    print(block)
    print(dict(found))


if __name__ == "__main__":
    main()
