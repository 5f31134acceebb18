"""One unit for a whole column or chart axis. Layer: report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class TimeUnit(NamedTuple):
    """A unit of time for showing: multiply seconds by ``factor`` to get ``name``."""

    name: str
    factor: float

    def show(self, value_s: float | None) -> str:
        """Return seconds as a number in this unit with three significant digits, or a dash."""
        return "-" if value_s is None else significant(value_s * self.factor)


_UNITS = (TimeUnit("s", 1.0), TimeUnit("ms", 1e3), TimeUnit("us", 1e6))


def time_unit(values_s: Iterable[float]) -> TimeUnit:
    """Return the largest unit in which the greatest of the values is at least one."""
    greatest = max(values_s, default=1.0)
    return next((unit for unit in _UNITS if greatest * unit.factor >= 1), _UNITS[-1])


def significant(value: float) -> str:
    """Return a number with three significant digits, and all digits before the point."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".") if value else "0"
