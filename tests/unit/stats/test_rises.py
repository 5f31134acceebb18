"""Staircases, jumps against ramps, inadmissible references, spikes that touch."""

import numpy as np
import pytest

from regimescope.stats.epidemic import EpidemicOptions
from regimescope.stats.shape import ShapeOptions, classify
from regimescope.stats.stretches import ShapedInterval, certified_core

STEPS = np.arange(1.0, 33.0) * 32


def shape_of(latency, degree=1, *, steps=STEPS, r_min=1.25, periods=(), noise=0.005, seed=0):
    random = np.random.default_rng(seed)
    y = np.log(latency) + noise * random.standard_normal(steps.size)
    return classify(
        steps,
        y,
        repeats=np.ones(steps.size),
        sigma=float("nan"),
        degree=degree,
        options=ShapeOptions(detector=EpidemicOptions(r_min=r_min), periods=periods),
    )


def test_rises_that_do_not_recover_are_steps_at_their_edges():
    level = np.repeat([1.0, 2.0, 3.2, 5.0], 8)
    found = shape_of(level)
    assert found.shape == "STEP"
    assert [part.start for part in found.intervals] == [8, 16, 24]
    assert [part.shape for part in found.intervals] == ["STEP"] * 3
    sizes = np.exp([part.log_slowdown for part in found.intervals])
    assert sizes == pytest.approx([2.0, 3.2, 5.0], rel=0.1)
    assert found.intervals[-1].codes == ("right_censored",)


@pytest.mark.parametrize("seed", range(5))
def test_a_single_step_stays_single(seed):
    found = shape_of(np.where(STEPS < 500, 1.0, 2.0), noise=0.02, seed=seed)
    assert found.shape == "STEP"
    assert len(found.intervals) == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_ramp_is_no_staircase(seed):
    found = shape_of(1 + np.maximum(0, STEPS - 200) / 200, 0, noise=0.02, seed=seed)
    assert found.shape == "RAMP"


def test_rises_below_the_margin_are_no_steps():
    found = shape_of(np.repeat([1.0, 1.12, 1.16, 1.18], 8))
    assert found.shape == "CLEAN"


def test_a_jump_before_the_last_points_is_a_step_though_a_ramp_comes_near():
    steps = np.array([64.0, 128, 256, 384, 512, 640, 768, 896, 1024])
    latency = np.array([0.32, 0.62, 1.34, 2.52, 3.79, 5.38, 7.18, 98.7, 151.8])
    found = classify(steps, np.log(latency), repeats=np.full(9, 3.0), sigma=0.07, degree=2)
    assert found.runner_up == "RAMP"
    assert found.margin < 3
    assert found.shape == "STEP"
    assert found.intervals[0].start == 7


def test_what_is_slow_against_a_curve_too_slow_itself_is_inconclusive():
    steps = np.array([2040.0, 2055, 2056, 2057, 2071, 2072, 2073])
    latency = 1 / np.array([155.9, 115.6, 89.6, 106.8, 110.9, 83.6, 112.0])
    found = shape_of(latency, 1, steps=steps, periods=(16.0, 32.0), noise=0.0)
    assert found.shape == "INCONCLUSIVE"
    assert {"curve_inadmissible", "period_unresolved"} <= set(found.codes)
    assert "period_unresolved" not in shape_of(latency, 1, steps=steps, noise=0.0).codes


def test_a_finer_margin_resolves_a_smaller_step():
    latency = np.where(STEPS < 500, 1.0, 1.12) * (1 + STEPS / 2000)
    assert shape_of(latency).shape == "CLEAN"
    found = shape_of(latency, r_min=1.05, noise=0.002)
    assert found.shape == "STEP"
    assert found.intervals[0].start == 15


def spike(start, end):
    return ShapedInterval(start, end, "SPIKE", 1.0, ())


def test_spikes_that_touch_are_cut_to_what_no_curve_explains():
    violation = np.array([0.5, 0.9, 1.4, 2.0, 1.1, 0.8, 1.9])
    assert certified_core([spike(1, 3), spike(3, 6)], violation, 1.25) == ((2, 4),)
    assert certified_core([spike(1, 3), spike(4, 6)], violation, 1.25) is None
    assert certified_core([spike(1, 2), spike(2, 3)], violation, 3.0) == ()
    assert certified_core([], violation, 1.25) is None
