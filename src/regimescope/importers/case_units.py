"""Published numbers of a case file as seconds. Layer: ``importers``.

Source: formats, section 0: rates become times at the border, with the n that the tool used.
"""

from __future__ import annotations

from typing import NamedTuple

from regimescope.units import listing

_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_STEP_TIMES = {f"{unit}_per_token": factor for unit, factor in _TIMES.items()}
_TOKEN_RATES = {"tokens_per_s"}
# The work of one x is not in the file, so that a rate of work becomes the time of one unit of it.
_WORK_RATES = {"TFLOP_per_s", "GFLOP_per_s", "GB_per_s"}
# On these axes the rate counts x tokens at once: a whole prompt, or one step of all sequences.
_COUNTED_AXES = {"prompt", "batch"}


class Timing(NamedTuple):
    """A published number as a time.

    Attributes:
        seconds: The time.
        steps: Decode steps in it; ``None`` where the file does not tell.
        total: Whether it is the time of a whole generation of x tokens.
    """

    seconds: float
    steps: int | None
    total: bool


class Quantity(NamedTuple):
    """What the numbers of a file are.

    Attributes:
        axis: The swept axis.
        phase: What was timed.
        unit: Unit of the numbers.
        tokens_per_measure: Decode steps or prompt tokens in one measurement, where it is fixed.
    """

    axis: str
    phase: str
    unit: str
    tokens_per_measure: int | None


def better_direction(unit: str) -> str | None:
    """Return ``lower`` for a unit of time, ``higher`` for a rate, ``None`` for an unknown unit."""
    if unit in _TIMES or unit in _STEP_TIMES:
        return "lower"
    return "higher" if unit in _TOKEN_RATES or unit in _WORK_RATES else None


def known_units() -> str:
    """Return the units that can be read, for a message."""
    return listing((*_TIMES, *_STEP_TIMES, *_TOKEN_RATES, *_WORK_RATES), most=20)


def to_timing(quantity: Quantity, x: int, value: float) -> Timing:
    """Return one published number as a time.

    Args:
        quantity: What the number is; its unit is a known one.
        x: Value of the swept axis.
        value: The number, above zero.
    """
    unit = quantity.unit
    if unit in _TIMES:
        seconds = value * _TIMES[unit]
        if quantity.tokens_per_measure is not None:
            return Timing(seconds, quantity.tokens_per_measure, False)
        counted = quantity.axis == "budget" and quantity.phase == "decode"
        return Timing(seconds, x if counted else None, quantity.axis == "budget")
    if unit in _STEP_TIMES:
        return Timing(value * _STEP_TIMES[unit], 1, False)
    if unit in _TOKEN_RATES and quantity.axis in _COUNTED_AXES and quantity.phase != "kernel":
        return Timing(x / value, 1, False)
    return Timing(1.0 / value, 1 if unit in _TOKEN_RATES else None, False)
