"""Processes that are slow only sometimes: stretches, their ends, and those slow always."""

from __future__ import annotations

import numpy as np

from regimescope.search.evidence import Evidence
from regimescope.search.mixed import mixed_spikes, mixed_stretches, mixed_tests
from regimescope.search.screening import Place

PLACE = Place("budget", 2)
VALUES = np.arange(64, 1025, 64)


def rows_of(values: np.ndarray, processes: int, slow: np.ndarray, stage: str) -> Evidence:
    """Return a trial of each value in each process, slow where marked, shape (processes, n)."""
    random = np.random.default_rng(1)
    value = np.tile(values, processes)
    noise = 0.02 * random.standard_normal(value.size)
    n = value.size
    return Evidence(
        value,
        np.log(0.0125 * value) + noise + np.log(5.0) * slow.ravel(),
        np.repeat(np.arange(processes), values.size),
        np.ones(n, dtype=bool),
        np.zeros(n, dtype=bool),
        (stage,) * n,  # type: ignore[arg-type]
    )


def screen(low: int, high: int) -> Evidence:
    """Return a screen of four processes, two of which are slow at values of [low, high)."""
    slow = (low <= VALUES) & (high > VALUES) & (np.arange(4) % 2 == 0)[:, None]
    return rows_of(VALUES, 4, slow, "screen")


def test_a_stretch_has_a_normal_value_on_both_sides() -> None:
    (found,) = mixed_stretches(screen(512, 640), PLACE)
    assert (found.onset, found.recovery) == ((448, 512), (576, 640))
    assert found.controls == (448, 640)
    assert found.testable


def test_a_stretch_at_an_end_is_kept_and_cannot_be_tested() -> None:
    (above,) = mixed_stretches(screen(900, 2000), PLACE)
    (below,) = mixed_stretches(screen(0, 130), PLACE)
    assert (above.onset, above.recovery) == ((896, 960), None)
    assert (below.onset, below.recovery) == (None, (128, 192))
    assert not above.testable
    assert not below.testable
    assert mixed_tests(
        (above, below), rows_of(VALUES, 12, np.ones((12, 16)), "confirm"), PLACE
    ) == (
        None,
        None,
    )


def fresh(share: float) -> Evidence:
    """Return twelve processes at a stretch and its controls, a share of them slow."""
    values = np.array([448, 512, 640])
    slow = np.zeros((12, 3))
    slow[: round(12 * share), 1] = 1
    return rows_of(values, 12, slow, "confirm")


def test_slow_in_every_process_is_no_mixture() -> None:
    stretches = mixed_stretches(screen(512, 640), PLACE)
    assert mixed_spikes(stretches, fresh(1.0), PLACE) == (True,)
    assert mixed_spikes(stretches, fresh(0.7), PLACE) == (False,)
    (test,) = mixed_tests(stretches, fresh(0.7), PLACE)
    assert test is not None
    assert test.accepted


def test_normal_in_every_process_is_neither() -> None:
    stretches = mixed_stretches(screen(512, 640), PLACE)
    assert mixed_spikes(stretches, fresh(0.0), PLACE) == (False,)
    (test,) = mixed_tests(stretches, fresh(0.0), PLACE)
    assert test is not None
    assert not test.accepted
