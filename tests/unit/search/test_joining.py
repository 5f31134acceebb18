"""A value that missed the test at a mild slowdown does not cut a regime in two."""

from __future__ import annotations

import numpy as np

from regimescope.search.joining import join
from regimescope.stats.confirm import Candidate, Core, FreshTrials
from regimescope.stats.curve import Curve

CURVE = Curve(np.array([0.0, 10.0]), 1000.0, np.zeros((2, 2)))
CANDIDATE = Candidate(
    steps=(500.0, 550.0, 600.0), flanks=(450.0, 650.0), log_expected=(np.log(4.5), np.log(6.5))
)


def fresh(slow: set[float], slowdown: float = 1.6) -> FreshTrials:
    steps = np.repeat([450.0, 500.0, 550.0, 600.0, 650.0], 6)
    factor = np.where(np.isin(steps, list(slow)), slowdown, 1.0)
    return FreshTrials(steps, np.log(steps / 100 * factor), np.tile(np.arange(6), 5))


def core(*steps: float, onset: tuple[float, float], recovery: tuple[float, float]) -> Core:
    return Core(candidate=0, steps=steps, onset=onset, recovery=recovery)


SPLIT = [
    core(500.0, onset=(450.0, 500.0), recovery=(500.0, 550.0)),
    core(600.0, onset=(550.0, 600.0), recovery=(600.0, 650.0)),
]


def test_a_slow_value_between_two_cores_joins_them() -> None:
    (found,) = join(SPLIT, [CANDIDATE], fresh({500.0, 550.0, 600.0}), CURVE)
    assert found.steps == (500.0, 600.0)
    assert found.onset == (450.0, 500.0)
    assert found.recovery == (600.0, 650.0)


def test_a_normal_value_between_two_cores_keeps_them_apart() -> None:
    assert join(SPLIT, [CANDIDATE], fresh({500.0, 600.0}), CURVE) == tuple(SPLIT)


def test_a_bracket_reaches_over_a_slow_value_that_did_not_pass() -> None:
    middle = core(550.0, onset=(500.0, 550.0), recovery=(550.0, 600.0))
    (found,) = join([middle], [CANDIDATE], fresh({500.0, 550.0}), CURVE)
    assert found.steps == (550.0,)
    assert found.onset == (450.0, 500.0)
    assert found.recovery == (550.0, 600.0)


def test_controls_are_never_taken_in() -> None:
    everything = {450.0, 500.0, 550.0, 600.0, 650.0}
    whole = core(500.0, 550.0, 600.0, onset=(450.0, 500.0), recovery=(600.0, 650.0))
    assert join([whole], [CANDIDATE], fresh(everything), CURVE) == (whole,)


def test_without_cores_there_is_nothing_to_join() -> None:
    assert join([], [CANDIDATE], fresh(set()), CURVE) == ()
