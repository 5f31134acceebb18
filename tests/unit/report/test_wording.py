import pytest
from tests.unit.report.builders import make_conclusion, make_guarantee, make_points, make_regime

from regimescope.reasons import Reason
from regimescope.report import wording
from regimescope.report.promise import promise_sentences
from regimescope.results import Baseline, Certificate, Estimate, Grade, Verdict


def test_a_spike_of_grade_c_is_a_candidate_between_the_inner_ends_of_its_edges():
    assert wording.headline(make_conclusion()) == (
        "SPIKE candidate (grade C): budgets 512 to 624 take 11.1x the expected decode time "
        "(95 % interval 9.60x to 12.7x, n = 8); onset in (496, 512], recovery in (624, 640]."
    )


@pytest.mark.parametrize("grade", [Grade.A, Grade.B])
def test_a_confirmed_spike_is_a_regime_whose_exact_edges_are_single_values(grade):
    regime = make_regime(grade=grade, onset=(511, 512), recovery=(639, 640))
    sentence = wording.headline(make_conclusion(grade=grade, regimes=(regime,)))
    assert sentence.startswith(f"SPIKE regime (grade {grade.value}): budgets 512 to 639 take")
    assert sentence.endswith("onset at 512, recovery at 640.")


def test_regimes_come_before_candidates_and_are_counted_apart():
    candidates = [
        make_regime(onset=(100 * k, 100 * k + 10), recovery=(100 * k + 40, 100 * k + 50))
        for k in (1, 2)
    ]
    regime = make_regime(grade=Grade.A, slowdown=Estimate(value=1.5))
    sentence = wording.headline(make_conclusion(grade=Grade.A, regimes=(*candidates, regime)))
    assert sentence.startswith("SPIKE regime (grade A): budgets 512 to 624 take 1.50x")
    assert sentence.endswith("and 2 more SPIKE candidates.")


def test_the_slowest_of_several_candidates_is_named():
    mild = make_regime(onset=(1, 2), recovery=(3, 4), slowdown=Estimate(value=2.0))
    sentence = wording.headline(make_conclusion(regimes=(mild, make_regime())))
    assert sentence.startswith("SPIKE candidates (grade C): budgets 512 to 624")
    assert sentence.endswith("and 1 more SPIKE candidate.")


@pytest.mark.parametrize(
    ("changes", "where", "edges"),
    [
        (
            {"recovery": None},
            "budgets from 512 on",
            "onset in (496, 512], no recovery seen up to 656",
        ),
        ({"onset": None}, "budgets up to 624", "no onset seen down to 480, recovery in (624, 640]"),
        (
            {"onset": None, "recovery": None},
            "all budgets",
            "no onset seen down to 480, no recovery",
        ),
        (
            {"onset": (496, 512), "recovery": (512, 528)},
            "budgets 512 take",
            "recovery in (512, 528]",
        ),
    ],
)
def test_an_edge_outside_the_sweep_is_said_to_be_unseen(changes, where, edges):
    regime = make_regime(Verdict.STEP, **changes)
    sentence = wording.headline(make_conclusion(Verdict.STEP, regimes=(regime,)))
    assert sentence.startswith("STEP (grade C): ")
    assert where in sentence
    assert edges in sentence


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (Verdict.RAMP, "rise ever further above"),
        (Verdict.SAWTOOTH, "rises and falls back periodically"),
        (Verdict.BIMODAL, "slow decode time in some processes"),
    ],
)
def test_other_shapes_are_told_in_their_own_words(verdict, words):
    sentence = wording.headline(make_conclusion(verdict))
    assert words in sentence
    assert "on average 11.1x the expected (95 % interval" in sentence


def test_drift_blames_no_value():
    sentence = wording.headline(make_conclusion(Verdict.DRIFT, regimes=()))
    assert sentence == (
        "DRIFT (grade C): the machine changed its speed while measuring, so no value can be blamed."
    )


@pytest.mark.parametrize(
    ("values", "body"),
    [
        ({}, "no slow interval was found"),
        ({64: 1.0}, "no slow interval at the one budget measured, 64"),
        ({64: 1.0, 128: 2.0}, "no slow interval in 2 budgets from 64 to 128"),
    ],
)
def test_clean_says_in_what_range_nothing_was_found(values, body):
    baseline = Baseline(points=make_points(values))
    conclusion = make_conclusion(Verdict.CLEAN, grade=Grade.B, regimes=(), baseline=baseline)
    assert wording.headline(conclusion) == f"CLEAN (grade B): {body}."


def test_inconclusive_gives_its_first_reason_and_counts_the_others():
    reasons = (Reason.TOO_FEW_BUDGETS, Reason.NO_REPLICATION, Reason.SINGLE_PROCESS)
    conclusion = make_conclusion(Verdict.INCONCLUSIVE, regimes=(), reasons=reasons)
    assert wording.headline(conclusion) == (
        "INCONCLUSIVE (grade C): no verdict is possible "
        "(fewer than 6 budgets; 2 further limits below)."
    )


@pytest.mark.parametrize(
    ("origin", "remedy"),
    [
        ("search", "use a smaller --min-width or a wider --range"),
        ("plan", "measure more of them"),
        ("import", "a curve needs more of them"),
    ],
)
def test_a_remedy_is_one_that_its_reader_can_follow(origin, remedy):
    few = make_conclusion(
        Verdict.INCONCLUSIVE, axis="prompt", origin=origin, reasons=(Reason.TOO_FEW_BUDGETS,)
    )
    assert f"(fewer than 6 prompt lengths; {remedy})" in wording.headline(few)


def test_nobody_is_asked_to_repeat_what_they_did_not_measure():
    options = ("--", "repeat the scan", "doctor")
    imported = make_conclusion(Verdict.INCONCLUSIVE, origin="import")
    for reason in Reason:
        text = wording.reason_text(reason, imported)
        assert not any(option in text for option in options)
        assert "{" not in text


@pytest.mark.parametrize("axis", ["prompt", "capacity", "context"])
def test_reasons_use_the_words_of_the_axis(axis):
    conclusion = make_conclusion(Verdict.CLEAN, axis=axis)
    for reason in set(Reason) - {Reason.NO_DECODE_STEPS, Reason.INVALID_BUDGET}:
        text = wording.reason_text(reason, conclusion)
        assert "budgets" not in text, reason


def test_all_processes_are_not_some_of_them():
    share = Estimate(value=1.0, low=0.72, high=1.0, n=10)
    slow = make_regime(Verdict.BIMODAL, share=share)
    text = wording.headline(make_conclusion(Verdict.BIMODAL, regimes=(slow,)))
    assert "in every one of 10 processes (72.0 % or more of all)" in text
    assert "some" not in text


def test_edges_of_a_search_for_rare_slowness_are_said_to_be_coarse():
    guarantee = make_guarantee(prevalence=0.7)
    conclusion = make_conclusion(Verdict.SPIKE, guarantee=guarantee)
    assert "(edges not refined)" in wording.headline(conclusion)
    assert any("edges are as fine as the screen" in s for s in promise_sentences(conclusion))


@pytest.mark.parametrize("verdict", list(Verdict))
@pytest.mark.parametrize("bare", [True, False])
def test_every_verdict_gives_one_line_even_if_nothing_else_is_known(verdict, bare):
    nothing = {"regimes": (), "baseline": None, "reasons": (), "certificate": None, "phases": None}
    sentence = wording.headline(make_conclusion(verdict, **(nothing if bare else {})))
    assert sentence.startswith(verdict.value)
    assert sentence.endswith(".")
    assert sentence.isprintable()


@pytest.mark.parametrize("verdict", list(Verdict))
@pytest.mark.parametrize("bare", [True, False])
def test_nothing_of_grade_c_is_called_a_regime(verdict, bare):
    conclusion = make_conclusion(verdict, **({"regimes": ()} if bare else {}))
    assert "regime" not in wording.headline(conclusion)


@pytest.mark.parametrize(
    ("axis", "phase", "words"),
    [
        ("prompt", "prefill", "prompt lengths 512 to 624 take 11.1x the expected time to first"),
        ("capacity", "decode", "capacities 512 to 624 take"),
        ("batch", "mixed", "batch sizes 512 to 624 take 11.1x the expected latency"),
        ("flux", "decode", "values of flux 512 to 624 take"),
    ],
)
def test_every_axis_has_its_words(axis, phase, words):
    conclusion = make_conclusion(axis=axis, baseline=Baseline(phase=phase))
    assert words in wording.headline(conclusion)


def test_a_hostile_axis_name_stays_on_one_line():
    sentence = wording.headline(make_conclusion(axis="a\n\x1b[31mb\u2028c"))
    assert "a [31mb c" in sentence
    assert sentence.isprintable()


@pytest.mark.parametrize(("value", "shown"), [(1.1, False), (1.11, True)])
def test_a_certificate_that_noise_explains_is_not_mentioned(value, shown):
    conclusion = make_conclusion(certificate=Certificate(value=value, at=560, over=656))
    assert (wording.certificate_sentence(conclusion) is not None) is shown


def test_the_certificate_names_both_values():
    assert wording.certificate_sentence(make_conclusion()) == (
        "Without any curve: budget 560 takes 13.4x the decode time of the larger budget 656."
    )


def test_recurring_steps_are_described_by_their_period():
    periodic = make_regime(
        Verdict.SAWTOOTH, period=16, onset=None, recovery=None, slowdown=Estimate(value=1.5, n=60)
    )
    assert wording.headline(make_conclusion(Verdict.SAWTOOTH, regimes=(periodic,))) == (
        "SAWTOOTH (grade C): one step in every 16 is slower than the others of its cycle, 1.50x "
        "over 60 cycles."
    )
