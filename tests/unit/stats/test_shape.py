import numpy as np
import pytest

from regimescope.stats.epidemic import EpidemicOptions
from regimescope.stats.shape import ShapeOptions, classify

STEPS = np.linspace(64, 1024, 31)


def latency(steps=STEPS):
    return 0.2 + 0.01 * steps + 3e-6 * steps**2


def noise(n=31, seed=0, scale=0.02):
    return scale * np.random.default_rng(seed).standard_normal(n)


def run(y, steps=STEPS, *, degree=2, **options):
    return classify(
        steps,
        y,
        repeats=np.full(len(steps), 3),
        sigma=0.03,
        degree=degree,
        options=ShapeOptions(**options),
    )


def shifted(start, end, ratio, seed=0):
    y = np.log(latency()) + noise(seed=seed)
    y[start:end] += np.log(ratio)
    return y


def test_nothing_beats_the_curve_of_a_clean_sweep():
    found = run(np.log(latency()) + noise())
    assert found.shape == found.leading == "CLEAN"
    assert found.intervals == ()
    assert found.log_effect == 0.0
    assert min(found.costs, key=found.costs.get) == "CLEAN"


def test_an_interior_slowdown_is_a_spike():
    found = run(shifted(10, 16, 2.0))
    assert found.shape == "SPIKE"
    (part,) = found.intervals
    assert part[:3] == (10, 16, "SPIKE")
    assert np.exp(part.log_slowdown) == pytest.approx(2.0, rel=0.05)
    assert part.codes == ()
    assert found.margin > 3
    assert np.exp(found.log_effect) == pytest.approx(2.0, rel=0.05)


def test_a_lasting_slowdown_is_a_step_that_might_recover_later():
    found = run(shifted(12, 31, 2.0))
    assert found.shape == "STEP"
    assert "right_censored" in found.codes
    assert found.intervals[0][:3] == (12, 31, "STEP")
    extended = run(shifted(12, 31, 2.0), extended=True)
    assert extended.shape == "STEP"
    assert "right_censored" not in extended.codes


def test_a_recovery_without_onset_is_a_left_censored_step():
    found = run(shifted(0, 9, 2.0))
    assert found.shape == "STEP"
    assert found.leading == "STEP_LEFT"
    assert "left_censored" in found.codes
    assert found.intervals[0].codes == ("left_censored",)


def test_growth_from_a_kink_on_is_a_ramp():
    T = latency() + 0.02 * np.maximum(0, STEPS - STEPS[12])
    found = run(np.log(T) + noise())
    assert found.shape == "RAMP"
    (part,) = found.intervals
    assert abs(part.start - 12) <= 2
    assert part.end == 31


def test_growth_on_a_flat_axis_is_a_ramp_from_its_first_point():
    found = run(np.log(1 + STEPS / 1024) + noise(), degree=0)
    assert found.shape == "RAMP"
    assert found.intervals[0].start == 0
    assert run(noise(), degree=0).shape == "CLEAN"
    assert run(noise() + np.log(3) * ((STEPS > 300) & (STEPS < 500)), degree=0).shape == "SPIKE"


def test_a_known_period_is_a_sawtooth_only_when_it_is_known():
    steps = np.arange(32.0, 1025.0, 16.0)
    place = (steps % 256) / 256
    y = np.log(latency(steps) * (1 + 0.4 * place)) + noise(steps.size)
    found = run(y, steps, periods=(64.0, 256.0))
    assert found.shape == "SAWTOOTH"
    assert found.period == 256.0
    assert "period_unresolved" not in found.codes
    assert run(y, steps).shape != "SAWTOOTH"


def test_phase_moves_the_place_in_the_period():
    steps = np.arange(32.0, 1025.0, 16.0)
    place = ((steps + 100) % 256) / 256
    y = np.log(latency(steps) * (1 + 0.4 * place)) + noise(steps.size)
    right = run(y, steps, periods=(256.0,), phase=100.0).costs["SAWTOOTH"]
    wrong = run(y, steps, periods=(256.0,)).costs.get("SAWTOOTH", np.inf)
    assert right < wrong - 10


def test_a_period_with_few_points_each_is_named_unresolved():
    steps = np.arange(64.0, 1025.0, 48.0)
    y = np.log(latency(steps) + 2 * (steps % 96) / 96) + noise(steps.size)
    found = run(y, steps, periods=(96.0,))
    assert found.shape == "SAWTOOTH"
    assert "period_unresolved" in found.codes


def test_a_clean_sweep_with_known_periods_stays_clean():
    found = run(np.log(latency()) + noise(), periods=(64.0, 128.0, 256.0))
    assert found.shape == "CLEAN"


def test_effects_under_the_least_slowdown_are_clean_with_a_note():
    found = run(shifted(10, 16, 1.17))
    assert found.shape == "CLEAN"
    assert "below_margin" in found.codes
    assert found.leading == "SPIKE"
    assert found.intervals == ()


def test_shapes_that_cannot_be_told_apart_are_named():
    y = shifted(12, 31, 2.0)
    sure = run(y)
    found = run(y, margin=sure.margin + 1)
    assert found.shape == "INCONCLUSIVE"
    assert "ambiguous_shape" in found.codes
    assert found.leading == "STEP"
    assert found.runner_up in {"SPIKE", "RAMP"}
    assert found.margin == sure.margin


def test_a_step_beside_a_spike_is_attached():
    y = shifted(5, 9, 10.0)
    y[20:] += np.log(1.6)
    found = run(y)
    assert {part.shape for part in found.intervals} == {"SPIKE", "STEP"}
    assert found.intervals[0].shape == found.shape


def test_a_wide_spike_lowers_the_degree():
    steps = np.linspace(64, 1024, 12)
    y = np.log(latency(steps)) + noise(12)
    y[2:10] += np.log(10)
    found = run(y, steps)
    assert found.shape == "SPIKE"
    assert "reduced_degree" in found.codes
    assert found.baseline.degree == 1


def test_three_normal_points_do_not_carry_a_spike():
    steps = np.linspace(64, 1024, 7)
    y = np.log(latency(steps))
    y[2:6] += np.log(10)
    found = run(y, steps)
    assert found.shape == "INCONCLUSIVE"
    assert "too_few_normal_budgets" in found.codes


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_points_are_inconclusive(n):
    found = run(np.log(latency()[:n]), STEPS[:n])
    assert found.shape == "INCONCLUSIVE"
    assert "too_few_budgets" in found.codes
    assert found.costs == {}


def test_three_to_five_points_get_a_plain_reading():
    clean = run(np.log(latency()[:4]), STEPS[:4])
    assert clean.shape == "CLEAN"
    assert "too_few_budgets" in clean.codes
    y = np.log(latency()[:5])
    y[3:] += np.log(4)
    step = run(y, STEPS[:5])
    assert step.shape == "STEP"
    assert "right_censored" in step.codes
    assert step.intervals[0][:3] == (3, 5, "STEP")


def test_constant_latency_is_clean_and_flat():
    found = run(np.full(31, 0.4))
    assert found.shape == "CLEAN"
    assert {"flat_curve", "zero_spread"} <= set(found.codes)
    assert "flat_curve" not in run(np.full(31, 0.4), degree=0).codes


def test_latency_that_falls_throughout_is_not_explained():
    found = run(np.log(np.linspace(9, 2, 31)) + noise())
    assert found.shape == "INCONCLUSIVE"
    assert "not_increasing" in found.codes


def test_a_fast_point_makes_the_curve_inadmissible():
    y = np.log(latency()[:15]) + noise(15)
    y[7] -= np.log(3)
    found = run(y, STEPS[:15])
    assert "curve_inadmissible" in found.codes
    assert found.shape == "INCONCLUSIVE"


def test_scatter_that_hides_the_least_slowdown_is_named():
    found = run(np.log(latency()) + noise(scale=0.3, seed=5), detector=EpidemicOptions(lam=50.0))
    assert found.shape == "INCONCLUSIVE"
    assert "noisy" in found.codes


def test_a_long_axis_is_classified_too():
    steps = np.linspace(64, 1024, 400)
    y = np.log(latency(steps)) + noise(400)
    y[250:] += np.log(1.6)
    found = run(y, steps)
    assert found.shape == "STEP"
    assert found.intervals[0].start == 250


def test_measurements_that_are_none_are_refused():
    with pytest.raises(ValueError, match="finite"):
        run(np.full(31, np.nan))
    with pytest.raises(ValueError, match="at least one step"):
        run([], [])
