"""What the numbers of a table measure, as seconds. Layer: ``importers``.

Source: formats, section 2.18. A unit of the user wins; else the name of the column ends in one,
else the numbers are seconds.
"""

from __future__ import annotations

from typing import NamedTuple

from regimescope.errors import SpecError
from regimescope.units import listing

_PER_SECOND = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
PER_TOKEN = "_per_token"
RATE = "tokens_per_s"
UNITS = (*_PER_SECOND, *(f"{unit}{PER_TOKEN}" for unit in ("s", "ms", "us")), RATE)


class Unit(NamedTuple):
    """How numbers become seconds.

    Attributes:
        factor: Seconds per unit; of a rate, 1.
        of_step: Whether a number is the time of one token instead of a whole generation.
        is_rate: Whether a number is tokens per second.
    """

    factor: float
    of_step: bool = False
    is_rate: bool = False

    def seconds(self, value: float) -> float | None:
        """Return a number in seconds; ``None`` for a rate of zero."""
        if self.is_rate:
            return 1 / value if value else None
        return value * self.factor


def unit_of(name: str | None, column: str) -> Unit:
    """Return the unit that is named, or that the name of a column ends in.

    Raises:
        SpecError: There is no such unit.
    """
    if name is None:
        ends = column.rsplit("_", 1)
        return Unit(_PER_SECOND.get(ends[1], 1.0) if len(ends) == 2 else 1.0)
    if name == RATE:
        return Unit(1.0, of_step=True, is_rate=True)
    plain = name.removesuffix(PER_TOKEN)
    if name not in UNITS:
        raise SpecError(
            f"--unit {name!r} is not known.", remedy=f"Choose from: {listing(UNITS, most=20)}."
        )
    return Unit(_PER_SECOND[plain], of_step=plain != name)
