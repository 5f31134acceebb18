import numpy as np
import pytest

from regimescope.stats import curve as module
from regimescope.stats.curve import (
    choose_degree,
    effective_degree,
    fit_curve,
    is_admissible,
    log_standard_error,
    predict_log,
    residual_scale,
    theta_covariance,
)

STEPS = np.linspace(64, 1024, 16)


def quadratic(steps):
    return 0.2 + 0.01 * steps + 6e-6 * steps**2


def test_exact_data_give_the_curve_back():
    fit = fit_curve(STEPS, np.log(quadratic(STEPS)), degree=2)
    assert fit.codes == ()
    assert np.abs(fit.residual).max() < 1e-4
    assert np.exp(predict_log(fit.curve, 2000.0)) == pytest.approx(quadratic(2000.0), rel=1e-3)


def test_coefficients_are_never_negative():
    falling = np.linspace(2.0, 1.0, 16)
    fit = fit_curve(STEPS, np.log(falling), degree=3)
    assert (fit.curve.theta >= 0).all()
    assert np.diff(predict_log(fit.curve, STEPS)) == pytest.approx(np.zeros(15), abs=1e-9)


@pytest.mark.parametrize("slowdown", [5, 10, 21])
def test_curve_stays_with_the_normal_third_when_the_rest_is_slow(slowdown):
    y = np.log(quadratic(STEPS))
    y[3:14] += np.log(slowdown)  # 11 of 16 slow
    fit = fit_curve(STEPS, y, degree=2)
    inside = np.exp(predict_log(fit.curve, STEPS[3:14])) / quadratic(STEPS[3:14])
    assert (np.abs(np.log(inside)) < np.log(1.25)).all()


def test_flat_axis_gets_a_constant():
    fit = fit_curve([0, 10, 20, 30], np.log([2.0, 2.1, 1.9, 2.0]), degree=0)
    assert fit.curve.theta.shape == (1,)
    assert fit.curve.theta[0] == pytest.approx(2.0, rel=0.02)


def test_fewer_points_than_coefficients_lower_the_degree():
    assert fit_curve([5.0], [0.7], degree=2).codes == ("reduced_degree",)
    single = fit_curve([5.0], [0.7], degree=2).curve
    assert np.exp(predict_log(single, 99.0)) == pytest.approx(np.exp(0.7), rel=1e-4)
    two = fit_curve([1.0, 2.0], np.log([1.0, 2.0]), degree=3)
    assert two.curve.degree == 1
    assert two.residual == pytest.approx([0, 0], abs=1e-4)


def test_equal_latencies_are_a_flat_curve_without_spread():
    fit = fit_curve(STEPS, np.zeros(16), degree=2)
    assert np.exp(predict_log(fit.curve, STEPS)) == pytest.approx(np.ones(16), rel=1e-4)
    assert np.isfinite(log_standard_error(fit.curve, STEPS)).all()


def test_a_curve_above_some_point_is_named_inadmissible():
    y = np.log(quadratic(STEPS))
    y[8] -= np.log(3)  # one impossible fast run
    fit = fit_curve(STEPS, y, degree=2)
    assert "curve_inadmissible" in fit.codes
    assert fit.curve is not None


def test_failed_starts_are_passed_over_and_all_failing_leaves_no_curve(monkeypatch):
    solve, calls = module.least_squares, []

    def fails_once(*args, **kwargs):
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("Residuals are not finite in the initial point.")
        return solve(*args, **kwargs)

    monkeypatch.setattr(module, "least_squares", fails_once)
    assert fit_curve(STEPS, np.log(quadratic(STEPS)), degree=2).curve is not None

    def always_fails(*args, **kwargs):
        raise ValueError("Residuals are not finite in the initial point.")

    monkeypatch.setattr(module, "least_squares", always_fails)
    fit = fit_curve(STEPS, np.log(quadratic(STEPS)), degree=2)
    assert fit.curve is None
    assert fit.codes == ("curve_failed",)
    assert fit.residual.size == 0


@pytest.mark.parametrize("kwargs", [{"degree": -1}])
def test_negative_degree_is_refused(kwargs):
    with pytest.raises(ValueError, match="degree"):
        fit_curve(STEPS, np.zeros(16), **kwargs)


def test_admissible_allows_a_twentieth_of_many_points_and_none_of_few():
    fast = -np.log(1.3)
    assert is_admissible(np.array([0.5, 0.0, -0.2]))
    assert not is_admissible(np.array([fast, *np.zeros(18)]))
    assert is_admissible(np.array([fast, *np.zeros(19)]))
    assert not is_admissible(np.array([fast, fast, *np.zeros(19)]))


@pytest.mark.parametrize(
    ("degree", "normal", "expected"), [(2, 12, 2), (2, 4, 1), (3, 5, 2), (2, 3, 0), (0, 1, 0)]
)
def test_degree_falls_with_the_normal_points(degree, normal, expected):
    assert effective_degree(degree, normal) == expected


def test_criterion_prefers_the_degree_of_the_truth():
    rng = np.random.default_rng(8)
    steps = np.linspace(32, 1024, 40)
    everything = np.ones(40, dtype=bool)
    chosen = {"line": [], "parabola": []}
    for _ in range(20):
        noise = 0.02 * rng.standard_normal(40)
        line = np.log(0.1 + 0.01 * steps) + noise
        parabola = np.log(0.1 + 0.002 * steps + 2e-5 * steps**2) + noise
        for name, y in (("line", line), ("parabola", parabola)):
            found = choose_degree(steps, y, everything, degree=3, scale=0.02)
            chosen[name].append(found)
    assert chosen["line"].count(1) >= 17
    assert chosen["parabola"].count(2) >= 15
    assert 1 not in chosen["parabola"]


def test_criterion_ignores_slow_points_and_keeps_the_degree_of_short_series():
    steps = np.linspace(32, 1024, 20)
    y = np.log(0.1 + 0.01 * steps)
    y[10:15] += 2.0
    normal = np.ones(20, dtype=bool)
    normal[10:15] = False
    backwards = slice(None, None, -1)
    assert choose_degree(steps, y, normal, degree=2, scale=0.02) == 1
    assert (
        choose_degree(steps[backwards], y[backwards], normal[backwards], degree=2, scale=0.02) == 1
    )
    assert choose_degree(steps[:7], y[:7], normal[:7], degree=2, scale=0.02) == 2
    with pytest.raises(ValueError, match="scale"):
        choose_degree(steps, y, normal, degree=2, scale=0.0)


def test_standard_error_covers_the_true_curve():
    rng = np.random.default_rng(5)
    inside, truth = [], np.log(quadratic(STEPS))
    for _ in range(200):
        fit = fit_curve(STEPS, truth + 0.03 * rng.standard_normal(16), degree=2)
        error = log_standard_error(fit.curve, STEPS)
        inside.append(np.abs(predict_log(fit.curve, STEPS) - truth) < 2.16 * error)
    coverage = np.mean(inside)
    assert 0.88 < coverage < 0.99  # 0.95 nominal; coefficients at zero make it narrower


def test_covariance_is_unknown_when_points_do_not_determine_the_curve():
    X = np.array([[1.0, 0.5]])
    covariance = theta_covariance(X, np.array([1.0, 1.0]), np.ones(1), 0.03)
    assert np.isnan(covariance).all()
    at_bound = theta_covariance(X, np.array([1.0, 0.0]), np.ones(1), 0.03)
    assert at_bound[0, 0] == pytest.approx(0.03**2)
    assert at_bound[1, 1] == 0.0


def test_scale_is_robust_corrected_and_floored():
    z = np.array([-0.02, -0.01, 0.0, 0.01, 0.02, 5.0])
    raw = 1.4826 * np.median(np.abs(z - np.median(z)))
    assert residual_scale(z, 1, floor=0.0) == pytest.approx(raw * np.sqrt(6 / 4))
    assert residual_scale(np.zeros(4), 1, floor=0.02) == 0.02
    assert residual_scale(np.empty(0), 1, floor=0.02) == 0.02
