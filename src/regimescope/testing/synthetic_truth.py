"""Latency curves whose slow budgets are known exactly (method section 12). Layer: ``testing``.

A truth is a curve of section 2 with elements on it: slow regimes, which a detector should find, and
shapes that it should not call a regime. ``tabulate`` turns it into one number per budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from regimescope.stats.arrays import BoolArray, FloatArray, IntArray
from regimescope.stats.curve import basis


@dataclass(frozen=True)
class SlowRegime:
    """Budgets [onset, recovery) that run slow.

    Attributes:
        onset: first slow budget.
        recovery: first normal budget after it.
        slowdown: typical factor inside, > 1.
        scatter: standard deviation of the log slowdown between budgets.
        transition: tokens over which the chance of being slow rises and falls, centered on the
            edges; 0 for sharp edges.
        prevalence: share of processes in which the regime shows at all.
        earlier: tokens by which the onset comes earlier in a process whose trial before was longer.
    """

    onset: int
    recovery: int
    slowdown: float
    scatter: float = 0.0
    transition: int = 0
    prevalence: float = 1.0
    earlier: int = 0

    def __post_init__(self) -> None:
        """Check the regime.

        Raises:
            ValueError: no budget inside, a slowdown of 1 or less, or another size out of range.
        """
        if not 2 <= self.onset < self.recovery or not self.slowdown > 1:
            raise ValueError(f"need 2 <= onset < recovery and a slowdown above 1, got {self}")
        if min(self.scatter, self.transition, self.earlier) < 0 or not 0 < self.prevalence <= 1:
            raise ValueError(f"sizes must not be negative and prevalence in (0, 1], got {self}")


@dataclass(frozen=True)
class Truth:
    """A latency curve with everything that is true about it.

    Attributes:
        coefficients: seconds for x^0..x^d with ``x = steps / steps_max``, all >= 0.
        longest: largest budget that can be asked for; x = 1 there.
        regimes: what is to be found, disjoint, ascending.
        step_at: budget from which latency stays higher; 0 for none.
        step_slowdown: factor of that step.
        bend_at: budget from which the slope changes; 0 for none.
        bend: seconds that the change adds (or, negative, saves) at the longest budget.
        page: period in tokens of a saw-tooth; 0 for none.
        page_size: relative height of the saw-tooth.
        early_end: chance that a trial ends before its budget.
        wiggle: largest lasting excess of single budgets, a share.
    """

    coefficients: tuple[float, ...]
    longest: int = 1024
    regimes: tuple[SlowRegime, ...] = ()
    step_at: int = 0
    step_slowdown: float = 1.0
    bend_at: int = 0
    bend: float = 0.0
    page: int = 0
    page_size: float = 0.0
    early_end: float = 0.0
    wiggle: float = 0.0

    def slow_budgets(self, low: int, high: int) -> IntArray:
        """Budgets of [low, high] that lie in a regime, ascending."""
        every = np.arange(low, high + 1)
        return every[self.is_slow(every)]

    def is_slow(self, budgets: IntArray) -> BoolArray:
        """Whether each budget lies in a regime; same shape."""
        inside = np.zeros(budgets.shape, dtype=bool)
        for regime in self.regimes:
            inside |= (budgets >= regime.onset) & (budgets < regime.recovery)
        return inside


class BudgetTable(NamedTuple):
    """A truth as one entry per budget, index = budget, shape (longest + 1,) each.

    Attributes:
        normal_log_s: log seconds of a normal run; -inf at budgets 0 and 1.
        excess: log slowdown of a slow run; 0 where no regime reaches.
        chance: chance that a run is slow, in a process where the regime shows.
        chance_after_longer: the same after a longer trial in the same process.
        prevalence: share of processes in which the regime at this budget shows; 1 elsewhere.
    """

    normal_log_s: FloatArray
    excess: FloatArray
    chance: FloatArray
    chance_after_longer: FloatArray
    prevalence: FloatArray


def tabulate(truth: Truth, rng: np.random.Generator) -> BudgetTable:
    """Put the truth into tables, drawing what differs between budgets for good.

    Args:
        truth: what is true.
        rng: source of the wiggle and of the scatter inside regimes.

    Raises:
        ValueError: a regime beyond the longest budget, or two that overlap.
    """
    size = truth.longest + 1
    budgets = np.arange(size)
    chance, later, excess = np.zeros(size), np.zeros(size), np.zeros(size)
    prevalence = np.ones(size)
    end = 0
    for regime in truth.regimes:
        if regime.onset < end or regime.recovery > size:
            raise ValueError("regimes must be ascending, disjoint and within the longest budget")
        end = regime.recovery
        share = _chance(regime, budgets, regime.onset)
        mine = share >= chance
        chance = np.where(mine, share, chance)
        early = np.maximum(share, _chance(regime, budgets, regime.onset - regime.earlier))
        later = np.maximum(later, early)
        reached = mine & (early > 0)
        scattered = math.log(regime.slowdown) + regime.scatter * rng.standard_normal(size)
        # Scatter may not turn a slow budget into a normal one.
        excess = np.where(reached, np.maximum(scattered, math.log(regime.slowdown) / 2), excess)
        prevalence = np.where(reached, regime.prevalence, prevalence)
    normal = _normal_log_s(truth, budgets)
    if truth.wiggle:
        normal = normal + np.log1p(rng.uniform(0.0, truth.wiggle, size))
    return BudgetTable(normal, excess, chance, np.maximum(chance, later), prevalence)


def _chance(regime: SlowRegime, budgets: IntArray, onset: int) -> FloatArray:
    """Chance of a slow run at each budget: the edges of method section 6."""
    if regime.transition == 0:
        return ((budgets >= onset) & (budgets < regime.recovery)).astype(np.float64)
    slope = 4.0 / regime.transition
    enters = 1 / (1 + np.exp(-slope * (budgets - onset + 0.5)))
    leaves = 1 / (1 + np.exp(-slope * (budgets - regime.recovery + 0.5)))
    share = enters * (1 - leaves)
    # Far from the edges a chance of a thousandth is none.
    settled: FloatArray = np.where(share < 1e-3, 0.0, np.where(share > 1 - 1e-3, 1.0, share))
    return settled


def _normal_log_s(truth: Truth, budgets: IntArray) -> FloatArray:
    steps = np.maximum(budgets - 1, 0)
    powers = basis(steps, float(truth.longest - 1), len(truth.coefficients) - 1)
    seconds = powers @ np.array(truth.coefficients)
    if truth.bend_at:
        beyond = np.maximum(0, budgets - truth.bend_at) / (truth.longest - truth.bend_at)
        seconds = seconds + truth.bend * beyond
    if truth.step_at:
        seconds = np.where(budgets >= truth.step_at, truth.step_slowdown, 1.0) * seconds
    if truth.page:
        seconds = seconds * (1 + truth.page_size * (budgets % truth.page) / truth.page)
    logs = np.full(budgets.size, -np.inf)
    logs[2:] = np.log(np.maximum(seconds[2:], np.finfo(float).tiny))
    return logs
