"""Truths that are drawn are what their name says."""

import numpy as np
import pytest

from regimescope.testing.synthetic_draws import (
    CONFOUNDERS,
    GAP,
    HIGH,
    LOW,
    MARGIN,
    NARROW,
    WIDE,
    draw_confounder,
    draw_regime,
    draw_two_regimes,
)
from regimescope.testing.synthetic_truth import SlowRegime, Truth, tabulate

RNG = np.random.default_rng


@pytest.mark.parametrize("kind", CONFOUNDERS)
def test_a_confounder_has_no_slow_budget(kind):
    for seed in range(30):
        truth = draw_confounder(kind, RNG(seed))
        assert truth.slow_budgets(LOW, HIGH).size == 0
        assert np.isfinite(tabulate(truth, RNG(0)).normal_log_s[2:]).all()


def test_a_step_lasts_and_has_its_size():
    stepped = tabulate(Truth((0.1, 5.0), step_at=500, step_slowdown=2.0), RNG(0))
    plain = tabulate(Truth((0.1, 5.0)), RNG(0))
    raised = stepped.normal_log_s[2:] - plain.normal_log_s[2:]
    assert (raised[:498] == 0).all()
    np.testing.assert_allclose(raised[498:], np.log(2.0))


def test_a_bend_starts_at_its_budget_and_reaches_its_size():
    straight, bent = Truth((0.0, 4.0)), Truth((0.0, 4.0), bend_at=512, bend=2.0)
    added = np.exp(tabulate(bent, RNG(0)).normal_log_s) - np.exp(
        tabulate(straight, RNG(0)).normal_log_s
    )
    np.testing.assert_allclose(added[2:513], 0.0, atol=1e-12)
    assert added[1024] == pytest.approx(2.0)
    assert added[768] == pytest.approx(1.0)


def test_a_saw_tooth_repeats_with_its_period_and_height():
    table = tabulate(Truth((1.0,), page=64, page_size=0.05), RNG(0)).normal_log_s
    np.testing.assert_allclose(table[128:192], table[192:256])
    assert np.exp(table[128:192]).max() == pytest.approx(1 + 0.05 * 63 / 64)


@pytest.mark.parametrize("width", [NARROW, WIDE])
@pytest.mark.parametrize("cached", [True, False])
def test_a_regime_lies_within_its_margins_and_widths(width, cached):
    for seed in range(50):
        truth = draw_regime(RNG(seed), slowdown=2.0, width=width, kv_cache=cached)
        (regime,) = truth.regimes
        assert regime.onset >= LOW + MARGIN
        assert regime.recovery <= HIGH - MARGIN
        assert width[0] <= regime.recovery - regime.onset <= width[1]
        assert len(truth.coefficients) == (3 if cached else 4)


def test_two_regimes_leave_a_grid_point_between_them():
    gaps = []
    for seed in range(100):
        first, second = draw_two_regimes(RNG(seed)).regimes
        gaps.append(second.onset - first.recovery)
        assert second.recovery <= HIGH - MARGIN
    assert min(gaps) >= GAP
    assert min(gaps) < 2 * GAP  # some are one grid point apart


def test_slow_budgets_stay_slow_whatever_the_scatter():
    truth = Truth((1.0,), regimes=(SlowRegime(300, 900, 1.3, scatter=0.5),))
    excess = tabulate(truth, RNG(0)).excess
    assert excess[300:900].min() >= np.log(1.3) / 2
    assert (excess[:300] == 0).all()


@pytest.mark.parametrize(
    "regime",
    [
        {"onset": 500, "recovery": 500, "slowdown": 2.0},
        {"onset": 1, "recovery": 500, "slowdown": 2.0},
        {"onset": 100, "recovery": 500, "slowdown": 1.0},
        {"onset": 100, "recovery": 500, "slowdown": 2.0, "prevalence": 0.0},
        {"onset": 100, "recovery": 500, "slowdown": 2.0, "transition": -1},
    ],
)
def test_a_regime_that_cannot_be_is_refused(regime):
    with pytest.raises(ValueError, match="got SlowRegime"):
        SlowRegime(**regime)


def test_regimes_that_overlap_are_refused():
    truth = Truth((1.0,), regimes=(SlowRegime(300, 500, 2.0), SlowRegime(400, 600, 2.0)))
    with pytest.raises(ValueError, match="disjoint"):
        tabulate(truth, RNG(0))


def test_an_unknown_kind_names_the_known_ones():
    with pytest.raises(ValueError, match="known: clean, step"):
        draw_confounder("bump", RNG(0))
