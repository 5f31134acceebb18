"""Rates of the boundary search over many simulated searches with fixed seeds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from regimescope.stats.boundary import (
    WIDTH_PRIOR,
    WIDTHS,
    Boundary,
    LabelErrors,
    label_errors,
    locate,
)


class Machine:
    """Labels trials around one edge with given error rates."""

    def __init__(self, rng: np.random.Generator, errors: LabelErrors, edge: str = "onset") -> None:
        self.rng, self.errors, self.edge = rng, errors, edge

    def slow(self, x: int, b: int, width: int) -> bool:
        rise = float(x >= b) if width == 0 else float(expit(4 * (x - b + 0.5) / width))
        slow = (self.rng.random() < rise) == (self.edge == "onset")
        chance = 1 - self.errors.false_normal if slow else self.errors.false_slow
        return bool(self.rng.random() < chance)

    def search(
        self, bracket: tuple[int, int], b: int, *, width: int = 0, known: LabelErrors | None = None
    ) -> Boundary:
        queries: list[int] = []
        labels: list[bool] = []
        while True:
            found = locate(bracket, known or self.errors, queries, labels, edge=self.edge)
            if found.next_query is None:
                return found
            queries.append(found.next_query)
            labels.append(self.slow(found.next_query, b, width))


@pytest.mark.parametrize("edge", ["onset", "recovery"])
@pytest.mark.parametrize(
    ("high", "false_normal", "most_trials"),
    [(32, 0.05, 13), (128, 0.05, 16), (32, 0.3, 24), (128, 0.3, 30)],
)
def test_sharp_edges_are_found_exactly(
    high: int, false_normal: float, most_trials: int, edge: str
) -> None:
    rng = np.random.default_rng(21)
    machine = Machine(rng, LabelErrors(0.03, false_normal), edge)
    exact, trials, searches = 0, 0, 150
    for _ in range(searches):
        b = int(rng.integers(1, high + 1))
        found = machine.search((0, high), b)
        exact += found.estimate == b
        trials += found.trials
    # .99 and twice the binomial standard deviation
    assert exact >= 0.99 * searches - 2 * np.sqrt(searches * 0.99 * 0.01)
    assert trials / searches <= most_trials


def test_intervals_cover_edges_drawn_from_the_prior() -> None:
    rng = np.random.default_rng(22)
    machine = Machine(rng, LabelErrors(0.05, 0.1))
    covered, searches = 0, 250
    for _ in range(searches):
        b, width = int(rng.integers(1, 129)), int(rng.choice(WIDTHS, p=WIDTH_PRIOR))
        found = machine.search((0, 128), b, width=width)
        covered += found.interval[0] < b <= found.interval[1]
    assert covered >= 0.93 * searches


# A transition half as wide as the bracket looks like several changes: seen 85 of 100 covered.
@pytest.mark.parametrize(("width", "least"), [(16, 0.88), (64, 0.75)])
def test_wide_transitions_are_called_zones_and_covered(width: int, least: float) -> None:
    rng = np.random.default_rng(23)
    machine = Machine(rng, LabelErrors(0.03, 0.05))
    zones, covered, searches = 0, 0, 100
    for _ in range(searches):
        b = int(rng.integers(40, 90))
        found = machine.search((0, 128), b, width=width)
        zones += bool(found.codes)
        covered += found.interval[0] < b <= found.interval[1]
    assert zones >= 0.7 * searches
    assert covered >= least * searches


def test_error_rates_estimated_from_a_confirmation_serve_as_well() -> None:
    rng = np.random.default_rng(24)
    machine = Machine(rng, LabelErrors(0.02, 0.3))
    exact, searches = 0, 150
    for _ in range(searches):
        core = np.where(rng.random(36) < 0.3, 0.0, 1.0)
        known = label_errors(np.zeros(24), core, 1.0)
        b = int(rng.integers(1, 33))
        exact += machine.search((0, 32), b, known=known).estimate == b
    assert exact >= 0.95 * searches
