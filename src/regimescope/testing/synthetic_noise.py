"""Noise of synthetic measurements, trial after trial (method section 12). Layer: ``testing``.

A stream yields the log residual of each trial in the order of measurement, so that bursts, drift
and correlation act on whatever plan asks for the trials, as on a real machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.signal import lfilter

from regimescope.stats.arrays import FloatArray, IntArray, finite_vector

CHUNK = 1024  # trials drawn ahead: a sweep with its confirmation fits
BURST_TRIALS = (2, 5)  # a burst covers 2 to 4 consecutive trials (method section 12)
BURST_SLOWDOWN = (1.3, 3.0)  # what a busy neighbor or a collection costs a trial
LONE_BURST_TRIALS = (5, 21)  # the single burst of a sweep: 5 to 20 consecutive trials
WARM_UP_TRIALS = 3.0  # decay of the warm-up over the trials of a process
DRIFTS = ("none", "linear", "exponential", "thermal")
THERMAL_TRIALS = 40  # trials of one heating and cooling cycle
SKEWNESS = 0.6  # shape of the log-normal body: skewness of about 2.3


@dataclass(frozen=True)
class Noise:
    """What disturbs the trials of one machine; all sizes in log units or as shares.

    Attributes:
        body: ``gauss``, ``t3`` (Student's t with 3 degrees of freedom), ``skew`` (centered
            log-normal) or ``replay``.
        scale: scale of the body; its standard deviation but for ``t3``.
        spikes: share of trials slowed by a factor between 1.2 and ``spike_limit``.
        spike_limit: largest factor of a spike, > 1.2.
        correlation: of consecutive trials, an AR(1) coefficient in [0, 1).
        bursts: chance per trial that 2 to 4 trials are slowed together.
        lone_burst_within: one burst of 5 to 20 trials begins within so many; 0 for none.
        drift: ``none``, ``linear``, ``exponential`` or ``thermal`` (a saw-tooth).
        drift_limit: the drift of a machine is drawn uniformly up to this share.
        drift_trials: trials over which a linear drift reaches its size and stays.
        warm_up_limit: excess of a first trial of a process, drawn up to this share.
        process_scale: standard deviation of the level of a process.
        lottery: share of (process, budget) pairs with a slower kernel, at any budget.
        recorded: for ``replay``, the residuals of each recorded process in their order.
    """

    body: str = "gauss"
    scale: float = 0.02
    spikes: float = 0.0
    spike_limit: float = 2.5
    correlation: float = 0.0
    bursts: float = 0.0
    lone_burst_within: int = 0
    drift: str = "none"
    drift_limit: float = 0.0
    drift_trials: int = 200
    warm_up_limit: float = 0.0
    process_scale: float = 0.0
    lottery: float = 0.0
    recorded: tuple[FloatArray, ...] = ()

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            ValueError: an unknown name, a share out of range, or a replay without recording.
        """
        if self.body not in {"gauss", "t3", "skew", "replay"} or self.drift not in DRIFTS:
            raise ValueError(f"unknown body {self.body!r} or drift {self.drift!r}")
        shares = (self.spikes, self.correlation, self.bursts, self.lottery)
        if not all(0 <= share < 1 for share in shares) or self.scale < 0:
            raise ValueError("shares must lie in [0, 1) and the scale must not be negative")
        if (self.body == "replay") != bool(self.recorded):
            raise ValueError("a replay needs recorded residuals, and nothing else may have them")


# The noise cells of the benchmark (method section 12); "replay" comes from recordings.
NOISE_CELLS = {
    "gauss": Noise(scale=0.02),
    "t3": Noise("t3", 0.03),
    "skew": Noise("skew", 0.03, spikes=0.08, spike_limit=2.5),
    "heavy": Noise("skew", 0.05, spikes=0.15, spike_limit=4.0),
    "ar1": Noise(scale=0.03, correlation=0.6),
    "bursts": Noise("skew", 0.03, bursts=0.02),
    "drift_linear": Noise(scale=0.02, drift="linear", drift_limit=0.3),
    "drift_exponential": Noise(scale=0.02, drift="exponential", drift_limit=0.3),
    "drift_thermal": Noise(scale=0.02, drift="thermal", drift_limit=0.3),
    "warm_up": Noise(scale=0.02, warm_up_limit=1.0),
    "lottery_20": Noise(scale=0.02, lottery=0.2),
    "lottery_40": Noise(scale=0.02, lottery=0.4),
    "lottery_70": Noise(scale=0.02, lottery=0.7),
}


def replayed(recorded: Sequence[ArrayLike], **extra: float) -> Noise:
    """Noise that replays recorded log residuals, whole processes at a time.

    Each simulated process takes one recorded process at random, starts at a random place of it
    and goes round, so that the correlation of consecutive trials survives.

    Args:
        recorded: residuals of each recorded process in their order, none of them empty.
        extra: further numeric settings of ``Noise``.

    Raises:
        ValueError: no process, an empty one, or values that are not finite.
    """
    series = tuple(finite_vector(values, "recorded residuals") for values in recorded)
    if not series or any(values.size == 0 for values in series):
        raise ValueError("a replay needs at least one process, each with at least one residual")
    return replace(Noise("replay", recorded=series), **extra)  # type: ignore[arg-type]


class _Process:
    """What one simulated process has done so far, and its luck."""

    __slots__ = ("excess", "level", "source", "start", "trials")

    def __init__(self, noise: Noise, warm_up: float, rng: np.random.Generator) -> None:
        self.trials = 0
        self.level = rng.normal(0.0, noise.process_scale) if noise.process_scale else 0.0
        self.excess = warm_up
        self.source: FloatArray | None = None
        self.start = 0
        if noise.recorded:
            self.source = noise.recorded[int(rng.integers(len(noise.recorded)))]
            self.start = int(rng.integers(self.source.size))


class NoiseStream:
    """One realization of a noise: the log residual of trial after trial.

    Args:
        noise: what to draw from.
        rng: source of all randomness.
    """

    def __init__(self, noise: Noise, rng: np.random.Generator) -> None:
        self.noise = noise
        self._rng = rng
        self._drift = rng.uniform(0.0, noise.drift_limit) if noise.drift_limit else 0.0
        self._warm_up = rng.uniform(0.0, noise.warm_up_limit) if noise.warm_up_limit else 0.0
        self._lone = self._lone_burst() if noise.lone_burst_within else (0, 0, 0.0)
        self._memory = np.zeros(1)
        self._drawn = 0
        self._buffer = np.empty(0)
        self._at = 0
        self._processes: dict[int, _Process] = {}

    def take(self, count: int, process: int) -> FloatArray:
        """Log residuals of the next trials, all of one process, shape (count,)."""
        while self._at + count > self._buffer.size:
            rest = self._buffer[self._at :]
            self._buffer = np.concatenate([rest, self._draw(max(CHUNK, count))])
            self._at = 0
        shared = self._buffer[self._at : self._at + count]
        self._at += count
        state = self._processes.get(process)
        if state is None:
            state = self._processes[process] = _Process(self.noise, self._warm_up, self._rng)
        values: FloatArray = shared + state.level
        if state.source is not None:
            place = (state.start + state.trials + np.arange(count)) % state.source.size
            values = values + state.source[place]
        if state.excess:
            since = state.trials + np.arange(count)
            values = values + np.log1p(state.excess * np.exp(-since / WARM_UP_TRIALS))
        state.trials += count
        return values

    def _lone_burst(self) -> tuple[int, int, float]:
        first = int(self._rng.integers(self.noise.lone_burst_within))
        length = int(self._rng.integers(*LONE_BURST_TRIALS))
        return first, first + length, math.log(self._rng.uniform(*BURST_SLOWDOWN))

    def _draw(self, count: int) -> FloatArray:
        """Part of the residuals that belongs to the order of measurement, shape (count,)."""
        noise, rng = self.noise, self._rng
        values = self._body(count)
        if noise.correlation:
            gain = math.sqrt(1 - noise.correlation**2)
            values, self._memory = lfilter([gain], [1, -noise.correlation], values, zi=self._memory)
        if noise.spikes:
            hit = rng.random(count) < noise.spikes
            values = values + hit * np.log(rng.uniform(1.2, noise.spike_limit, count))
        if noise.bursts:
            for begin in np.flatnonzero(rng.random(count) < noise.bursts).tolist():
                length = int(rng.integers(*BURST_TRIALS))
                values[begin : begin + length] += math.log(rng.uniform(*BURST_SLOWDOWN))
        order = (self._drawn + np.arange(count)).astype(np.int64)
        self._drawn += count
        first, end, excess = self._lone
        values = values + excess * ((order >= first) & (order < end))
        return values + np.log1p(self._drift * self._course(order))

    def _body(self, count: int) -> FloatArray:
        noise, rng = self.noise, self._rng
        if noise.body == "gauss":
            return rng.normal(0.0, noise.scale, count)
        if noise.body == "t3":
            return noise.scale * rng.standard_t(3, count)
        if noise.body == "replay":
            return np.zeros(count)
        # A log-normal body, centered on its median and scaled to the standard deviation.
        spread = math.sqrt(math.expm1(SKEWNESS**2)) * math.exp(SKEWNESS**2 / 2)
        drawn: FloatArray = np.expm1(rng.normal(0.0, SKEWNESS, count)) * (noise.scale / spread)
        return drawn

    def _course(self, order: IntArray) -> FloatArray:
        """Course of the drift over the trials, from 0 to 1."""
        kind, span = self.noise.drift, self.noise.drift_trials
        if kind == "linear":
            return np.minimum(order / span, 1.0)
        if kind == "exponential":
            return np.asarray(-np.expm1(-3.0 * order / span))
        if kind == "thermal":
            return np.asarray(order % THERMAL_TRIALS) / THERMAL_TRIALS
        return np.zeros(order.size)
