import numpy as np
import pytest
from scipy import stats

from regimescope.stats.certificate import (
    certificate,
    exact_rank_test,
    fresh_certificate_test,
    fresh_step_test,
)


def test_ratio_is_taken_to_the_fastest_longer_step():
    found = certificate([30, 10, 40, 20], np.log([9.0, 2.0, 4.0, 3.0]))
    assert found.steps.tolist() == [10, 20, 30, 40]
    assert found.ratio == pytest.approx([2 / 3, 3 / 4, 9 / 4])
    assert found.witness.tolist() == [1, 3, 3]
    assert found.value == pytest.approx(9 / 4)
    assert found.peak_index == 2


def test_increasing_latency_certifies_nothing():
    assert certificate([1, 2, 3], [0.0, 0.5, 0.9]).value < 1


def test_equal_latencies_give_one():
    assert certificate([1, 2, 3], [0.7, 0.7, 0.7]).ratio.tolist() == [1.0, 1.0]


def test_a_single_step_has_no_certificate():
    found = certificate([5], [0.1])
    assert found.value is None
    assert found.peak_index is None
    assert found.ratio.size == 0


@pytest.mark.parametrize("alternative", ["greater", "less", "two-sided"])
@pytest.mark.parametrize("sizes", [(1, 1), (6, 6), (6, 12), (24, 48)])
def test_without_ties_the_test_is_the_exact_mann_whitney_test(alternative, sizes):
    rng = np.random.default_rng(sum(sizes))
    x, y = rng.standard_normal(sizes[0]) + 0.5, rng.standard_normal(sizes[1])
    expected = stats.mannwhitneyu(x, y, alternative=alternative, method="exact").pvalue
    found = exact_rank_test(x, y, alternative=alternative)
    assert found.p_value == pytest.approx(expected, rel=1e-9)
    assert not found.tied
    assert found.size == sizes


def test_with_ties_the_test_is_the_exact_permutation_test_of_mid_ranks():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 4, 6), rng.integers(0, 4, 7)

    def rank_sum(a, b, axis):
        ranks = stats.rankdata(np.concatenate([a, b], axis=axis), axis=axis)
        return ranks[..., :6].sum(axis=-1)

    expected = stats.permutation_test(
        (x, y), rank_sum, vectorized=True, n_resamples=20_000, alternative="greater"
    ).pvalue
    found = exact_rank_test(x, y, alternative="greater")
    assert found.p_value == pytest.approx(expected, rel=1e-9)
    assert found.tied


def test_all_values_equal_prove_nothing():
    assert exact_rank_test([1.0, 1.0], [1.0, 1.0, 1.0]).p_value == 1.0


def test_six_against_six_reaches_the_published_least_p_value():
    found = fresh_certificate_test(np.arange(6) + 10.0, np.arange(6))
    assert found.p_value == pytest.approx(1 / 924)


def test_a_few_ties_do_not_make_a_coarse_timer():
    x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    y = [6.0, 7.0, 8.0, 9.0, 10.0, 11.0]
    assert not exact_rank_test(x, y).tied


@pytest.mark.parametrize(("x", "y"), [([], [1.0]), ([1.0], []), ([np.nan], [1.0])])
def test_sides_without_measurements_are_refused(x, y):
    with pytest.raises(ValueError, match=r"both sides|finite"):
        exact_rank_test(x, y)


def test_unknown_alternative_is_refused():
    with pytest.raises(ValueError, match="sideways"):
        exact_rank_test([1.0], [2.0], alternative="sideways")


def test_step_test_forgives_margin_and_growth_but_not_a_jump():
    rng = np.random.default_rng(3)
    before = 0.01 * rng.standard_normal(12)
    grown = before + np.log(1.09) + 2 * np.log(513 / 512)
    jumped = before + np.log(1.5)
    args = {"steps": (512.0, 513.0), "degree": 2}
    assert fresh_step_test(grown, before, **args).p_value > 0.05
    assert fresh_step_test(jumped, before, **args).p_value < 1e-3
    with pytest.raises(ValueError, match="ascending"):
        fresh_step_test(jumped, before, steps=(513.0, 512.0), degree=2)


def test_a_trial_that_ran_out_of_time_is_ranked_last_and_never_dropped() -> None:
    slow, longer = [np.inf] * 6, [0.1, 0.2, 0.15, 0.12, 0.18, 0.11]
    assert fresh_certificate_test(slow, longer).p_value == pytest.approx(1 / 924)
    assert fresh_certificate_test(longer, slow).p_value == pytest.approx(1.0)
    assert fresh_certificate_test([np.inf] * 6, [np.inf] * 6).p_value == 1.0
    steps = fresh_step_test([np.inf] * 6, longer, steps=(99.0, 100.0), degree=2)
    assert steps.p_value == pytest.approx(1 / 924)
    with pytest.raises(ValueError, match="x"):
        exact_rank_test([-np.inf], [0.0])
    with pytest.raises(ValueError, match="y"):
        exact_rank_test([0.0], [np.nan])
