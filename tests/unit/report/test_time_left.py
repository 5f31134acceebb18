from tests.unit.report.builders import make_trial

from regimescope.records import Cell, Plan, PlannedProcess, PlannedTrial
from regimescope.report.time_left import TimeLeft


def planned(budget, *, warmup=False):
    kind = "w" if warmup else "t"
    return PlannedTrial(
        trial_id=f"{kind}{budget}", cell=Cell(budget=budget), block=0, repeat=0, warmup=warmup
    )


def plan_of(*trials):
    return Plan(seed=0, processes=(PlannedProcess(arm="warm", trials=trials),))


def test_nothing_is_estimated_before_the_first_trial():
    left = TimeLeft(plan_of(planned(64)))
    assert left.seconds_left() is None
    assert (left.trials_left, left.share_done) == (1, 0.0)


def test_a_budget_seen_takes_what_it_took_and_another_its_share_of_tokens():
    left = TimeLeft(plan_of(planned(100, warmup=True), planned(100), planned(200), planned(300)))
    left.finish(make_trial(100, None, trial_id="w100", warmup=True, e2e_s=2.0))
    assert left.seconds_left() == 2.0 + 4.0 + 6.0


def test_one_slow_budget_does_not_slow_the_estimate_of_the_others():
    left = TimeLeft(plan_of(planned(100), planned(200), planned(300), planned(400)))
    for budget, e2e_s in ((100, 1.0), (200, 40.0), (300, 3.0)):
        left.finish(make_trial(budget, None, trial_id=f"t{budget}", e2e_s=e2e_s))
    assert left.seconds_left() == 4.0


def test_warm_ups_cost_time_but_are_no_share_of_the_plan():
    left = TimeLeft(plan_of(planned(100, warmup=True), planned(100)), done=3)
    assert (left.trials_left, left.share_done) == (1, 0.75)
    left.finish(make_trial(100, None, trial_id="w100", warmup=True, e2e_s=2.0))
    assert left.share_done == 0.75
    left.finish(make_trial(100, None, trial_id="t100", e2e_s=2.0))
    assert (left.share_done, left.seconds_left()) == (1.0, 0)


def test_a_failed_trial_is_done_but_teaches_nothing():
    left = TimeLeft(plan_of(planned(100), planned(200)))
    left.finish(make_trial(100, None, trial_id="t100"))
    assert left.share_done == 0.5
    assert left.seconds_left() is None


def test_an_empty_plan_is_done():
    assert TimeLeft().share_done == 1.0
