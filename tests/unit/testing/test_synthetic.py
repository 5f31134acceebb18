"""The synthetic machine: same answers to the same questions, and a truth that holds."""

import numpy as np
import pytest

from regimescope.testing.synthetic import Machine, joined, sweep
from regimescope.testing.synthetic_noise import NOISE_CELLS, Noise
from regimescope.testing.synthetic_truth import SlowRegime, Truth

QUIET = Noise(scale=0.0)
LINE = (0.1, 10.0)


def machine(truth, noise=QUIET, seed=0):
    return Machine(truth, noise, np.random.default_rng(seed))


def test_without_noise_a_normal_budget_takes_what_the_curve_says():
    quiet = machine(Truth((0.1, 10.0), 1001))
    assert quiet.measure(501, 0) == pytest.approx(0.1 + 10.0 * 500 / 1000)


def test_exactly_the_budgets_of_a_regime_are_slow():
    truth = Truth(LINE, regimes=(SlowRegime(512, 640, 3.0),))
    plain, slow = machine(Truth(LINE)), machine(truth)
    budgets = np.arange(2, 1025)
    ratio = slow.run(budgets, 0).seconds / plain.run(budgets, 0).seconds
    found = budgets[ratio > 1.5]
    assert found.tolist() == truth.slow_budgets(2, 1024).tolist()
    assert (found[0], found[-1]) == (512, 639)
    np.testing.assert_allclose(ratio[found - 2], 3.0)


def test_the_same_seed_gives_the_same_answers_to_the_same_questions():
    truth = Truth(LINE, wiggle=0.04, regimes=(SlowRegime(300, 400, 2.0, scatter=0.1),))
    answers = [machine(truth, NOISE_CELLS["heavy"], 5).run([350, 700, 350], 3) for _ in range(2)]
    np.testing.assert_array_equal(answers[0].seconds, answers[1].seconds)
    other = machine(truth, NOISE_CELLS["heavy"], 6).run([350, 700, 350], 3)
    assert (other.seconds != answers[0].seconds).all()


def test_asking_one_by_one_gives_what_a_block_gives():
    truth = Truth(LINE, wiggle=0.04, regimes=(SlowRegime(300, 400, 2.0, scatter=0.1),))
    budgets = [64, 350, 350, 900, 128]
    block = machine(truth, NOISE_CELLS["skew"], 1).run(budgets, 0).seconds
    single = machine(truth, NOISE_CELLS["skew"], 1)
    np.testing.assert_allclose([single.measure(b, 0) for b in budgets], block)


def test_the_stated_slowdown_is_the_geometric_mean_of_the_scattered_one():
    regime = SlowRegime(300, 500, 4.0, scatter=0.15)
    quiet, plain = machine(Truth(LINE, regimes=(regime,))), machine(Truth(LINE))
    budgets = np.arange(300, 500)
    ratio = quiet.run(budgets, 0).seconds / plain.run(budgets, 0).seconds
    assert quiet.slowdown(regime) == pytest.approx(np.exp(np.log(ratio).mean()))
    assert np.log(ratio).std() == pytest.approx(0.15, rel=0.25)


def test_a_regime_of_some_processes_is_constant_within_a_process():
    truth = Truth(LINE, regimes=(SlowRegime(300, 500, 4.0, prevalence=0.4),))
    asked = machine(truth)
    plain = machine(Truth(LINE)).measure(400, 0)
    slow = np.array([asked.run([400] * 4, k).seconds > 2 * plain for k in range(400)])
    assert (slow.all(axis=1) | ~slow.any(axis=1)).all()
    assert 0.3 < slow[:, 0].mean() < 0.5  # four standard deviations


def test_a_transition_makes_single_runs_slow_with_the_stated_chance():
    truth = Truth(LINE, regimes=(SlowRegime(400, 700, 4.0, transition=32),))
    asked = machine(truth)
    plain = machine(Truth(LINE))
    shares = [
        (asked.run([b] * 500, 0).seconds > 2 * plain.measure(b, 0)).mean() for b in (300, 400, 500)
    ]
    assert shares[0] == 0.0
    assert 0.4 < shares[1] < 0.65
    assert shares[2] == 1.0


def test_a_longer_trial_before_moves_the_onset():
    truth = Truth(LINE, regimes=(SlowRegime(400, 500, 4.0, earlier=64),))
    plain = machine(Truth(LINE)).measure(350, 0)
    asked = machine(truth)
    assert asked.measure(350, 0) == pytest.approx(plain)
    assert asked.run([900, 350], 1).seconds[1] == pytest.approx(4 * plain)
    assert asked.run([100, 350], 2).seconds[1] == pytest.approx(plain)


def test_the_lottery_is_constant_for_a_process_and_a_budget():
    asked = machine(Truth(LINE), Noise(scale=0.0, lottery=0.4), seed=2)
    plain = machine(Truth(LINE)).measure(400, 0)
    slow = np.array([asked.run([400] * 3, k).seconds > 1.5 * plain for k in range(300)])
    assert (slow.all(axis=1) | ~slow.any(axis=1)).all()
    assert 0.29 < slow[:, 0].mean() < 0.51


def test_trials_that_end_early_produce_fewer_tokens_and_take_less_time():
    asked = machine(Truth(LINE, early_end=0.5))
    trials = asked.run([1000] * 400, 0)
    early = trials.output_tokens < trials.budget
    assert 0.4 < early.mean() < 0.6
    assert trials.seconds[early].max() < trials.seconds[~early].min()


@pytest.mark.parametrize("budget", [1, 0, 1025])
def test_a_budget_out_of_range_is_refused(budget):
    with pytest.raises(ValueError, match="budgets must lie in"):
        machine(Truth(LINE)).measure(budget, 0)


def test_a_sweep_visits_each_budget_once_in_each_process():
    trials = sweep(machine(Truth(LINE)), [64, 128, 256], 4, np.random.default_rng(0))
    assert sorted(zip(trials.block.tolist(), trials.budget.tolist(), strict=True)) == [
        (k, b) for k in range(4) for b in (64, 128, 256)
    ]


def test_the_warm_up_of_a_process_takes_the_worst_of_its_excess():
    cold = machine(Truth(LINE), Noise(scale=0.0, warm_up_limit=1.0))
    direct = cold.run([500, 500], 0).seconds
    warmed = sweep(cold, [500], 1, np.random.default_rng(0), first_process=1).seconds
    assert warmed[0] == pytest.approx(direct[1])
    assert warmed[0] < direct[0]


def test_a_sweep_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one process and one budget"):
        sweep(machine(Truth(LINE)), [], 3, np.random.default_rng(0))


def test_joined_trials_keep_their_order():
    asked = machine(Truth(LINE))
    both = joined([asked.run([100], 7), asked.run([200, 300], 8)])
    assert both.budget.tolist() == [100, 200, 300]
    assert both.block.tolist() == [7, 8, 8]
