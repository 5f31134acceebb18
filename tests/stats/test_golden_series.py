"""Published series of arXiv 2605.08913 (figures and tables, retyped), one value per budget.

One number per budget, no repeats, no process numbers: what is found here is a candidate.
"""

import numpy as np
import pytest

from regimescope.stats.certificate import certificate
from regimescope.stats.curve import fit_curve, log_standard_error, predict_log
from regimescope.stats.epidemic import EpidemicOptions, detect
from regimescope.stats.estimate import slowdown_interval
from regimescope.stats.hysteresis import attribute_axis
from regimescope.stats.shape import ShapeOptions, classify

# GPT-2 Medium on MPS, KV cache on, 65 prompt tokens, budgets 480..656 in steps of 16.
PROBE = {
    480: 9.2, 496: 9.5, 512: 89.2, 528: 83.2, 544: 97.0, 560: 110.1,
    576: 99.9, 592: 99.2, 608: 98.9, 624: 94.4, 640: 8.8, 656: 8.2,
}  # fmt: skip
# The same model with the KV cache on and off.
CACHED = {128: 1.4, 256: 2.9, 384: 5.1, 512: 83.2, 640: 8.8, 768: 9.7}
UNCACHED = {128: 6.8, 256: 20.6, 384: 42.7, 512: 161.6, 640: 139.0, 768: 196.6}
# A T4 at three budgets, and the prompt series (65 and 3 prompt tokens).
T4_MEDIUM = {384: 6.6, 512: 9.2, 640: 11.2}
T4_LARGE = {256: 6.9, 384: 9.9, 512: 13.1}
PROMPT_65 = {496: 9.5, 512: 83.9, 624: 92.0, 640: 8.6}
PROMPT_3 = {496: 7.1, 512: 7.3, 624: 104.2, 640: 9.5}

STARTING_LAM = 5.3  # penalty that the method states for 6 points, one repeat


def axes(series):
    budgets = np.array(list(series))
    return budgets, budgets - 1.0, np.log(list(series.values()))


def detected(series, degree, lam=None):
    _, steps, y = axes(series)
    return detect(
        steps,
        y,
        repeats=np.ones(steps.size),
        sigma=float("nan"),
        degree=degree,
        options=EpidemicOptions(lam=lam),
    )


def classified(series, degree, lam=None):
    _, steps, y = axes(series)
    return classify(
        steps,
        y,
        repeats=np.ones(steps.size),
        sigma=float("nan"),
        degree=degree,
        options=ShapeOptions(detector=EpidemicOptions(lam=lam)),
    )


def budgets_of(series, fit):
    """Found intervals in budgets [first slow, first normal)."""
    budgets, _, _ = axes(series)
    return [(int(budgets[a]), int(budgets[b])) for a, b in fit.intervals]


def slowdown_of(fit):
    """Slowdown from the same values: their scatter, the curve's error, the normal points."""
    (start, end), *_ = fit.intervals
    normal = fit.residual[fit.normal]
    sigma = 1.4826 * float(np.median(np.abs(normal - np.median(normal))))
    error = log_standard_error(fit.curve, fit.steps[start:end])
    z = fit.residual[start:end]
    return slowdown_interval(z, error, sigma=sigma, controls=normal.size).slowdown


def test_admissible_curve_of_the_probe_predicts_nine_seconds_inside():
    _, steps, y = axes(PROBE)
    fit = fit_curve(steps, y, degree=2)
    assert fit.codes == ()
    assert np.exp(predict_log(fit.curve, 575.0)) == pytest.approx(9.1, abs=0.1)


@pytest.mark.parametrize("degree", [2, 3])
def test_probe_has_the_published_regime(degree):
    fit = detected(PROBE, degree)
    assert budgets_of(PROBE, fit) == [(512, 640)]
    assert fit.curve.degree == 1
    assert fit.codes == ("reduced_degree",)
    budgets, _, _ = axes(PROBE)
    (edges,) = fit.edges
    assert budgets[list(edges.onset)].tolist() == [496, 512]
    assert budgets[list(edges.recovery)].tolist() == [624, 640]


def test_probe_slowdown_is_eleven_at_the_same_budget():
    found = slowdown_of(detected(PROBE, 2))
    assert found.value == pytest.approx(11.1, abs=0.1)
    assert found.low == pytest.approx(9.6, abs=0.2)
    assert found.high == pytest.approx(12.7, abs=0.2)


def test_probe_certificate_needs_no_curve():
    budgets, steps, y = axes(PROBE)
    found = certificate(steps, y)
    inside = (budgets[:-1] >= 512) & (budgets[:-1] <= 624)
    assert found.ratio[inside].min() == pytest.approx(10.1, abs=0.05)
    assert found.ratio[inside].max() == pytest.approx(13.4, abs=0.05)
    assert budgets[found.peak_index] == 560


def test_cached_series_has_one_slow_budget():
    fit = detected(CACHED, 2)
    assert budgets_of(CACHED, fit) == [(512, 640)]
    assert slowdown_of(fit).value == pytest.approx(12.9, abs=0.1)
    assert fit.curve.degree == 2
    budgets, steps, y = axes(CACHED)
    assert budgets[list(fit.edges[0].onset)].tolist() == [384, 512]
    assert certificate(steps, y).value == pytest.approx(9.45, abs=0.01)


def test_uncached_series_has_a_mild_candidate_of_reduced_degree():
    fit = detected(UNCACHED, 3, STARTING_LAM)
    assert budgets_of(UNCACHED, fit) == [(512, 640)]
    assert slowdown_of(fit).value == pytest.approx(2.0, abs=0.05)
    assert "reduced_degree" in fit.codes
    assert fit.gains[0] == pytest.approx(5.7, abs=0.1)
    _, steps, y = axes(UNCACHED)
    assert certificate(steps, y).value == pytest.approx(1.16, abs=0.01)


def test_table_finds_what_the_stated_penalty_finds():
    assert budgets_of(UNCACHED, detected(UNCACHED, 3)) == [(512, 640)]


@pytest.mark.parametrize(("series", "degree"), [(PROBE, 2), (CACHED, 2), (UNCACHED, 3)])
def test_published_regimes_have_the_shape_of_a_spike(series, degree):
    found = classified(series, degree, STARTING_LAM)
    assert found.shape == "SPIKE"
    assert found.intervals[0].codes == ()


@pytest.mark.parametrize("series", [T4_MEDIUM, T4_LARGE])
def test_t4_has_none(series):
    found = classified(series, 2)
    assert found.shape == "CLEAN"
    assert "too_few_budgets" in found.codes


@pytest.mark.parametrize("series", [PROMPT_65, PROMPT_3])
def test_four_points_of_the_prompt_series_are_inconclusive(series):
    found = classified(series, 2)
    assert found.shape == "INCONCLUSIVE"
    assert "too_few_budgets" in found.codes


def test_prompt_series_follows_neither_budget_nor_context_length():
    edges = {65: ((496, 512), (624, 640)), 3: ((512, 624), (624, 640))}
    found = attribute_axis(
        list(edges), [onset for onset, _ in edges.values()], [end for _, end in edges.values()]
    )
    assert found.axis is None
    assert "axis_mixed" in found.codes
    assert (found.onset.budget, found.onset.context) == (False, True)
    assert (found.recovery.budget, found.recovery.context) == (True, False)
