"""P4 to P6 of the adaptive plan: each edge to one token, then checked. Layer: ``search``.

Source: method, sections 6, 9 and 11.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from regimescope.search.decision import Measure, Visit
from regimescope.search.edges import Edge
from regimescope.search.known import Known
from regimescope.search.stepping import MOST_FINALS, STEP_PROCESSES
from regimescope.units import listing

# A process measures so many boundary queries before a fresh one takes over (method, section 6).
QUERIES_PER_PROCESS = 8
FINAL_PROCESSES, CERTIFIED_PROCESSES = 2, 6
# Trials of a value, its first visit included, that decide whether it contradicts what is known.
ADJACENCY_TRIALS = 3

Probes = Callable[[Sequence[int]], tuple[Visit, ...]]


def next_query(known: Known, edges: Sequence[Edge], probes: Probes) -> Measure | None:
    """P4: return one query at the edge that has been asked least, while any is open.

    Args:
        known: Trials and plan.
        edges: What is known of the edges.
        probes: Makes visits that may be ended early.
    """
    asking = [edge for edge in edges if edge.boundary.next_query is not None]
    usable = [e for e in asking if not known.is_lost("boundary", e.boundary.next_query or 0)]
    # An edge whose next value fails for ever stays as wide as it is; the search says so at its end.
    if not asking:
        return None
    edge = min(usable or asking, key=lambda edge: edge.boundary.trials)
    visits = probes([edge.boundary.next_query or 0])
    queries = sum(t.stage == "boundary" for t in known.plan.processes[-1].trials)
    goes_on = 0 < queries < QUERIES_PER_PROCESS
    return Measure("boundary", edge.message, (visits,), goes_on=goes_on)


def final_check(known: Known, edges: Sequence[Edge], *, certify: bool) -> Measure | None:
    """P5: return full-length visits to both sides of each edge of a spike, in fresh processes.

    Args:
        known: Trials and plan.
        edges: What is known of the edges.
        certify: Whether the certificate is to be repeated on them.
    """
    wanted = CERTIFIED_PROCESSES if certify else FINAL_PROCESSES
    return _both_sides(known, [e for e in edges if e.core.recovery is not None], wanted)


def step_check(known: Known, edges: Sequence[Edge]) -> Measure | None:
    """Return the final check of a slowdown that stays, which nothing has confirmed before."""
    return _both_sides(known, [e for e in edges if e.core.recovery is None], STEP_PROCESSES)


def _both_sides(known: Known, edges: Sequence[Edge], wanted: int) -> Measure | None:
    """Return full-length visits on both sides of edges, unless they are made."""
    values = sorted({v for edge in edges for v in edge.sides})
    checked = Counter(known.evidence.of("final").value.tolist())
    brackets = [edge.bracket for edge in edges]
    # Wherever the edges lay by then: a check that moved one is a check of it.
    made = sum(
        any(low <= value <= high for value in values for low, high in brackets)
        for values in known.checks
    )
    if all(checked[v] >= wanted for v in values) or made >= MOST_FINALS * wanted:
        return None
    return Measure(
        "final",
        f"final check on both sides of each edge: {listing(values)}",
        wanted * (tuple(Visit(v) for v in values),),
    )


def adjacency(known: Known, edges: Sequence[Edge], *, seed: int) -> Measure | None:
    """P6: return a look at what lies between the tested values: is there a second change?

    Args:
        known: Trials and plan.
        edges: What is known of the edges.
        seed: Of the values that are looked at.
    """
    if not edges:
        return None
    if not known.planned["adjacency"]:
        random = np.random.default_rng((seed, 6))
        inner = [pair for edge in edges for pair in edge.interior]
        values = sorted({int(random.integers(a, b)) for a, b in inner if b > a})
        message = f"a random look inside each bracket: {listing(values)}"
        visits = tuple(Visit(v) for v in values)
        return Measure("adjacency", message, (visits,)) if values else None
    asked = {value: known.asked["adjacency", value] for edge in edges for value in edge.odd}
    odd = sorted(value for value, times in asked.items() if times < ADJACENCY_TRIALS)
    if not odd:
        return None
    return Measure(
        "adjacency",
        f"{listing(odd)} contradicts its edge: again in other processes",
        (ADJACENCY_TRIALS - 1) * (tuple(Visit(v) for v in odd),),
    )
