import numpy as np
import pytest
from scipy import stats

from regimescope.stats.drift import (
    drift_test,
    median_polish,
    variance_components,
    warm_up_test,
)


def test_polish_recovers_levels_and_block_effects():
    level = np.linspace(0, 2, 8)
    block = np.array([0.0, 0.1, -0.2, 0.05, 0.0])
    found = median_polish(level[:, None] + block)
    assert found.row == pytest.approx(level)
    assert found.column == pytest.approx(block)
    assert found.residual == pytest.approx(np.zeros((8, 5)), abs=1e-9)
    assert found.settled


def test_polish_keeps_a_slow_budget_slow_and_a_slow_cell_in_the_residual():
    rng = np.random.default_rng(0)
    table = 0.01 * rng.standard_normal((9, 4)) + np.array([0.0, 0.3, 0.0, 0.0])
    table[4] += 2.0
    table[7, 2] += 1.0
    found = median_polish(table)
    assert found.column[1] == pytest.approx(0.3, abs=0.03)
    assert found.row[4] - np.median(found.row) == pytest.approx(2.0, abs=0.05)
    assert found.residual[7, 2] == pytest.approx(1.0, abs=0.1)


def test_missing_cells_stay_missing_and_an_empty_budget_has_no_level():
    table = np.arange(6.0)[:, None] + np.array([0.0, 0.2, -0.2])
    table[0, 2] = np.nan
    table[3] = np.nan
    found = median_polish(table)
    assert np.isnan(found.row[3])
    assert np.isnan(found.residual[0, 2])
    assert found.row[[0, 1, 2, 4, 5]] == pytest.approx([0.0, 1, 2, 4, 5], abs=1e-6)


def test_one_trial_per_process_is_not_explained_away():
    """A slow fresh process must show as a slow budget, not as a block effect."""
    table = np.full((5, 5), np.nan)
    np.fill_diagonal(table, [0.0, 0.1, 2.0, 0.3, 0.4])
    found = median_polish(table)
    assert not found.estimable.any()
    assert found.row == pytest.approx([0.0, 0.1, 2.0, 0.3, 0.4])
    assert (found.column == 0).all()


def test_reruns_of_suspicious_budgets_only_do_not_bend_the_clean_ones():
    table = np.full((10, 3), np.nan)
    table[:, 0] = np.linspace(0, 1, 10)
    table[2:4, 1:] = table[2:4, :1]  # two budgets measured again: too few for a block effect
    found = median_polish(table)
    assert found.row == pytest.approx(np.linspace(0, 1, 10))


def test_a_single_block_and_a_single_budget_are_levels_only():
    assert median_polish([[1.0], [2.0]]).row.tolist() == [1.0, 2.0]
    assert median_polish([[1.0, 2.0, 3.0]]).row.tolist() == [2.0]
    assert np.isnan(median_polish([[np.nan]]).row).all()


@pytest.mark.parametrize("table", [[1.0, 2.0], [[]], [[np.inf]]])
def test_tables_that_are_none_are_refused(table):
    with pytest.raises(ValueError, match=r"table|infinite"):
        median_polish(table)


def test_drift_is_flagged_with_its_total_change():
    rng = np.random.default_rng(1)
    order = np.arange(60)
    found = drift_test(order, 0.25 * order / 59 + 0.03 * rng.standard_normal(60))
    assert found.flagged
    assert found.p_value < 1e-6
    assert found.change.low < 0.25 < found.change.high


def test_a_significant_but_small_drift_is_not_flagged():
    order = np.arange(200)
    rng = np.random.default_rng(2)
    found = drift_test(order, 0.05 * order / 199 + 0.01 * rng.standard_normal(200))
    assert found.p_value < 0.01
    assert not found.flagged


def test_drift_false_alarms_are_rare():
    rng = np.random.default_rng(3)
    flags = [drift_test(np.arange(40), 0.1 * rng.standard_t(4, 40)).flagged for _ in range(500)]
    assert sum(flags) <= 14  # 1 % nominal: 5 expected, 14 has probability 1e-3


@pytest.mark.parametrize(
    ("order", "residual"),
    [([0, 1], [0.0, 1.0]), ([1, 1, 1], [0.0, 1.0, 2.0]), ([0, 1, 2], [3.0] * 3)],
)
def test_drift_is_not_defined_for_too_little_or_constant_data(order, residual):
    found = drift_test(order, residual)
    assert found.p_value is None
    assert found.change is None
    assert not found.flagged


def test_drift_over_many_trials_is_that_of_their_groups():
    order = np.arange(5000)
    found = drift_test(order[::-1], 0.3 * order[::-1] / 4999)
    assert found.change.value == pytest.approx(0.3, rel=1e-3)


def test_warm_up_matches_the_signed_rank_test():
    rng = np.random.default_rng(4)
    d = 0.1 + 0.1 * rng.standard_normal(14)
    found = warm_up_test(d)
    expected = stats.wilcoxon(d, method="exact").pvalue
    assert found.p_value == pytest.approx(expected)
    assert found.change.low < found.change.value < found.change.high
    assert 0.95 <= found.level < 0.97


def test_six_budgets_cannot_reach_the_level_but_ten_can():
    assert warm_up_test(np.linspace(0.1, 0.2, 6)).p_value == pytest.approx(2 / 64)
    assert not warm_up_test(np.linspace(0.1, 0.2, 6)).suspected
    assert warm_up_test(np.linspace(0.1, 0.2, 10)).suspected


def test_warm_up_of_nothing_of_one_and_of_equal_trials():
    assert warm_up_test([]).change is None
    one = warm_up_test([0.2])
    assert one.p_value == 1.0
    assert (one.change.low, one.change.high, one.level) == (0.2, 0.2, 0.0)
    equal = warm_up_test(np.zeros(12))
    assert equal.p_value == 1.0
    assert equal.change.value == 0.0


def test_warm_up_counts_ties_exactly_and_goes_normal_for_many_budgets():
    assert warm_up_test([0.1] * 8).p_value == pytest.approx(2 / 256)
    rng = np.random.default_rng(6)
    d = 0.02 + 0.1 * rng.standard_normal(300)
    expected = stats.wilcoxon(d, correction=True, method="approx").pvalue
    assert warm_up_test(d).p_value == pytest.approx(expected, rel=0.02)


def test_interval_of_warm_up_covers_its_median():
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(300):
        found = warm_up_test(0.1 + 0.05 * rng.standard_normal(12))
        hits += found.change.low <= 0.1 <= found.change.high
    assert hits >= 270  # 95 % nominal


def test_components_separate_processes_from_repeats():
    rng = np.random.default_rng(8)
    budget = np.repeat(np.arange(10), 8 * 5)
    process = np.tile(np.repeat(np.arange(8), 5), 10)
    shift = 0.2 * rng.standard_normal((10, 8))
    y = shift[budget, process] + 0.05 * rng.standard_normal(400)
    found = variance_components(y, budget, process)
    assert found.within_pooled == pytest.approx(0.05, rel=0.2)
    assert found.between_pooled == pytest.approx(0.2, rel=0.2)
    assert found.between.shape == (10,)
    assert (found.processes == 8).all()


def test_no_spread_between_equal_processes():
    rng = np.random.default_rng(9)
    budget = np.repeat(np.arange(20), 6 * 5)
    process = np.tile(np.repeat(np.arange(6), 5), 20)
    found = variance_components(0.05 * rng.standard_normal(600), budget, process)
    assert found.between_pooled < 0.03


def test_without_repeats_components_cannot_be_told_apart():
    found = variance_components([0.0, 0.1, 0.3, 0.2], [1, 1, 2, 3], [0, 1, 0, 0])
    assert np.isnan(found.within_pooled)
    assert np.isnan(found.between_pooled)
    assert found.medians_spread[0] == pytest.approx(np.std([0.0, 0.1], ddof=1))
    assert np.isnan(found.medians_spread[1:]).all()
    with pytest.raises(ValueError, match="no trials"):
        variance_components([], [], [])
