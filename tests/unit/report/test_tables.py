import pytest
from tests.unit.report.builders import (
    PROBE,
    make_conclusion,
    make_points,
    make_regime,
    make_run,
    make_trial,
    probe_run,
)

from regimescope.reasons import Reason
from regimescope.records import Event
from regimescope.report import tables
from regimescope.results import Baseline, Grade, Verdict


def long_conclusion(first_slow, last_slow, n=200):
    values = {x: 9.0 if first_slow <= x <= last_slow else 1.0 for x in range(n)}
    regime = make_regime(onset=(first_slow - 1, first_slow), recovery=(last_slow, last_slow + 1))
    baseline = Baseline(points=make_points(values, expected_s=1.0))
    return make_conclusion(regimes=(regime,), baseline=baseline)


def test_points_share_one_unit_and_slow_ones_are_marked():
    table = tables.point_table(make_conclusion())
    assert table.unit.name == "s"
    assert [row.x for row in table.rows if row.slow] == [str(x) for x in PROBE if 512 <= x <= 624]
    first = table.rows[0]
    assert (first.median, first.expected, first.slowdown) == ("9.20", "9.00", "1.02x")
    assert table.omitted == 0


def test_a_cut_table_keeps_slow_points_their_neighbors_and_both_ends():
    table = tables.point_table(long_conclusion(50, 57), most=20)
    shown = [int(row.x) for row in table.rows]
    assert len(shown) == 20
    assert shown == sorted(shown)
    assert table.omitted == 180
    assert {0, 199, *range(49, 59)} <= set(shown)
    # The rest is spread over the sweep instead of piling up at its start.
    assert sum(x > 100 for x in shown) >= 4


def test_more_slow_points_than_rows_keep_the_edges():
    table = tables.point_table(long_conclusion(20, 180), most=20)
    shown = [int(row.x) for row in table.rows]
    assert len(shown) == 20
    assert {0, 19, 20, 180, 181, 199} <= set(shown)


def test_the_slowest_point_survives_a_cut():
    values = dict.fromkeys(range(300), 1.0) | dict.fromkeys(range(100, 250), 9.0) | {173: 50.0}
    conclusion = make_conclusion(
        regimes=(make_regime(onset=(99, 100), recovery=(249, 250)),),
        baseline=Baseline(points=make_points(values)),
    )
    assert "173" in {row.x for row in tables.point_table(conclusion, most=10).rows}


@pytest.mark.parametrize("most", [4, 7, 20, 199, 200, 500])
def test_a_cut_table_never_exceeds_its_bound(most):
    table = tables.point_table(long_conclusion(60, 90), most=most)
    assert len(table.rows) == min(most, 200)
    assert len({row.x for row in table.rows}) == len(table.rows)


def test_a_conclusion_without_a_baseline_has_no_points():
    assert tables.point_table(make_conclusion(baseline=None)).rows == []


def test_an_interval_with_unseen_edges_says_so():
    regime = make_regime(
        Verdict.STEP, grade=Grade.B, recovery=None, slowdown=None, peak=None, lost_s=None
    )
    row = tables.regime_rows(make_conclusion(Verdict.STEP, regimes=(regime,)))[0]
    assert (row.kind, row.grade, row.values) == ("STEP", "B", "from 512 on")
    assert (row.onset, row.recovery) == ("in (496, 512]", "not seen")
    assert (row.slowdown, row.basis, row.peak, row.lost) == ("-", "", "-", "-")


def test_slow_points_of_an_open_interval_reach_the_end():
    regime = make_regime(Verdict.STEP, recovery=None)
    table = tables.point_table(make_conclusion(Verdict.STEP, regimes=(regime,)))
    assert [row.x for row in table.rows if row.slow] == [str(x) for x in PROBE if x >= 512]


def test_reasons_of_verdict_and_intervals_stand_once():
    regime = make_regime(reasons=(Reason.NO_REPLICATION, Reason.NO_CONTROL))
    rows = tables.reason_rows(make_conclusion(regimes=(regime,)))
    assert [code for code, _ in rows] == ["no_replication", "single_process", "no_control"]
    assert rows[2][1] == "no normal budget on one side of the slow interval"


def test_counts_name_warm_ups_and_processes():
    trials = [make_trial(64, 1.0, process_run=k, trial_id=str(k)) for k in range(2)]
    run = make_run((*trials, make_trial(64, 1.0, warmup=True)))
    assert tables.counts_text(run, make_conclusion()) == (
        "12 trials measured, 0 failed, 0 left out, 1 warm-up, in 2 process runs"
    )


def test_failed_trials_keep_their_message_as_plain_text():
    failed = make_trial(512, None, message="out of\nmemory \x1b[31m<b>", trial_id="[red]x[/red]")
    rows = tables.failed_rows(make_run((make_trial(64, 1.0), failed)), make_conclusion())
    assert rows == [("[red]x[/red]", "512", "failed", "out of memory [31m<b>")]


def test_routine_events_are_left_out_and_the_last_of_many_are_shown():
    events = [Event(kind="process_start", at_utc="t", message="ready")] + [
        Event(kind="skip", at_utc="t", message=f"skip {k}", reason=Reason.BACKEND_FAILURES)
        for k in range(60)
    ]
    run = make_run(events=events)
    assert len(tables.notable_events(run)) == 60
    rows = tables.event_rows(run, most=2)
    assert [row.message for row in rows] == ["skip 58", "skip 59"]
    assert rows[0].meaning == "more than a third of the trials of some budget failed"


def test_facts_show_the_unit_of_their_name_and_skip_what_is_absent():
    facts = {
        "memory_bytes": 36_000_000_000,
        "warm_up_s": 3.0,
        "clock_hz": 3_700_000_000,
        "power_w": 12.345,
        "swap_bytes": None,
        "empty": "",
        "cores": 14,
        "fast": True,
        "list": [1, 2],
        "nested": {"a_b": "x\ny"},
    }
    assert tables.fact_rows(facts) == [
        ("memory", "36.0 GB"),
        ("warm up", "3.00 s"),
        ("clock", "3,700 MHz"),
        ("power", "12.3 W"),
        ("cores", "14"),
        ("fast", "yes"),
        ("list", "1, 2"),
        ("nested: a b", "x y"),
    ]


def test_header_facts_cover_model_settings_and_host():
    header = probe_run().header
    assert ("model", "gpt2-medium") in tables.model_rows(header)
    assert ("weights", "random") in tables.model_rows(header)
    assert ("prompt tokens", "65") in tables.setting_rows(header)
    assert ("torch", "2.8.0") in tables.host_rows(header)


def test_an_import_has_few_facts_and_no_settings():
    header = make_run(spec=None, model=None, host=None, versions={}).header
    assert tables.model_rows(header) == []
    assert tables.setting_rows(header) == []
    assert tables.host_rows(header) == []


def test_phases_say_what_is_known():
    assert tables.phase_sentences(make_conclusion(phases=None)) == []
    assert tables.phase_sentences(make_conclusion()) == [
        "prefill takes 0.2 % of the time",
        "median TTFT 100 ms (80.0 ms to 110 ms, n = 12)",
        "median TPOT 160 ms (13.0 ms to 200 ms, n = 12)",
    ]


def test_a_negative_value_of_a_named_unit_is_shown_as_it_is():
    assert tables.fact_rows({"offset_s": -1.0}) == [("offset s", "-1.0")]
