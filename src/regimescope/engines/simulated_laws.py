"""The laws of simulated machines: what a step takes, and what disturbs it. Layer: ``engines``.

Source: method, section 12; mechanisms, section 6.1. Every law is off unless asked for.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from regimescope.records import Cell

NoiseName = Literal["none", "gauss", "skew", "heavy"]
FloatArray = npt.NDArray[np.float64]

# A pause from which a machine loses clocks or wired memory (mechanisms, section 1.2: idle-unwire).
IDLE_S = 1.1
IDLE_STEPS = 10


class Noise(msgspec.Struct, frozen=True):
    """A noise law for whole trials: log-normal scatter with one-sided slow accidents.

    Attributes:
        spread: Standard deviation of log latency.
        accident_share: Share of trials that are slow by accident.
        accident_most: Largest factor of an accident, drawn log-uniformly from 1.2.
    """

    spread: float
    accident_share: float = 0.0
    accident_most: float = 1.2


# The presets of mechanisms, section 6.1.
NOISES: dict[str, Noise] = {
    "none": Noise(0.0),
    "gauss": Noise(0.02),
    "skew": Noise(0.03, 0.08, 2.5),
    "heavy": Noise(0.05, 0.15, 4.0),
}


class Law(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the parts of a simulated machine."""


class Band(Law, frozen=True, kw_only=True):
    """A slow interval, half open: ``onset`` is its first slow value, ``recovery`` the first normal.

    Attributes:
        axis: ``budget``: every step of a generation whose budget lies inside is slow;
            ``context``: the steps at a context length inside are slow, in every generation.
        onset: First slow value, in tokens.
        recovery: First normal value after it; absent for a step that never recovers.
        slowdown: Factor on the step time.
        prevalence: Share of processes that are slow inside the band.
    """

    onset: int
    recovery: int | None = None
    slowdown: float = 10.0
    axis: Literal["budget", "context"] = "budget"
    prevalence: float = 1.0


class Burst(Law, frozen=True, kw_only=True):
    """Accidents that last: some consecutive trials are slow together.

    Attributes:
        share: Probability that one begins at a trial.
        factor: How slow its trials are.
        trials: How many trials it lasts.
    """

    share: float
    factor: float = 3.0
    trials: int = 3


class Lottery(Law, frozen=True, kw_only=True):
    """A hidden choice at process start: the whole process is slow or not.

    Attributes:
        share: Probability of a slow process.
        factor: How slow it is.
    """

    share: float
    factor: float = 2.5


class Options(Law, frozen=True, kw_only=True):
    """Options of the simulated engine.

    Attributes:
        base_s: Seconds per step at context length zero.
        slope_s: Seconds per step and token of context.
        prefill_s: Seconds per prompt token.
        noise: Name of the noise law of whole trials.
        step_spread: Standard deviation of log step time within a trial.
        process_spread: Standard deviation of log level between processes.
        bands: Slow intervals.
        burst: Accidents over several trials.
        lottery: A hidden choice at process start.
        drift_per_100_s: Log change of the level per 100 virtual seconds of a process.
        idle_penalty_s: Seconds added to each of the first ten steps after a pause of 1.1 s.
        after_larger: Factor on a trial that follows one of a larger budget.
        stamp_s: Seconds that each stamp costs.
        fail_budgets: Budgets at which the engine fails, to test what happens then.
        positions: Longest context.
    """

    base_s: float = 0.010
    slope_s: float = 5e-6
    prefill_s: float = 2e-4
    noise: NoiseName = "gauss"
    step_spread: float = 0.02
    process_spread: float = 0.0
    bands: tuple[Band, ...] = ()
    burst: Burst | None = None
    lottery: Lottery | None = None
    drift_per_100_s: float = 0.0
    idle_penalty_s: float = 0.0
    after_larger: float = 1.0
    stamp_s: float = 0.0
    fail_budgets: tuple[int, ...] = ()
    positions: int = 131_072


class Machine:
    """One simulated process: what it drew at its start and what it remembers."""

    def __init__(self, options: Options, random: np.random.Generator) -> None:
        """Draw what holds for the whole process."""
        self._options = options
        self._random = random
        self._level = math.exp(options.process_spread * random.standard_normal())
        if options.lottery is not None and random.random() < options.lottery.share:
            self._level *= options.lottery.factor
        self._bands = tuple(b for b in options.bands if random.random() < b.prevalence)
        self._burst_left = 0
        self._previous_budget = 0

    def trial_factor(self, budget: int, since_start_s: float) -> float:
        """Return the factor that one whole trial shares, and remember the trial.

        Args:
            budget: Tokens requested.
            since_start_s: Age of the process in seconds.
        """
        options = self._options
        factor = self._level * self._accident() * self._burst()
        factor *= math.exp(options.drift_per_100_s * since_start_s / 100)
        if budget < self._previous_budget:
            factor *= options.after_larger
        self._previous_budget = budget
        return factor

    def step_seconds(self, prompt_tokens: int, cell: Cell, idle_s: float) -> FloatArray:
        """Return the seconds of every decode step after the first token, shape (budget - 1,)."""
        options, budget = self._options, cell.budget or 0
        context = prompt_tokens + np.arange(1, max(budget, 1), dtype=np.float64)
        # Without a cache each step computes all positions again, each at the price of prefill.
        per_position_s = options.prefill_s if cell.kv_cache == "off" else options.slope_s
        step_s = options.base_s + per_position_s * context
        for band in self._bands:
            at = context if band.axis == "context" else np.full_like(context, budget)
            end = math.inf if band.recovery is None else band.recovery
            step_s[(at >= band.onset) & (at < end)] *= band.slowdown
        if options.noise != "none" and options.step_spread > 0:
            step_s *= np.exp(options.step_spread * self._random.standard_normal(step_s.size))
        if idle_s > IDLE_S:
            step_s[:IDLE_STEPS] += options.idle_penalty_s
        return step_s

    def _accident(self) -> float:
        """Return the noise factor of one trial."""
        noise = NOISES[self._options.noise]
        factor = math.exp(noise.spread * self._random.standard_normal())
        if self._random.random() < noise.accident_share:
            factor *= math.exp(self._random.uniform(math.log(1.2), math.log(noise.accident_most)))
        return factor

    def _burst(self) -> float:
        """Return the factor of the burst that a trial falls into, if any."""
        burst = self._options.burst
        if burst is None:
            return 1.0
        if self._burst_left == 0 and self._random.random() < burst.share:
            self._burst_left = burst.trials
        if self._burst_left == 0:
            return 1.0
        self._burst_left -= 1
        return burst.factor
