"""A synthetic machine that can be asked like a real one. Layer: ``testing``.

It answers ``measure(budget, process)`` with seconds, remembers what ran before, and knows the
truth, so that a whole plan (screen, confirmation, edges) can be simulated and its claims checked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from regimescope.stats.arrays import BoolArray, FloatArray, IntArray
from regimescope.testing.synthetic_noise import Noise, NoiseStream
from regimescope.testing.synthetic_truth import SlowRegime, Truth, tabulate

LOTTERY_SLOWDOWN = (2.0, 3.0)  # what a slower kernel costs where fresh processes draw one
EARLY_END_SHARE = (0.3, 0.95)  # part of its budget that a trial reaches when it ends early


class Trials(NamedTuple):
    """Trials in their order of measurement, shape (N,) each.

    Attributes:
        budget: tokens asked for.
        seconds: decode latency.
        output_tokens: tokens produced; fewer than the budget where generation ended early.
        block: process of the trial, counted from 0.
    """

    budget: IntArray
    seconds: FloatArray
    output_tokens: IntArray
    block: IntArray

    def where(self, kept: BoolArray) -> Trials:
        """The marked trials; kept has shape (N,)."""
        return Trials(
            self.budget[kept], self.seconds[kept], self.output_tokens[kept], self.block[kept]
        )


class Machine:
    """A simulated machine.

    Args:
        truth: its latency curve.
        noise: what disturbs the trials.
        rng: source of all randomness; the same state gives the same answers to the same questions.
    """

    def __init__(self, truth: Truth, noise: Noise, rng: np.random.Generator) -> None:
        self.truth = truth
        self._table = tabulate(truth, rng)
        self._stream = NoiseStream(noise, rng)
        self._rng = rng
        self._luck: dict[int, float] = {}
        self._last: dict[int, int] = {}
        self._lottery: tuple[int, BoolArray] = (-1, np.zeros(0, dtype=bool))
        self._lottery_seed = int(rng.integers(1 << 62)) if noise.lottery else 0
        self._lottery_log = math.log(rng.uniform(*LOTTERY_SLOWDOWN)) if noise.lottery else 0.0
        self._uncertain = bool(((self._table.chance % 1) > 0).any())
        self._history = any(regime.earlier for regime in truth.regimes)
        self._sometimes = any(regime.prevalence < 1 for regime in truth.regimes)

    def measure(self, budget: int, process: int) -> float:
        """Seconds of one trial.

        Args:
            budget: tokens asked for, from 2 to the longest budget of the truth.
            process: any number that stands for the process of the trial.

        Raises:
            ValueError: a budget out of range.
        """
        return float(self.run([budget], process).seconds[0])

    def run(self, budgets: ArrayLike, process: int) -> Trials:
        """Trials of one process, one after the other.

        Args:
            budgets: tokens asked for in the order of measurement, shape (N,), each from 2 to the
                longest budget of the truth.
            process: any number that stands for the process; a known one goes on.

        Raises:
            ValueError: a budget out of range.
        """
        asked = np.asarray(budgets, dtype=np.int64)
        if asked.size and (asked.min() < 2 or asked.max() > self.truth.longest):
            raise ValueError(f"budgets must lie in 2..{self.truth.longest}, got {asked}")
        produced = self._produced(asked)
        log_s = self._table.normal_log_s[produced]
        log_s = log_s + self._slow(asked, process) * self._table.excess[asked]
        if self._lottery_seed:
            log_s = log_s + self._lottery_log * self._drawn_slow(process)[asked]
        log_s = log_s + self._stream.take(asked.size, process)
        return Trials(asked, np.exp(log_s), produced, np.full(asked.size, process))

    def slowdown(self, regime: SlowRegime) -> float:
        """Geometric mean of the slowdown over the budgets of a regime."""
        inside = self._table.excess[regime.onset : regime.recovery]
        return math.exp(float(inside.mean()))

    def _produced(self, asked: IntArray) -> IntArray:
        if not self.truth.early_end:
            return asked
        ends = self._rng.random(asked.size) < self.truth.early_end
        reached = np.maximum(2, asked * self._rng.uniform(*EARLY_END_SHARE, asked.size))
        return np.where(ends, reached.astype(np.int64), asked)

    def _slow(self, asked: IntArray, process: int) -> FloatArray:
        """1 for trials that run slow, 0 for the others."""
        chance = self._table.chance[asked]
        if self._history and asked.size:
            before = np.concatenate([[self._last.get(process, 0)], asked[:-1]])
            chance = np.where(before > asked, self._table.chance_after_longer[asked], chance)
            self._last[process] = int(asked[-1])
        if self._uncertain:
            chance = (self._rng.random(asked.size) < chance).astype(np.float64)
        if self._sometimes:
            luck = self._luck.setdefault(process, float(self._rng.random()))
            chance = chance * (luck < self._table.prevalence[asked])
        return chance

    def _drawn_slow(self, process: int) -> BoolArray:
        """Which budgets drew the slower kernel in this process."""
        if self._lottery[0] != process:
            luck = np.random.default_rng([self._lottery_seed, process])
            drawn = luck.random(self.truth.longest + 1) < self._stream.noise.lottery
            self._lottery = (process, drawn)
        return self._lottery[1]


def sweep(
    machine: Machine,
    budgets: ArrayLike,
    processes: int,
    rng: np.random.Generator,
    *,
    first_process: int = 0,
) -> Trials:
    """Measure each budget once in each of several processes, in random order.

    As in the protocol, each process first generates once at its largest budget, untimed.

    Args:
        machine: what to measure.
        budgets: distinct budgets, shape (n,).
        processes: number of blocks, >= 1.
        rng: source of the order.
        first_process: number of the first process; the next ones count on.

    Raises:
        ValueError: no process or no budget.
    """
    values = np.asarray(budgets, dtype=np.int64)
    if processes < 1 or values.size == 0:
        raise ValueError("a sweep needs at least one process and one budget")
    blocks = []
    for process in range(first_process, first_process + processes):
        order = np.concatenate([[values.max()], rng.permutation(values)])
        trials = machine.run(order, process)
        kept = np.arange(order.size) > 0
        blocks.append(trials.where(kept))
    return joined(blocks)


def joined(parts: Sequence[Trials]) -> Trials:
    """Trials of several runs as one table, in the order given; at least one."""
    return Trials(
        np.concatenate([part.budget for part in parts]),
        np.concatenate([part.seconds for part in parts]),
        np.concatenate([part.output_tokens for part in parts]),
        np.concatenate([part.block for part in parts]),
    )
