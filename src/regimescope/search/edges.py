"""Each edge of a confirmed core to one token. Layer: ``search``.

Source: method, section 6; P4 to P6 of section 11. A query is one trial at one value, labeled slow
or normal by half the log slowdown of the core; the posterior over edge and transition width says
where to ask next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from regimescope import axes
from regimescope.search.confirming import Core
from regimescope.search.evidence import BoolArray, Evidence, IntArray
from regimescope.search.screening import Place
from regimescope.stats.boundary import Boundary, adjacency_state, is_slow, locate
from regimescope.stats.curve import Curve, predict_log

Side = Literal["onset", "recovery"]


class Edge(NamedTuple):
    """One edge of a core and what is known of it.

    Attributes:
        side: Which edge.
        core: What it is an edge of.
        bracket: The values it was known to lie between: in (low, high].
        boundary: Where it may be.
        odd: Values on the wrong side of it that were asked once and should be asked again.
        contradicted: Whether a value on the wrong side proved to be so.
    """

    side: Side
    core: Core
    bracket: tuple[int, int]
    boundary: Boundary
    odd: tuple[int, ...]
    contradicted: bool

    @property
    def sides(self) -> tuple[int, int]:
        """The values before and after the edge as estimated."""
        return self.boundary.estimate - 1, self.boundary.estimate

    @property
    def interior(self) -> tuple[tuple[int, int], ...]:
        """Untested values between bracket and edge, as ranges without their end."""
        low, high = self.bracket
        before, after = self.sides
        return (low + 1, before), (after + 1, high)

    @property
    def message(self) -> str:
        """What is known and asked next, for people."""
        low, high = self.boundary.interval
        return f"{self.side} in ({low}, {high}]: asking {self.boundary.next_query}"


def edges_of(
    cores: Sequence[Core], curve: Curve, evidence: Evidence, place: Place
) -> tuple[Edge, ...]:
    """Return the edges of cores with what the trials in their brackets say.

    Args:
        cores: The cores with their brackets.
        curve: The expected latency.
        evidence: Trials of the boundary search, the final and the adjacency check.
        place: The axis.
    """
    sides: tuple[Side, ...] = ("onset", "recovery")
    return tuple(
        _edge(side, bracket, core, evidence.where(_within(evidence, bracket)), curve, place)
        for core in cores
        for side, bracket in zip(sides, (core.onset, core.recovery), strict=True)
        if bracket is not None
    )


def _within(evidence: Evidence, bracket: tuple[int, int]) -> BoolArray:
    """Return the rows between both ends of a bracket."""
    low, high = bracket
    inside: BoolArray = (evidence.value > low) & (evidence.value < high)
    return inside


def _edge(
    side: Side,
    bracket: tuple[int, int],
    core: Core,
    rows: Evidence,
    curve: Curve,
    place: Place,
) -> Edge:
    """Return one edge."""
    expected = predict_log(curve, axes.curve_steps(rows.value, place.axis))
    # What was ended early says by its projection on which side it is, like any other.
    slow = is_slow(rows.log_s - expected, core.delta) | rows.timed_out
    boundary = locate(bracket, core.errors, rows.value, slow, edge=side)
    states = _adjacency(rows, slow, boundary, core)
    return Edge(
        side=side,
        core=core,
        bracket=bracket,
        boundary=boundary,
        odd=tuple(value for value, state in states.items() if state == "repeat"),
        contradicted="contradicts" in states.values(),
    )


def _adjacency(rows: Evidence, slow: BoolArray, boundary: Boundary, core: Core) -> dict[int, str]:
    """Return for each value looked at by chance whether it lies on the side it should."""
    chance = np.array([stage == "adjacency" for stage in rows.stage], dtype=bool)
    values: IntArray = np.unique(rows.value[chance])
    return {
        int(value): adjacency_state(
            slow[chance & (rows.value == value)],
            expected_slow=bool((value >= boundary.estimate) == (boundary.bracket.edge == "onset")),
            errors=core.errors,
        )
        for value in values
    }
