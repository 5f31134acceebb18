import numpy as np
import pytest

from regimescope.stats.curve import predict_log
from regimescope.stats.epidemic import EpidemicOptions, checked_sweep, detect


def a_sweep(slow=None, n=24, noise=0.02, seed=0):
    rng = np.random.default_rng(seed)
    steps = np.linspace(64, 1024, n)
    y = np.log(0.2 + 0.01 * steps + 3e-6 * steps**2) + noise * rng.standard_normal(n)
    for (start, end), ratio in (slow or {}).items():
        y[start:end] += np.log(ratio)
    return steps, y


def run(steps, y, *, repeats=3, sigma=0.03, degree=2, **options):
    return detect(
        steps,
        y,
        repeats=np.full(len(steps), repeats),
        sigma=sigma,
        degree=degree,
        options=EpidemicOptions(**options),
    )


def test_a_clean_sweep_has_no_interval_and_its_curve():
    steps, y = a_sweep()
    fit = run(steps, y)
    assert fit.intervals == ()
    assert fit.codes == ()
    assert fit.cost == fit.null_cost
    assert fit.normal.all()
    assert np.abs(predict_log(fit.curve, steps) - y).max() < 0.1
    assert fit.residual == pytest.approx(y - predict_log(fit.curve, steps), abs=1e-9)


@pytest.mark.parametrize("ratio", [1.5, 2, 5, 10, 21])
@pytest.mark.parametrize("where", [(3, 4), (8, 12), (4, 19)])
def test_an_interval_is_found_with_its_size_and_edges(ratio, where):
    steps, y = a_sweep({where: ratio})
    fit = run(steps, y)
    assert fit.intervals == (where,)
    assert np.exp(fit.offsets[0]) == pytest.approx(ratio, rel=0.1)
    (edges,) = fit.edges
    assert edges.onset == (where[0] - 1, where[0])
    assert edges.recovery == (where[1] - 1, where[1])
    assert where in fit.ambiguous[0]
    assert fit.gains[0] == pytest.approx(fit.null_cost - fit.cost)


def test_two_regimes_with_one_normal_point_between_are_two():
    steps, y = a_sweep({(6, 10): 3.0, (11, 15): 3.0})
    assert run(steps, y).intervals == ((6, 10), (11, 15))


def test_edges_outside_the_range_are_open():
    steps, y = a_sweep({(0, 4): 3.0, (20, 24): 3.0})
    fit = run(steps, y)
    assert fit.edges[0].onset[0] == -1
    assert fit.edges[1].recovery[1] == 24


def test_slowdowns_below_the_least_are_not_intervals():
    steps, y = a_sweep({(8, 12): 1.18})
    assert run(steps, y).intervals == ()
    assert run(steps, y, r_min=1.1).intervals == ((8, 12),)


def test_order_of_rows_does_not_matter_and_indices_are_of_sorted_steps():
    steps, y = a_sweep({(8, 12): 2.0})
    shuffled = np.random.default_rng(1).permutation(24)
    fit = run(steps[shuffled], y[shuffled])
    assert fit.intervals == ((8, 12),)
    assert fit.steps == pytest.approx(steps)


def test_degree_falls_with_the_points_outside():
    steps, y = a_sweep({(2, 10): 10.0}, n=12)
    fit = run(steps, y)
    assert fit.intervals == ((2, 10),)
    assert fit.curve.degree == 1
    assert fit.codes == ("reduced_degree",)


def test_degree_is_lowered_where_the_curve_is_straight():
    steps = np.linspace(64, 1024, 24)
    y = np.log(0.1 + 0.01 * steps) + 0.01 * np.random.default_rng(2).standard_normal(24)
    assert run(steps, y).curve.degree == 1
    assert run(steps, y, choose_degree=False).curve.degree == 2
    assert "reduced_degree" not in run(steps, y).codes


def test_flat_axis_is_searched_against_a_constant():
    steps = np.arange(0.0, 12.0)
    y = np.zeros(12) + 0.01 * np.random.default_rng(3).standard_normal(12)
    y[4:7] += np.log(2)
    fit = run(steps, y, degree=0)
    assert fit.intervals == ((4, 7),)
    assert fit.curve.theta.shape == (1,)
    assert "reduced_degree" not in fit.codes


@pytest.mark.parametrize("n", [1, 2, 3])
def test_too_few_points_are_described_not_searched(n):
    steps, y = a_sweep(n=24)
    fit = run(steps[:n], y[:n])
    assert fit.intervals == ()
    assert "too_few_budgets" in fit.codes
    assert fit.curve is not None
    assert fit.residual.shape == (n,)


def test_four_and_five_points_are_searched_but_named_too_few():
    steps, y = a_sweep({(2, 3): 10.0}, n=5)
    fit = run(steps, y)
    assert fit.intervals == ((2, 3),)
    assert "too_few_budgets" in fit.codes
    assert "too_few_normal_budgets" not in fit.codes
    steps, y = a_sweep({(1, 3): 10.0}, n=5)
    assert "too_few_normal_budgets" in run(steps, y).codes


def test_equal_latencies_have_no_interval_and_no_spread():
    fit = run(np.arange(1.0, 13.0), np.full(12, 0.3), sigma=0.0)
    assert fit.intervals == ()
    assert "zero_spread" in fit.codes
    assert fit.scale >= 0.02


def test_unknown_and_zero_sigma_fall_back_to_the_floor():
    assert checked_sweep([1, 2], [0.0, 1.0], [1, 1], float("nan")).scale_floor == 0.02
    assert checked_sweep([1, 2], [0.0, 1.0], [3, 3], 0.0).scale_floor == 0.02
    assert checked_sweep([1, 2], [0.0, 1.0], [4, 4], 0.1).scale_floor == pytest.approx(0.0625)


def test_a_falling_series_has_an_inadmissible_curve():
    steps = np.arange(1.0, 13.0)
    fit = run(steps, np.log(20.0 - steps), r_min=100.0)
    assert "curve_inadmissible" in fit.codes


def test_long_axes_are_searched_by_proposals():
    steps, y = a_sweep({(400, 460): 1.5, (700, 701): 10.0}, n=1000)
    fit = run(steps, y, lam=8.0)
    assert fit.intervals == ((400, 460), (700, 701))
    assert fit.edges[0].onset == (399, 400)


def test_ties_in_latency_are_no_obstacle():
    steps = np.linspace(64, 1024, 16)
    y = np.log(np.round(0.2 + 0.01 * steps, 1))
    y[7:9] += np.log(4)
    assert run(steps, y).intervals == ((7, 9),)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"log_latency": [0.0, np.nan, 1.0]}, "finite"),
        ({"repeats": [1, 0, 1]}, "at least one repeat"),
        ({"repeats": [1, 1]}, "3 elements"),
        ({"sigma": -0.1}, "sigma"),
        ({"sigma": float("inf")}, "sigma"),
        ({"degree": -1}, "degree"),
        ({"steps": [1, 1, 2]}, "given once"),
        ({"steps": [], "log_latency": [], "repeats": []}, "at least one step"),
    ],
)
def test_impossible_input_is_refused(change, message):
    given = {
        "steps": [1, 2, 3],
        "log_latency": [0.0, 0.5, 1.0],
        "repeats": [1, 1, 1],
        "sigma": 0.03,
        "degree": 2,
        **change,
    }
    with pytest.raises(ValueError, match=message):
        detect(given.pop("steps"), given.pop("log_latency"), **given)
