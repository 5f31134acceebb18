"""Confirmation where processes are slow only sometimes."""

from __future__ import annotations

import pytest
from scipy.stats import fisher_exact

from regimescope.stats.mixture import mixture_test, mixture_trials, screen_repeats


@pytest.mark.parametrize(("prevalence", "repeats"), [(0.7, 3), (0.4, 6), (0.2, 14), (1.0, 1)])
def test_the_screen_repeats_until_a_slow_process_is_met(prevalence: float, repeats: int) -> None:
    assert screen_repeats(prevalence) == repeats


@pytest.mark.parametrize(("prevalence", "needed"), [(0.7, 12), (0.4, 24), (0.2, 58), (1.0, 5)])
def test_rarer_slowness_needs_more_processes(prevalence: float, needed: int) -> None:
    assert mixture_trials(prevalence) == needed


def test_counts_are_compared_by_fishers_test() -> None:
    found = mixture_test([1.0] * 7 + [0.0] * 5, [0.0] * 23 + [1.0], 1.0)
    assert (found.slow, found.trials, found.control_slow, found.control_trials) == (7, 12, 1, 24)
    expected = fisher_exact([[7, 5], [1, 23]], alternative="greater").pvalue
    assert found.p_value == pytest.approx(expected)
    assert found.share.low < 7 / 12 < found.share.high


def test_six_of_twelve_against_none_pass_and_five_do_not() -> None:
    controls = [0.0] * 24
    assert mixture_test([1.0] * 6 + [0.0] * 6, controls, 1.0).accepted
    assert not mixture_test([1.0] * 5 + [0.0] * 7, controls, 1.0).accepted


def test_controls_that_are_slow_as_often_pass_nothing() -> None:
    assert mixture_test([1.0] * 12, [1.0] * 24, 1.0).p_value == pytest.approx(1.0)
    assert mixture_test([0.0] * 12, [0.0] * 24, 1.0).p_value == pytest.approx(1.0)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="trials at the candidate"):
        mixture_test([], [0.0], 1.0)
    with pytest.raises(ValueError, match="positive"):
        mixture_test([1.0], [0.0], -1.0)
    for prevalence in (0.0, 1.1, float("nan")):
        with pytest.raises(ValueError, match="prevalence"):
            screen_repeats(prevalence)
        with pytest.raises(ValueError, match="prevalence"):
            mixture_trials(prevalence)
    with pytest.raises(ValueError, match="miss"):
        screen_repeats(0.5, miss=1.0)
    with pytest.raises(ValueError, match="power"):
        mixture_trials(0.5, power=1.0)
    with pytest.raises(ValueError, match="more than"):
        mixture_trials(0.001)
