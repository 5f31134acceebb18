import json
import sys

import numpy as np
import pytest
import vl_convert
from tests.unit.report.builders import (
    make_conclusion,
    make_points,
    make_regime,
    make_run,
    make_trial,
    probe_run,
)

from regimescope.errors import MissingDependencyError
from regimescope.report import charts, themes
from regimescope.results import Baseline, Phases, Verdict


def rows_of(chart):
    """Every data row of a chart."""
    datasets = charts.definition(chart, width=600)["datasets"]
    return [row for rows in datasets.values() for row in rows]


def with_role(chart, role):
    return [row for row in rows_of(chart) if row.get("role") == role]


def traced_run(budgets=(480, 640), trials=3):
    random = np.random.default_rng(0)
    return make_run(
        tuple(
            make_trial(
                budget,
                9.0,
                trial_id=f"{budget}.{k}",
                itl_s=random.normal(0.02, 1e-3, budget - 1).tolist(),
            )
            for budget in budgets
            for k in range(trials)
        )
    )


def all_charts(run, conclusion):
    grid = charts.gap_grid(run, conclusion)
    return [
        charts.latency_chart(run, conclusion),
        charts.gap_chart(grid, "budget", "median"),
        charts.gap_chart(grid, "budget", "longest"),
        charts.phase_chart(conclusion),
    ]


@pytest.mark.parametrize("theme", themes.THEME_NAMES)
def test_every_definition_draws_in_every_theme(theme):
    for chart in all_charts(traced_run(), make_conclusion()):
        spec = charts.definition(chart, width=600)
        svg = vl_convert.vegalite_to_svg(spec, config=themes.vega_config(theme))
        assert svg.startswith("<svg")
        assert "NaN" not in svg
        assert "undefined" not in svg


def test_the_latency_chart_shows_trials_medians_expectation_and_interval():
    chart = charts.latency_chart(probe_run(), make_conclusion())
    assert len(with_role(chart, charts.TRIAL)) == 12
    assert len(with_role(chart, charts.MEDIAN)) == 12
    assert len(with_role(chart, charts.EXPECTED)) == 12
    (slow,) = with_role(chart, charts.SLOW)
    assert (slow["x"], slow["x2"]) == (512, 624)
    assert slow["class"] == "SPIKE candidate (grade C)"
    brackets = {(row["x"], row["x2"], row["edge"]) for row in with_role(chart, charts.EDGE)}
    assert (496, 512, "onset in (496, 512]") in brackets
    assert (624, 640, "recovery in (624, 640]") in brackets


def test_the_legend_explains_only_what_is_drawn():
    clean = make_conclusion(Verdict.CLEAN, regimes=())
    spec = charts.definition(charts.latency_chart(make_run(), clean), width=600)
    legends = [layer["encoding"]["color"]["legend"]["values"] for layer in spec["layer"]]
    assert legends == [[charts.MEDIAN, charts.EXPECTED]] * 2


def test_an_interval_without_recovery_reaches_the_last_point():
    conclusion = make_conclusion(regimes=(make_regime(recovery=None),))
    (slow,) = with_role(charts.latency_chart(probe_run(), conclusion), charts.SLOW)
    assert (slow["x"], slow["x2"]) == (512, 656)


def test_the_tooltip_of_a_trial_says_what_is_unknown():
    run = make_run((make_trial(480, 9.2, process_run=None, block=4, order_index=None),))
    (row,) = with_role(charts.latency_chart(run, make_conclusion()), charts.TRIAL)
    assert (row["process"], row["block"], row["order"]) == ("unknown", 4, "unknown")
    assert (row["x"], row["y"], row["shown"]) == (480, 9.2, "9.20")


def test_a_chart_of_very_many_trials_stays_light_and_keeps_the_slowest():
    random = np.random.default_rng(3)
    budgets = [480 + 16 * int(k) for k in random.integers(0, 12, 100_000)]
    trials = [
        make_trial(budget, 1.0 + float(noise), trial_id=str(k))
        for k, (budget, noise) in enumerate(zip(budgets, random.random(100_000), strict=True))
    ]
    trials[777] = make_trial(budgets[777], 500.0, trial_id="slowest")
    chart = charts.latency_chart(make_run(tuple(trials)), make_conclusion())
    rows = with_role(chart, charts.TRIAL)
    assert len(rows) <= charts.MOST_TRIALS
    assert max(row["y"] for row in rows) == 500.0
    assert len(json.dumps(charts.definition(chart, width="container"))) < 400_000


def test_a_chart_of_very_many_points_stays_light():
    values = {x: 1.0 + 0.001 * x for x in range(1, 20_001)} | {7777: 900.0}
    conclusion = make_conclusion(baseline=Baseline(points=make_points(values)))
    rows = with_role(charts.latency_chart(make_run(), conclusion), charts.MEDIAN)
    assert len(rows) <= charts.MOST_POINTS
    assert max(row["y"] for row in rows) == 900.0


def test_a_million_gaps_become_a_few_thousand_marks_and_keep_the_slow_step():
    gaps = np.full((100, 10_000), 0.01)
    gaps[63, 1234] = 2.5
    trials = tuple(
        make_trial(10_001, 100.0, trial_id=str(k), itl_s=row.tolist()) for k, row in enumerate(gaps)
    )
    grid = charts.gap_grid(make_run(trials), make_conclusion())
    assert int(grid.gaps.sum()) == 1_000_000
    rows = rows_of(charts.gap_chart(grid, "budget", "longest"))
    assert len(rows) <= charts.MOST_GAP_ROWS * charts.MOST_GAP_COLUMNS
    (spike,) = [row for row in rows if row["value"] > 100]
    assert spike["longest"] == "2,500 ms"
    assert spike["median"] == "10.0 ms"


def test_shares_of_prefill_and_decode_add_up():
    rows = rows_of(charts.phase_chart(make_conclusion()))
    assert len(rows) == 24
    for x in {row["x"] for row in rows}:
        assert sum(row["share"] for row in rows if row["x"] == x) == pytest.approx(1.0)


def test_many_shares_are_thinned():
    by_value = (*((x, 0.1) for x in range(500)), (500, 0.9))
    rows = rows_of(charts.phase_chart(make_conclusion(phases=Phases(by_value=by_value))))
    assert len(rows) <= 2 * charts.MOST_BARS
    assert max(row["share"] for row in rows if row["part"] == charts.PREFILL) == 0.9


def test_the_shares_of_a_single_value_are_no_chart():
    assert charts.phase_chart(make_conclusion(phases=Phases(by_value=((64, 0.1),)))) is None


def test_nothing_to_draw_gives_no_chart():
    nothing = make_conclusion(baseline=None, regimes=(), phases=None)
    run = make_run((make_trial(480, None),))
    assert charts.latency_chart(run, nothing) is None
    assert charts.gap_grid(run, nothing) is None
    assert charts.phase_chart(nothing) is None


def test_a_definition_names_no_host():
    chart = charts.latency_chart(probe_run(), make_conclusion())
    assert "http" not in json.dumps(charts.definition(chart, width=600))


@pytest.mark.parametrize(
    ("axis", "title"),
    [("prompt", "prompt length (tokens)"), ("batch", "batch size"), ("time", "trial")],
)
def test_other_axes_are_titled_in_their_words(axis, title):
    chart = charts.latency_chart(make_run(), make_conclusion(axis=axis))
    assert f'"{title}"' in json.dumps(charts.definition(chart, width=600))


def test_gaps_of_zero_seconds_are_drawn_on_a_linear_scale():
    run = make_run((make_trial(5, 1.0, itl_s=[0.0, 0.0, 0.5, 0.1]),))
    grid = charts.gap_grid(run, make_conclusion(baseline=None))
    chart = charts.gap_chart(grid, "budget", "median")
    spec = charts.definition(chart, width=300)
    assert spec["encoding"]["color"]["scale"]["type"] == "linear"
    assert vl_convert.vegalite_to_svg(spec).startswith("<svg")


def test_a_missing_library_names_the_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'regimescope\[report\]'"):
        charts.latency_chart(probe_run(), make_conclusion())


def contrast(one, other):
    """Contrast ratio of two colors, as WCAG 2 defines it."""

    def luminance(color):
        parts = (int(color[k : k + 2], 16) / 255 for k in (1, 3, 5))
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("theme", "paper"), [("light", "#ffffff"), ("dark", "#0f1419")])
def test_lines_points_and_text_stand_out_from_the_paper(theme, paper):
    config = themes.vega_config(theme)
    assert contrast(config["axis"]["labelColor"], paper) >= 4.5
    median, expected, trial, _, edge = config["range"]["category"]
    for color in (median, expected, trial, edge):
        assert contrast(color, paper) >= 3.0
