"""Rates over many simulated sweeps with known truth and fixed seeds.

Bounds leave three to four binomial standard deviations on either side of what the method states,
so that they hold for any seed but fail when a rate really moves.
"""

import numpy as np
import pytest

from regimescope.stats.epidemic import EpidemicOptions, detect
from regimescope.stats.estimate import summarize_repeats
from regimescope.stats.shape import classify

NOISE = 0.03  # scale of Student's t with 4 degrees of freedom, as in the penalty table


def expected(steps, degree=2):
    x = steps / steps[-1]
    return np.array([0.05, 0.6, 0.35])[: degree + 1] @ x ** np.arange(degree + 1)[:, None]


def measured(rng, steps, log_latency, repeats, *, spiked=0.0):
    """Repeats with t4 noise; a share of the runs is slowed by 1.2 to 2.5."""
    noise = NOISE * rng.standard_t(4, (repeats, steps.size))
    hit = rng.random(noise.shape) < spiked
    noise += hit * np.log(rng.uniform(1.2, 2.5, noise.shape))
    y = log_latency + noise
    return summarize_repeats(np.tile(steps, repeats), y.ravel())


def found_intervals(summary, degree=2, r_min=1.25):
    fit = detect(
        summary.steps,
        summary.median,
        repeats=summary.repeats,
        sigma=summary.sigma,
        degree=degree,
        options=EpidemicOptions(r_min=r_min),
    )
    return fit.intervals


def alarm_rate(seed, sweeps, *, n, repeats, degree=2, r_min=1.25, spiked=0.0):
    rng = np.random.default_rng(seed)
    steps = np.linspace(64, 1024, n)
    clean = np.log(expected(steps, degree))
    alarms = sum(
        bool(found_intervals(measured(rng, steps, clean, repeats, spiked=spiked), degree, r_min))
        for _ in range(sweeps)
    )
    return alarms / sweeps


@pytest.mark.parametrize(
    ("n", "repeats", "degree"), [(12, 3, 2), (12, 1, 2), (10, 5, 1), (12, 2, 0)]
)
def test_one_clean_sweep_in_ten_alarms_when_any_slowdown_counts(n, repeats, degree):
    rate = alarm_rate(n + repeats, 180, n=n, repeats=repeats, degree=degree, r_min=1.0001)
    assert 0.03 < rate < 0.18


@pytest.mark.parametrize("repeats", [1, 3])
def test_few_clean_sweeps_alarm_at_the_least_slowdown(repeats):
    assert alarm_rate(7, 120, n=12, repeats=repeats) <= 0.05


def test_spiked_runs_raise_alarms_which_only_confirmation_removes():
    rate = alarm_rate(11, 120, n=12, repeats=3, spiked=0.08)
    assert 0.05 < rate < 0.38


@pytest.mark.parametrize(("ratio", "n"), [(2.0, 12), (2.0, 24), (10.0, 12), (10.0, 24)])
def test_interior_slowdowns_are_found_with_their_edges(ratio, n):
    rng = np.random.default_rng(n)
    steps = np.linspace(64, 1024, n)
    found = exact = 0
    for _ in range(40):
        width = int(rng.integers(1, n // 2))
        start = int(rng.integers(2, n - width - 1))
        y = np.log(expected(steps))
        y[start : start + width] += np.log(ratio)
        intervals = found_intervals(measured(rng, steps, y, 3))
        found += any(a < start + width and b > start for a, b in intervals)
        exact += (start, start + width) in intervals
    assert found >= 39
    assert exact >= 35


def a_shape(rng, kind, ratio):
    """Log latency of one sweep over 31 steps with an element at a random place."""
    steps = np.linspace(64, 1024, 31)
    T = expected(steps)
    if kind == "ramp":
        k = int(rng.integers(8, 15))
        T = T + (ratio - 1) * T[-1] * np.maximum(0, steps - steps[k]) / (steps[-1] - steps[k])
    y = np.log(T)
    if kind == "step":
        y[int(rng.integers(8, 23)) :] += np.log(ratio)
    elif kind == "head":
        y[: int(rng.integers(8, 15))] += np.log(ratio)
    elif kind == "spike":
        start = int(rng.integers(3, 21))
        y[start : start + int(rng.integers(2, 7))] += np.log(ratio)
    return steps, y


@pytest.mark.parametrize(
    ("kind", "ratio", "shape", "least"),
    [
        ("clean", 1.0, "CLEAN", 13),
        ("step", 2.0, "STEP", 13),
        ("step", 1.4, "STEP", 9),
        ("head", 2.0, "STEP", 13),
        ("ramp", 2.0, "RAMP", 13),
        ("spike", 1.5, "SPIKE", 13),
        ("spike", 5.0, "SPIKE", 13),
    ],
)
def test_shapes_are_named_right(kind, ratio, shape, least):
    rng = np.random.default_rng(31)
    right = 0
    for _ in range(15):
        steps, y = a_shape(rng, kind, ratio)
        summary = measured(rng, steps, y, 3)
        result = classify(
            summary.steps,
            summary.median,
            repeats=summary.repeats,
            sigma=summary.sigma,
            degree=2,
        )
        right += result.shape == shape
    assert right >= least
