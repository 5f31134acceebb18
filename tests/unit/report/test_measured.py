from tests.unit.report.builders import make_conclusion, make_points, make_run, make_trial

from regimescope.records import Cell, Series
from regimescope.report import measured
from regimescope.results import Baseline


def test_warm_ups_failures_and_miscounted_trials_are_not_on_the_curve():
    run = make_run(
        (
            make_trial(480, 9.0, trial_id="good"),
            make_trial(480, 9.0, trial_id="warm-up", warmup=True),
            make_trial(480, None, trial_id="failed"),
            make_trial(480, 9.0, trial_id="short", output_tokens=100),
            make_trial(999, 9.0, trial_id="of no point"),
        )
    )
    on_curve = measured.on_curve(run, make_conclusion())
    assert [trial.trial_id for trial in on_curve.trials] == ["good"]
    assert on_curve.x.tolist() == [480]
    assert on_curve.latency_s.tolist() == [9.0]


def test_the_duration_follows_the_phase_of_the_curve():
    run = make_run((make_trial(480, 9.0),))
    for phase, latency_s in (("decode", 9.0), ("prefill", 0.1), ("mixed", 9.1), ("kernel", 9.1)):
        baseline = Baseline(phase=phase, points=make_points({480: 1.0}))
        conclusion = make_conclusion(baseline=baseline)
        assert measured.on_curve(run, conclusion).latency_s.tolist() == [latency_s]


def test_the_swept_axis_decides_the_value_of_a_trial():
    cell = Cell(budget=64, prompt_tokens=65, capacity=2048, batch=4, depth=128)
    trial = make_trial(64, 1.0, cell=cell, order_index=7)
    axes = ("budget", "prompt", "capacity", "batch", "context", "time", "nonsense")
    values = [measured.axis_value(trial, axis) for axis in axes]
    assert values == [64, 65, 2048, 4, 128, 7, None]


def test_without_points_every_measured_trial_is_shown():
    run = make_run((make_trial(3, 1.0), make_trial(5, 2.0)))
    assert measured.on_curve(run, make_conclusion(baseline=None)).x.tolist() == [3, 5]


def test_traces_are_grouped_by_value():
    run = make_run(
        (
            make_trial(5, 1.0, trial_id="a", itl_s=[0.1] * 4),
            make_trial(3, 1.0, trial_id="b", itl_s=[0.2] * 2),
            make_trial(5, 1.0, trial_id="c", itl_s=[0.3] * 4),
            make_trial(7, 1.0, trial_id="d"),
            make_trial(5, 1.0, trial_id="e", itl_s=[9.0] * 4, warmup=True),
        )
    )
    traces = measured.traces(run, "budget")
    assert [(trace.x, len(trace.gaps_s)) for trace in traces] == [(3, 1), (5, 2)]
    assert traces[1].gaps_s[1].tolist() == [0.3] * 4


def test_nested_generations_belong_to_no_context_length_and_are_told_apart_by_budget():
    series = Series(engine="hf", mode="nested")
    cell = Cell(budget=5, prompt_tokens=65, depth=0)
    run = make_run((make_trial(5, 1.0, series=series, cell=cell, itl_s=[0.1] * 4),))
    conclusion = make_conclusion(axis="context", baseline=Baseline(points=make_points({0: 0.1})))
    assert measured.on_curve(run, conclusion).trials == []
    assert measured.trace_axis(run, conclusion) == "budget"
