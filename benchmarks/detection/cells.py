"""Cells of the benchmark: which noise, which truth, which sweep.

Every sweep has its own seed, made of the benchmark's, the cell's and its own number, so that all
methods see the same trials and any sweep can be drawn again alone.
"""

from __future__ import annotations

import copy
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from regimescope.search.screening import grid
from regimescope.stats.arrays import FloatArray, IntArray
from regimescope.stats.drift import median_polish
from regimescope.stats.estimate import summarize_repeats
from regimescope.testing.synthetic import Machine, Trials, sweep
from regimescope.testing.synthetic_draws import (
    CONFOUNDERS,
    GAP,
    HIGH,
    LOW,
    NARROW,
    WIDE,
    draw_confounder,
    draw_curve,
    draw_regime,
    draw_two_regimes,
)
from regimescope.testing.synthetic_noise import NOISE_CELLS, Noise, replayed
from regimescope.testing.synthetic_truth import Truth

SEED = 990117  # of the evaluation alone: the penalty table and the penalties below use others
REPEATS = 3  # processes of the screen, one block each
RECORDINGS = Path(__file__).parent.parent / "noise"
REPLAY = "replay_"  # prefix of the cells that replay a recording
LONE_BURST_WITHIN = 90  # trials: the burst falls into the screen of about 31 budgets

# Columns of the table: what is true. The first group holds no regime.
CLEAN_COLUMNS = (*CONFOUNDERS, "step2", "lone_burst")
REGIME_COLUMNS = ("1.5x narrow", "1.5x wide", "2x narrow", "2x wide", "10x wide", "two")
EDGE_COLUMNS = ("transition 8", "transition 32", "transition 64", "prevalence 0.7", "history 64")


@dataclass(frozen=True, eq=False)
class Case:
    """One sweep with its truth.

    Attributes:
        truth: what is true.
        steps: decode steps of the screened budgets (budget - 1), shape (n,).
        log_s: log of their median latency, block effects removed, shape (n,).
        repeats: trials behind each, shape (n,).
        sigma: scale of one trial in log units.
        tokens: tokens spent, warm-ups included.
        trials: the trials themselves.
        machine: the machine after the screen; take a copy before asking it.
        seed: seed of what follows the screen.
    """

    truth: Truth
    steps: FloatArray
    log_s: FloatArray
    repeats: IntArray
    sigma: float
    tokens: int
    trials: Trials
    machine: Machine
    seed: tuple[int, ...]

    @property
    def degree(self) -> int:
        """Degree that the mode of decoding gives: 2 with a KV cache, 3 without."""
        return len(self.truth.coefficients) - 1

    def fresh(self) -> tuple[Machine, np.random.Generator]:
        """A copy of the machine, and a source of order: the same for every method."""
        return copy.deepcopy(self.machine), np.random.default_rng([*self.seed, 1])


class Summary(NamedTuple):
    """A screen, one row per budget."""

    steps: FloatArray
    log_s: FloatArray
    repeats: IntArray
    sigma: float


def noises(folder: Path = RECORDINGS) -> dict[str, Noise]:
    """All noise cells by name; replayed ones as far as the folder holds recordings."""
    cells = dict(NOISE_CELLS)
    for path in sorted(folder.glob("*.json")):
        for series in msgspec.json.decode(path.read_bytes())["series"]:
            recorded = [np.array(values) for values in series["log_residuals"]]
            cells[f"{REPLAY}{series['name']}"] = replayed(recorded)
    return cells


def draw_truth(column: str, rng: np.random.Generator) -> Truth:
    """Draw the truth of a column; every fourth curve is one without a KV cache."""
    cached = bool(rng.random() < 0.75)
    if column in CONFOUNDERS:
        return draw_confounder(column, rng, kv_cache=cached)
    if column == "lone_burst":
        return draw_curve(rng, kv_cache=cached)
    if column == "step2":
        place = int(rng.integers(LOW + 3 * GAP, HIGH - 3 * GAP))
        return replace(draw_curve(rng, kv_cache=cached), step_at=place, step_slowdown=2.0)
    if column == "two":
        return draw_two_regimes(rng, kv_cache=cached)
    if column in EDGE_COLUMNS:
        return _hard_edges(column, rng, cached)
    slowdown, width = column.split()
    return draw_regime(
        rng,
        slowdown=float(slowdown.rstrip("x")),
        width=NARROW if width == "narrow" else WIDE,
        kv_cache=cached,
    )


def _hard_edges(column: str, rng: np.random.Generator, cached: bool) -> Truth:
    """A regime of 3 times and 128 to 320 tokens whose edges are not sharp, or not always there."""
    kind, size = column.split()
    truth = draw_regime(rng, slowdown=3.0, width=(128, 320), kv_cache=cached)
    (regime,) = truth.regimes
    if kind == "transition":
        harder = replace(regime, transition=int(size))
    elif kind == "history":
        harder = replace(regime, earlier=int(size))
    else:
        harder = replace(regime, prevalence=float(size))
    return replace(truth, regimes=(harder,))


def draw_case(noise_name: str, noise: Noise, column: str, number: int) -> Case:
    """Draw and screen one machine.

    Args:
        noise_name: name of the noise cell, part of the seed.
        noise: the noise.
        column: what is true.
        number: number of the sweep within its cell.
    """
    seed = (SEED, zlib.crc32(f"{noise_name}/{column}".encode()), number)
    rng = np.random.default_rng([*seed, 0])
    truth = draw_truth(column, rng)
    if column == "lone_burst":
        noise = replace(noise, lone_burst_within=LONE_BURST_WITHIN)
    machine = Machine(truth, noise, rng)
    budgets = np.array(grid(LOW, HIGH, GAP, rng))
    trials = sweep(machine, budgets, REPEATS, rng)
    tokens = int(trials.budget.sum()) + REPEATS * int(budgets.max())
    return Case(truth, *summarized(trials), tokens, trials, machine, seed)


def summarized(trials: Trials) -> Summary:
    """Medians of the trials with the right token count, block effects removed by median polish."""
    right = trials.output_tokens == trials.budget
    budget, row = np.unique(trials.budget[right], return_inverse=True)
    _, column = np.unique(trials.block[right], return_inverse=True)
    y = np.log(trials.seconds[right])
    table = np.full((budget.size, int(column.max()) + 1), np.nan)
    table[row, column] = y
    polish = median_polish(table)
    summary = summarize_repeats(budget[row] - 1.0, y - polish.column[column])
    return Summary(summary.steps, summary.median, summary.repeats, summary.sigma)
