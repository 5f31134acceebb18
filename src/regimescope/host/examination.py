"""What ``doctor`` found, as it is printed and as ``--json`` has it. Layer: ``host``."""

from __future__ import annotations

from typing import Literal

import msgspec

Waiting = Literal["waits", "does not wait", "cannot tell"]


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every part: absent values are left out."""


class EngineState(Part, frozen=True, kw_only=True):
    """An engine and the line that installs it."""

    name: str
    state: str
    install: str


class Timer(Part, frozen=True, kw_only=True):
    """The clock: smallest step ever seen, and the cost of one reading."""

    resolution_s: float
    cost_s: float


class Synchronization(Part, frozen=True, kw_only=True):
    """Whether a step is yielded only once its token exists.

    Attributes:
        verdict: Whether it waits.
        reason: What showed it.
        steps: Steps timed.
        stamped_s: Seconds of these steps, each yielded by itself.
        queued_s: Seconds of as many steps that are waited for once, at the end.
        leftover_share: Work found unfinished after a step, as a share of that work and the step.
    """

    verdict: Waiting
    reason: str
    steps: int
    stamped_s: float
    queued_s: float | None = None
    leftover_share: float | None = None


class NoiseFloor(Part, frozen=True, kw_only=True):
    """How much short trials of one process differ.

    Attributes:
        trials: Trials measured.
        budget: Tokens of each.
        step_s: Median seconds of a step.
        spread: Robust standard deviation of log latency.
        accident_share: Share of trials above the median by more than 3 spreads and 10 %.
        visible_3: Smallest slowdown seen with 3 processes: exp(3 spread / sqrt(3)).
        visible_6: The same with 6.
    """

    trials: int
    budget: int
    step_s: float
    spread: float
    accident_share: float
    visible_3: float
    visible_6: float


class Busy(Part, frozen=True, kw_only=True):
    """A program that uses the processor; its share is of one core."""

    name: str
    pid: int
    cores: float


class Call(Part, frozen=True, kw_only=True):
    """A call of the device's library that was tried."""

    name: str
    result: str
    works: bool


class Counters(Part, frozen=True, kw_only=True):
    """The counters: those read with the seconds of a reading by source, the absent with reasons."""

    read: dict[str, tuple[str, ...]]
    costs_s: dict[str, float]
    absent: dict[str, str]
    engine: tuple[str, ...]
    sample_cost_s: float
    sampled: bool


class Examination(Part, frozen=True, kw_only=True):
    """Everything that ``doctor`` found."""

    schema_version: int
    engine: str
    device: str
    description: str
    model: str
    versions: dict[str, str]
    engines: tuple[EngineState, ...]
    devices: tuple[str, ...]
    timer: Timer
    synchronization: Synchronization
    noise: NoiseFloor
    counters: Counters
    busy: tuple[Busy, ...]
    calls: tuple[Call, ...] = ()
    to_fix: tuple[str, ...] = ()
