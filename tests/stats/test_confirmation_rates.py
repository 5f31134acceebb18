"""Rates of the confirmation over many simulated sweeps with known truth and fixed seeds.

Bounds leave three to four binomial standard deviations, so that they hold for any seed but fail
when a rate really moves.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from regimescope.stats.confirm import Candidate, ConfirmationRule, FreshTrials, confirm
from regimescope.stats.mixture import mixture_test, mixture_trials

STEPS = np.array([448.0, 512.0, 576.0, 624.0, 656.0])  # two flanks, three candidates between
MARGIN = np.log(1.25)
# One tenth per look instead of a third of a thousandth: rates that a test can see.
LOOSE = ConfirmationRule(alpha=0.06, looks=(6, 12), futility=1.0)

Noise = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def gauss(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.normal(0, 0.02, shape)


def heavy(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Scatter of 5 % and 15 % of runs slowed by 1.2 to 4."""
    spike = np.log(rng.uniform(1.2, 4, shape)) * (rng.random(shape) < 0.15)
    return rng.normal(0, 0.05, shape) + spike


def blocks_differ(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return gauss(rng, shape) + rng.normal(0, 0.10, (shape[0], 1))


def drifting(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Each run of a block is slower than the one before, in random order; blocks go on so."""
    place = rng.permuted(np.tile(np.arange(shape[1]), (shape[0], 1)), axis=1)
    return gauss(rng, shape) + 0.05 * (place / shape[1] + np.arange(shape[0])[:, None])


def lottery(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Four of ten processes are slower by 2.5, at every budget."""
    return gauss(rng, shape) + np.log(2.5) * (rng.random((shape[0], 1)) < 0.4)


def curve(steps: np.ndarray) -> np.ndarray:
    x = steps / 1024
    return np.log(0.05 + 6 * x + 4 * x**2)


CANDIDATE = Candidate(
    (512.0, 576.0, 624.0), (448.0, 656.0), (float(curve(STEPS)[0]), float(curve(STEPS)[-1]))
)


def fresh(
    rng: np.random.Generator, noise: Noise, slow: np.ndarray | float, blocks: int
) -> FreshTrials:
    """Blocks over all steps; ``slow`` is the log slowdown of the three candidates."""
    level = curve(STEPS).copy()
    level[1:-1] += slow
    y = level + noise(rng, (blocks, STEPS.size))
    return FreshTrials(np.tile(STEPS, blocks), y.ravel(), np.repeat(np.arange(blocks), STEPS.size))


def at_margin() -> np.ndarray:
    """Log slowdown at which candidates stand exactly 1.25 above the chord: least favorable."""
    flanks = np.exp(curve(STEPS))[[0, -1]]
    chord = np.interp(STEPS[1:-1], STEPS[[0, -1]], flanks)
    found: np.ndarray = np.log(chord) + MARGIN - curve(STEPS[1:-1])
    return found


@pytest.mark.parametrize("noise", [gauss, heavy, blocks_differ, drifting, lottery])
def test_any_false_acceptance_is_as_rare_as_its_level(noise: Noise) -> None:
    rng = np.random.default_rng(11)
    sweeps = 500
    false = sum(
        any(
            b.state == "accepted"
            for b in confirm([CANDIDATE], fresh(rng, noise, at_margin(), 12), rule=LOOSE).budgets
        )
        for _ in range(sweeps)
    )
    assert false <= sweeps * 0.06 + 3 * np.sqrt(sweeps * 0.06 * 0.94)


@pytest.mark.parametrize("noise", [heavy, blocks_differ, lottery])
def test_normal_budgets_are_never_accepted(noise: Noise) -> None:
    rng = np.random.default_rng(12)
    for _ in range(300):
        found = confirm([CANDIDATE], fresh(rng, noise, 0.0, 24))
        assert not found.cores


@pytest.mark.parametrize("ratio", [2.0, 5.0, 12.0])
def test_twofold_slowness_is_confirmed_at_the_first_look(ratio: float) -> None:
    rng = np.random.default_rng(13)
    for _ in range(200):
        found = confirm([CANDIDATE], fresh(rng, gauss, np.log(ratio), 6))
        assert [core.steps for core in found.cores] == [(512.0, 576.0, 624.0)]


@pytest.mark.parametrize(("ratio", "least"), [(2.0, 0.97), (1.5, 0.93)])
def test_slowness_under_heavy_noise_is_confirmed_in_three_looks(ratio: float, least: float) -> None:
    rng = np.random.default_rng(14)
    sweeps = 120
    confirmed = sum(
        bool(confirm([CANDIDATE], fresh(rng, heavy, np.log(ratio), 24)).cores)
        for _ in range(sweeps)
    )
    assert confirmed >= least * sweeps


def test_a_lasting_step_is_vetoed_by_its_flanks() -> None:
    rng = np.random.default_rng(15)
    for _ in range(150):
        given = fresh(rng, gauss, np.log(2), 24)
        y = np.array(given.log_latency)
        y[np.asarray(given.steps) == 656.0] += np.log(1.5)
        found = confirm([CANDIDATE], given._replace(log_latency=y))
        assert found.codes == ("reference_mismatch",)
        assert not found.cores


@pytest.mark.parametrize("prevalence", [0.7, 0.4, 0.2])
def test_mixtures_are_confirmed_as_often_as_planned(prevalence: float) -> None:
    rng = np.random.default_rng(16)
    n, sweeps = mixture_trials(prevalence), 300
    accepted = sum(
        mixture_test(
            rng.normal(0, 0.05, n) + (rng.random(n) < prevalence), rng.normal(0, 0.05, 2 * n), 1.0
        ).accepted
        for _ in range(sweeps)
    )
    assert accepted >= 0.96 * sweeps - 3 * np.sqrt(sweeps * 0.96 * 0.04)


def test_a_lottery_of_whole_processes_is_no_mixture_at_the_candidate() -> None:
    rng = np.random.default_rng(17)
    accepted = 0
    for _ in range(1000):
        candidate, control = rng.random(12) < 0.4, rng.random(24) < 0.4
        accepted += mixture_test(candidate, control, 1.0, alpha=0.05).accepted
    assert accepted <= 50 + 3 * np.sqrt(1000 * 0.05 * 0.95)
