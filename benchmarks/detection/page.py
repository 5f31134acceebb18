"""The benchmark's section of docs/benchmarks.md."""

from __future__ import annotations

import os
import re
from importlib import metadata
from pathlib import Path

from benchmarks.detection.cells import EDGE_COLUMNS, REGIME_COLUMNS, REPEATS, REPLAY, SEED
from benchmarks.detection.otava_process import VERSION as OTAVA_VERSION
from benchmarks.detection.penalties import ALARM_RATE, LENGTH
from benchmarks.detection.results import Scores
from benchmarks.detection.scoring import CONFIRMED, OURS
from benchmarks.detection.table import (
    clean_table,
    compared,
    noises_of,
    regime_table,
    side_by_side,
    wins,
)

from regimescope.host.facts import processor_name, versions
from regimescope.testing.synthetic_draws import HIGH, LOW

PAGE = Path(__file__).parent.parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- detection: begin -->", "<!-- detection: end -->"
CLEAN_BEGIN, CLEAN_END = "<!-- detection-clean: begin -->", "<!-- detection-clean: end -->"
CLEAN_GOAL, REGIME_GOAL = 2000, 300  # sweeps per cell that method section 12 asks for
LIBRARIES = ("ruptures", "skchange", "asv")


def write_page(scores: Scores, otava: str, page: Path = PAGE) -> str:
    """Replace the sections between the markers; return their text.

    The section of clean sweeps is counted apart, by the package alone and in many more sweeps; the
    other one stays as it is where no baseline ran.

    Args:
        scores: all counts.
        otava: what to say about Apache Otava: its version, or why it did not run.
        page: the page to write.
    """
    blocks = [(CLEAN_BEGIN, CLEAN_END, _clean_lines(scores))]
    if any(compared(scores, noise) for noise in noises_of(scores)):
        blocks.append((BEGIN, END, _lines(scores, otava)))
    text, written = page.read_text(encoding="utf-8"), []
    for begin, end, lines in blocks:
        block = "\n".join([begin, "", *lines, "", end])
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        text = pattern.sub(lambda _, block=block: block, text)
        written.append(block)
    page.write_text(text, encoding="utf-8")
    return "\n".join(written)


def _clean_lines(scores: Scores) -> list[str]:
    named = ", ".join(f"{name} {version}" for name, version in versions().items())
    return [
        f"{named}. Seed {SEED}; `python -m benchmarks.detection --columns clean --compare 0`. "
        "Sweeps with a confirmed regime where there is none. The bound is the one-sided 95 % upper "
        "one; the target of 1 per 1000 can only be stated from 2995 clean sweeps without any.",
        "",
        *clean_table(scores),
    ]


def _lines(scores: Scores, otava: str) -> list[str]:
    packages = ", ".join(f"{name} {metadata.version(name)}" for name in LIBRARIES)
    named = ", ".join(f"{name} {version}" for name, version in versions().items())
    lines = [
        f"{processor_name()}, {os.cpu_count()} cores shared with other work; {named}; {packages}; "
        f"{otava}. Seed {SEED}; budgets {LOW} to {HIGH}, jittered grid of {LENGTH}, {REPEATS} "
        f"processes, {REPEATS} trials a budget. `make bench-detection`.",
        "",
        _sizes(scores),
        "",
        "### Regimes found by the package, screen and confirmation",
        "",
        _regimes_explained(scores),
        "",
        *regime_table(scores),
    ]
    for noise in noises_of(scores):
        counts = compared(scores, noise)
        if counts:
            lines += ["", f"### Side by side: {noise}", "", _explained(counts), ""]
            lines += [*side_by_side(scores, noise), "", *_wins(scores, noise)]
    return lines


def _sizes(scores: Scores) -> str:
    """What the sizes of the cells allow to be said."""
    ours = {key[:2]: s.sweeps for key, s in scores.items() if key[2:] == (OURS, CONFIRMED)}
    clean = min((n for (_, column), n in ours.items() if column == "clean"), default=0)
    regime = min((n for (_, column), n in ours.items() if column in REGIME_COLUMNS), default=0)
    goals = f"the method asks for {CLEAN_GOAL} and {REGIME_GOAL}"
    replays = [name for name in noises_of(scores) if name.startswith(REPLAY)]
    noise = "Replayed: " + ", ".join(replays) if replays else "No replayed noise is in these counts"
    return f"Smallest clean cell {clean} sweeps, smallest regime cell {regime}; {goals}. {noise}."


def _regimes_explained(scores: Scores) -> str:
    text = "Shares with Clopper-Pearson 95 % intervals. A regime found in two parts is not exact, "
    text += "and its edges and slowdown are left out."
    if any(key[1] in EDGE_COLUMNS for key in scores):
        text += (
            " In the rows `transition` the chance of a slow run changes over so many tokens, in "
            "`prevalence` the regime shows in that share of the processes, in `history` its onset "
            "comes 64 tokens earlier after a longer trial."
        )
    return text


def _explained(counts: dict[str, int]) -> str:
    sizes = sorted(set(counts.values()))
    number = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return (
        f"{number} sweeps a column for the baselines, the same trials for all methods. Cells: "
        "regimes found / found with both edges exact (on the grid for a screen, to one token with "
        f"confirmation). Penalties of PELT, KernelCPD and the calibrated rows: {ALARM_RATE:.0%} of "
        f"Gaussian series of {LENGTH} raise an alarm, as for the joint fit. Time is processor time."
    )


def _wins(scores: Scores, noise: str) -> list[str]:
    found = list(wins(scores, noise))
    if not found:
        return ["No baseline found more regimes than the joint fit here."]
    return ["Where a baseline found more than the joint fit:", "", *(f"- {w}" for w in found)]


def otava_words(state: str | None) -> str:
    """What the page says about Apache Otava."""
    return f"Apache Otava {OTAVA_VERSION}" if state is None else f"Apache Otava not run ({state})"
