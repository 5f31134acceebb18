"""What must hold for every input: order and unit of the measurements change nothing else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regimescope.stats.certificate import certificate, exact_rank_test
from regimescope.stats.curve import fit_curve
from regimescope.stats.drift import median_polish
from regimescope.stats.epidemic import EpidemicOptions, detect
from regimescope.stats.estimate import summarize_repeats
from regimescope.stats.shape import classify

QUICK = settings(max_examples=15, deadline=None)
seeds = st.integers(0, 2**32 - 1)
factors = st.floats(1e-6, 1e6)


def a_sweep(seed):
    """A sweep with up to one slow interval and ordinary noise."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(6, 18))
    steps = np.sort(rng.choice(np.arange(16, 1025, 8), n, replace=False)).astype(float)
    y = np.log(0.1 + 0.01 * steps) + 0.03 * rng.standard_t(4, n)
    start, end = np.sort(rng.choice(n + 1, 2, replace=False))
    if rng.random() < 0.6:
        y[start:end] += np.log(rng.choice([1.4, 3.0, 12.0]))
    return rng, steps, y


def run(steps, y):
    return detect(
        steps,
        y,
        repeats=np.full(len(steps), 3),
        sigma=0.03,
        degree=2,
        options=EpidemicOptions(lam=3.0),
    )


@QUICK
@given(seeds)
def test_permuting_rows_changes_nothing(seed):
    rng, steps, y = a_sweep(seed)
    order = rng.permutation(steps.size)
    one, other = run(steps, y), run(steps[order], y[order])
    assert other.intervals == one.intervals
    assert other.codes == one.codes
    assert other.ambiguous == one.ambiguous
    assert other.residual.tolist() == one.residual.tolist()


@QUICK
@given(seeds, factors)
def test_scaling_seconds_scales_only_seconds(seed, factor):
    _, steps, y = a_sweep(seed)
    one, other = run(steps, y), run(steps, y + np.log(factor))
    assert other.intervals == one.intervals
    assert other.codes == one.codes
    assert other.offsets == pytest.approx(one.offsets, abs=1e-6)
    assert other.cost == pytest.approx(one.cost, abs=1e-4)
    assert other.curve.theta == pytest.approx(factor * one.curve.theta, rel=1e-4, abs=1e-9 * factor)


@QUICK
@given(seeds, st.floats(0.01, 100.0))
def test_scaling_the_axis_changes_no_finding(seed, factor):
    _, steps, y = a_sweep(seed)
    one, other = run(steps, y), run(factor * steps, y)
    assert other.intervals == one.intervals
    assert other.cost == pytest.approx(one.cost, abs=1e-4)


@QUICK
@given(seeds)
def test_intervals_are_disjoint_slow_and_paid_for(seed):
    _, steps, y = a_sweep(seed)
    fit = run(steps, y)
    ends = [0]
    for (start, end), edges in zip(fit.intervals, fit.edges, strict=True):
        assert ends[-1] <= start < end <= steps.size
        assert edges.onset[0] < start <= edges.onset[1]
        assert edges.recovery[0] < end <= edges.recovery[1]
        ends.append(end)
    assert (fit.offsets >= np.log(1.25)).all()
    assert fit.null_cost >= fit.cost
    assert (fit.curve.theta >= 0).all()


@settings(max_examples=6, deadline=None)
@given(seeds, factors)
def test_shape_depends_on_neither_order_nor_unit(seed, factor):
    rng, steps, y = a_sweep(seed)
    order = rng.permutation(steps.size)
    given_args = {"repeats": np.full(steps.size, 3), "sigma": 0.03, "degree": 2}
    one = classify(steps, y, **given_args)
    other = classify(steps[order], y[order] + np.log(factor), **given_args)
    assert other.shape == one.shape
    assert other.codes == one.codes
    assert [p[:3] for p in other.intervals] == [p[:3] for p in one.intervals]


@QUICK
@given(seeds, factors)
def test_curve_and_certificate_scale_with_the_unit(seed, factor):
    rng, steps, y = a_sweep(seed)
    order = rng.permutation(steps.size)
    one, other = fit_curve(steps, y, degree=2), fit_curve(steps, y + np.log(factor), degree=2)
    assert other.codes == one.codes
    assert other.residual == pytest.approx(one.residual, abs=1e-5)
    ratio = certificate(steps, y).ratio
    assert certificate(steps[order], y[order] + np.log(factor)).ratio == pytest.approx(ratio)


@QUICK
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=8),
    st.lists(st.integers(0, 5), min_size=1, max_size=8),
)
def test_one_sided_p_values_are_probabilities_of_complementary_events(x, y):
    greater = exact_rank_test(x, y, alternative="greater").p_value
    less = exact_rank_test(x, y, alternative="less").p_value
    assert 0 < greater <= 1
    assert greater + less >= 1 - 1e-12  # both count the observed value
    assert exact_rank_test(y, x, alternative="less").p_value == pytest.approx(greater)


@QUICK
@given(seeds)
def test_polish_splits_the_table_exactly(seed):
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((int(rng.integers(1, 9)), int(rng.integers(1, 6))))
    table[rng.random(table.shape) < 0.2] = np.nan
    found = median_polish(table)
    rebuilt = found.row[:, None] + found.column + found.residual
    present = ~np.isnan(table)
    assert rebuilt[present] == pytest.approx(table[present])
    assert np.isnan(rebuilt[~present]).all()
    shifted = median_polish(table + 3.0)
    assert shifted.column == pytest.approx(found.column, abs=1e-5)


@QUICK
@given(seeds)
def test_summary_does_not_depend_on_the_order_of_trials(seed):
    rng = np.random.default_rng(seed)
    axis = rng.integers(1, 6, 20).astype(float)
    y = rng.standard_normal(20)
    order = rng.permutation(20)
    one, other = summarize_repeats(axis, y), summarize_repeats(axis[order], y[order])
    assert other.median.tolist() == one.median.tolist()
    assert other.sigma == pytest.approx(one.sigma, nan_ok=True)


def trials_of(seed, repeats):
    """Repeats of a clean sweep: axis and seconds of every trial, 2 % noise and some accidents."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(6, 18))
    steps = np.sort(rng.choice(np.arange(16, 1025, 8), n, replace=False)).astype(float)
    theta = 10 ** rng.uniform(-1, 0, 3)
    seconds = theta @ (steps / steps[-1]) ** np.arange(3)[:, None]
    noise = 0.02 * rng.standard_t(4, (repeats, n)) + 0.1 * (rng.random((repeats, n)) < 0.03)
    return np.tile(steps, repeats), (seconds * np.exp(noise)).ravel()


def intervals_of(axis, seconds):
    """What the detector makes of single trials."""
    summary = summarize_repeats(axis, np.log(seconds))
    return detect(
        summary.steps, summary.median, repeats=summary.repeats, sigma=summary.sigma, degree=2
    ).intervals


MANY = settings(max_examples=50, deadline=None)


@MANY
@given(seeds, st.floats(0.0, 100.0))
def test_a_constant_added_to_every_latency_never_creates_an_interval(seed, constant):
    axis, seconds = trials_of(seed, 3)
    if not intervals_of(axis, seconds):
        assert intervals_of(axis, seconds + constant * seconds.min()) == ()


@MANY
@given(seeds, st.integers(1, 6))
def test_more_clean_repeats_never_create_an_interval(seed, further):
    axis, seconds = trials_of(seed, 3 + further)
    first = 3 * np.unique(axis).size
    if not intervals_of(axis[:first], seconds[:first]):
        assert intervals_of(axis, seconds) == ()
