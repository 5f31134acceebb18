"""A model on a virtual clock: exact, instant, seeded, with a regime injected on request.

Layer: ``engines``. It decodes nothing; each step only lets virtual time pass by a known law, so
that the whole pipeline can be tested against the truth. The laws are in ``simulated_laws``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from regimescope.engines.base import Capabilities, Clock, EngineRequest, Step
from regimescope.engines.simulated_laws import Band, Machine, Options
from regimescope.errors import CapabilityError, EngineError, SpecError
from regimescope.records import Cell, ModelFacts
from regimescope.units import NS_PER_S, listing

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
    """One simulated process with its clock."""

    def __init__(self, options: Options, facts: ModelFacts, request: EngineRequest) -> None:
        """Seed the process by the scan's seed and its own ordinal."""
        self._options = options
        self._facts = facts
        self._machine = Machine(options, np.random.default_rng((request.seed, request.process_run)))
        self._clock = VirtualClock()
        self._last_end_ns = 0

    @property
    def clock(self) -> Clock:
        """The virtual clock."""
        return self._clock

    def facts(self) -> ModelFacts:
        """Return the facts of the simulated model."""
        return self._facts

    def generate(
        self, prompt_ids: Sequence[int], cell: Cell, *, stamped: bool = True
    ) -> Iterator[Step]:
        """Let the time of each step pass, then yield it.

        Raises:
            CapabilityError: The cell asks for what a virtual machine does not have.
            EngineError: The budget is among ``fail_budgets``, or the request makes no sense.
        """
        options, budget = self._options, cell.budget or 0
        _check(self._facts, prompt_ids, cell)
        if budget in options.fail_budgets:
            raise EngineError(f"simulated failure at budget {budget}")
        start_ns = self._clock.now_ns()
        idle_s = (start_ns - self._last_end_ns) / NS_PER_S
        factor = self._machine.trial_factor(budget, start_ns / NS_PER_S)
        self._clock.sleep(options.prefill_s * len(prompt_ids) * factor)
        yield Step()
        step_s = self._machine.step_seconds(len(prompt_ids), cell, idle_s) * factor
        if stamped:
            for seconds in (step_s + options.stamp_s).tolist():
                self._clock.sleep(seconds)
                yield Step()
        elif step_s.size:
            self._clock.sleep(float(step_s.sum()))
            yield Step(tokens=step_s.size)
        self._last_end_ns = self._clock.now_ns()

    def counters(self) -> dict[str, int]:
        """Return no reading: a virtual machine has no memory."""
        return {}

    def close(self) -> None:
        """Do nothing; there is nothing to release."""


def _check(facts: ModelFacts, prompt_ids: Sequence[int], cell: Cell) -> None:
    """Refuse what a real engine of the same capabilities would refuse.

    Raises:
        CapabilityError: The cell asks for a batch, a depth, a capacity, or more positions than
            there are.
        EngineError: There is no prompt, no budget, or a token id outside the vocabulary.
    """
    budget = cell.budget or 0
    if budget < 1 or len(prompt_ids) < 1:
        raise EngineError("a generation needs a prompt and a budget of 1 token or more")
    if not 0 <= min(prompt_ids) <= max(prompt_ids) < facts.vocabulary:
        raise EngineError(f"token ids lie outside 0 to {facts.vocabulary - 1}")
    if (cell.batch or 1) > 1 or cell.depth or cell.capacity:
        raise CapabilityError(
            "The simulated engine knows no batch, no depth and no capacity.",
            remedy="Leave them unset.",
        )
    longest = len(prompt_ids) + budget - 1
    if facts.positions is not None and longest > facts.positions:
        raise CapabilityError(
            f"Prompt {len(prompt_ids)} and budget {budget} need {longest:,} positions, "
            f"the model has {facts.positions:,}.",
            remedy="Use a smaller budget or a shorter prompt.",
        )


class SimulatedEngine:
    """The engine of virtual machines."""

    name = "simulated"
    Options = Options

    def capabilities(self) -> Capabilities:
        """Return the capabilities of a virtual machine."""
        return Capabilities(
            devices=("virtual",),
            # Its laws know neither element types nor batches, so it claims none.
            dtypes=("float32",),
            kv_cache=("on", "off"),
            unstamped=True,
            virtual_clock=True,
        )

    def inspect(self, request: EngineRequest) -> ModelFacts:
        """Return the facts of a virtual machine.

        Raises:
            SpecError: The model, device, dtype or an option is unknown.
        """
        offered = self.capabilities()
        for name, asked, known in (
            ("device", request.device, ("auto", *offered.devices)),
            ("dtype", request.dtype, offered.dtypes),
        ):
            if asked not in known:
                raise SpecError(
                    f"The simulated engine has no {name} {asked!r}.",
                    remedy=f"Known: {listing(known)}.",
                )
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
