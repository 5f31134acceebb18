"""A model on a virtual clock: exact, instant, seeded, with a regime injected on request.

Layer: ``engines``. It decodes nothing; each step only lets virtual time pass by a known law, so
that the whole pipeline can be tested against the truth. The law of one step at context length
``n``: ``(base_s + slope_s * n) * process * trial * step_noise * band`` (mechanisms, section 6.1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from regimescope.engines.base import Capabilities, Clock, EngineRequest, Step
from regimescope.errors import EngineError, SpecError
from regimescope.records import Cell, ModelFacts
from regimescope.units import NS_PER_S, listing

NoiseName = Literal["none", "gauss", "skew", "heavy"]


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


class Band(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the simulated engine.

    Attributes:
        base_s: Seconds per step at context length zero.
        slope_s: Seconds per step and token of context.
        prefill_s: Seconds per prompt token.
        noise: Name of the noise law of whole trials.
        step_spread: Standard deviation of log step time within a trial.
        process_spread: Standard deviation of log level between processes.
        bands: Slow intervals.
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
    fail_budgets: tuple[int, ...] = ()
    positions: int = 131_072


# `paper`: GPT-2 Medium on MPS as published in arXiv 2605.08913: about 12.5 ms a step outside
# budgets 512..639, about 11 times that inside (mechanisms, section 0.1).
MODELS: dict[str, Options] = {
    "smooth": Options(),
    "paper": Options(
        base_s=0.0125,
        slope_s=1e-6,
        bands=(Band(onset=512, recovery=640, slowdown=11.0),),
        positions=1024,
    ),
}


class VirtualClock:
    """A clock that moves only when told to."""

    def __init__(self) -> None:
        """Start at zero."""
        self._now_ns = 0

    def now_ns(self) -> int:
        """Return the virtual time in nanoseconds."""
        return self._now_ns

    def sleep(self, duration_s: float) -> None:
        """Move the clock forward at once."""
        self._now_ns += round(duration_s * NS_PER_S)


class SimulatedSession:
    """One simulated process: its level, its random stream and its clock."""

    def __init__(self, options: Options, facts: ModelFacts, request: EngineRequest) -> None:
        """Draw what holds for the whole process from the seed and the process ordinal."""
        self._options = options
        self._facts = facts
        self._random = np.random.default_rng((request.seed, request.process_run))
        self._clock = VirtualClock()
        self._level = math.exp(options.process_spread * self._random.standard_normal())
        self._bands = tuple(
            band for band in options.bands if self._random.random() < band.prevalence
        )

    @property
    def clock(self) -> Clock:
        """The virtual clock."""
        return self._clock

    def facts(self) -> ModelFacts:
        """Return the facts of the simulated model."""
        return self._facts

    def generate(self, prompt_ids: Sequence[int], cell: Cell) -> Iterator[Step]:
        """Let the time of each step pass, then yield it.

        Raises:
            EngineError: The budget is among ``fail_budgets``.
        """
        options = self._options
        budget = cell.budget or 0
        if budget in options.fail_budgets:
            raise EngineError(f"simulated failure at budget {budget}")
        level = self._level * self._trial_factor()
        self._clock.sleep(options.prefill_s * len(prompt_ids) * level)
        yield Step()
        for seconds in self._step_seconds(len(prompt_ids), cell, level):
            self._clock.sleep(seconds)
            yield Step()

    def _trial_factor(self) -> float:
        """Return the noise factor that one whole trial shares."""
        noise = NOISES[self._options.noise]
        factor = math.exp(noise.spread * self._random.standard_normal())
        if self._random.random() < noise.accident_share:
            factor *= math.exp(self._random.uniform(math.log(1.2), math.log(noise.accident_most)))
        return factor

    def _step_seconds(self, prompt_tokens: int, cell: Cell, level: float) -> Iterator[float]:
        """Return the seconds of every decode step after the first token."""
        options = self._options
        budget = cell.budget or 0
        # Without a cache each step computes every position again, so its cost grows in proportion.
        context = prompt_tokens + np.arange(1, max(budget, 1), dtype=float)
        per_position = options.slope_s if cell.kv_cache != "off" else options.prefill_s
        seconds = (options.base_s + per_position * context) * level
        for band in self._bands:
            at = context if band.axis == "context" else np.full_like(context, budget)
            end = math.inf if band.recovery is None else band.recovery
            seconds[(at >= band.onset) & (at < end)] *= band.slowdown
        if options.noise != "none" and options.step_spread > 0:
            seconds *= np.exp(options.step_spread * self._random.standard_normal(seconds.size))
        return iter(seconds.tolist())

    def counters(self) -> dict[str, int]:
        """Return no reading: a virtual machine has no memory."""
        return {}

    def close(self) -> None:
        """Do nothing; there is nothing to release."""


class SimulatedEngine:
    """The engine of virtual machines."""

    name = "simulated"
    Options = Options

    def capabilities(self) -> Capabilities:
        """Return the capabilities of a virtual machine."""
        return Capabilities(
            devices=("virtual",),
            dtypes=("float32", "float16", "bfloat16"),
            kv_cache=("on", "off"),
            batch=True,
            virtual_clock=True,
        )

    def inspect(self, request: EngineRequest) -> ModelFacts:
        """Return the facts of a virtual machine.

        Raises:
            SpecError: The model or an option is unknown.
        """
        return ModelFacts(
            device="virtual",
            dtype=request.dtype,
            weights="simulated",
            vocabulary=50_257,
            positions=_options(request).positions,
            description="virtual clock",
        )

    def open(self, request: EngineRequest) -> SimulatedSession:
        """Return a session for one simulated process.

        Raises:
            SpecError: The model or an option is unknown.
        """
        return SimulatedSession(_options(request), self.inspect(request), request)


def _options(request: EngineRequest) -> Options:
    """Return the options of a named model with the requested ones laid over them."""
    if request.model not in MODELS:
        raise SpecError(
            f"The simulated engine has no model {request.model!r}.",
            remedy=f"Known models: {listing(MODELS)}.",
        )
    table: dict[str, Any] = msgspec.to_builtins(MODELS[request.model])
    try:
        return msgspec.convert(table | request.options, Options, strict=False)
    except msgspec.ValidationError as error:
        raise SpecError(
            f"Options of the simulated engine: {error}.",
            remedy=f"Known options: {listing(Options.__struct_fields__, most=20)}.",
        ) from error
