"""Disturbances in sentences: only what is known, each with its interval."""

from __future__ import annotations

from msgspec.structs import replace
from tests.unit.report.builders import make_conclusion, make_regime

from regimescope.report.disturbances import cause_sentences, noise_sentences
from regimescope.results import Estimate, Grade, Noise, Prefix, Regime, Verdict


def test_nothing_known_gives_no_sentence():
    assert noise_sentences(make_conclusion()) == []
    assert noise_sentences(replace(make_conclusion(), noise=Noise())) == []
    assert cause_sentences(make_conclusion()) == []


def test_every_figure_is_told_with_its_interval():
    noise = Noise(
        within=0.02,
        between=0.15,
        drift=Estimate(value=1.3, low=1.2, high=1.4, n=40),
        warm_up=Estimate(value=5.0),
        observer=Estimate(value=1.01, low=0.99, high=1.02, n=36),
        vetoed=1,
    )
    assert noise_sentences(replace(make_conclusion(), noise=noise)) == [
        "spread: 2.0 % within a process, 15.0 % between processes",
        "drift over a process run: 1.30x (1.20x to 1.40x, n = 40)",
        "first generation against later ones: 5.00x",
        "stamping every token against not: 1.01x (0.99x to 1.02x, n = 36)",
        "1 block dropped because the machine changed its speed",
    ]


def test_what_an_interval_follows_is_told_with_its_grounds():
    prefix = Prefix(consistent=False, ratio=11.0, p_value=0.00216, n=(6, 6))
    regime = replace(make_regime(Verdict.SPIKE), follows="budget", prefix=prefix)
    (sentence,) = cause_sentences(make_conclusion(regimes=(regime,)))
    assert "follows the budget or the state it brings about" in sentence
    assert "11.0x as long, p = 0.0022, 6 against 6 processes" in sentence


def test_what_the_steps_show_is_told_with_the_rest():
    periodic = Regime(
        verdict=Verdict.SAWTOOTH, grade=Grade.C, period=128, slowdown=Estimate(value=1.5, n=7)
    )
    interval = Regime(verdict=Verdict.SPIKE, grade=Grade.C, onset=(399, 400), recovery=(479, 480))
    found = cause_sentences(make_conclusion(regimes=(), positions=(interval, periodic)))
    assert found == [
        "steps at context lengths 400 to 479 are slow",
        "one step in every 128 is slower than the others of its cycle (1.50x)",
    ]


def test_the_largest_shift_of_vetoed_blocks_is_told():
    noise = Noise(vetoed=4, veto_shift=1.62)
    assert noise_sentences(make_conclusion(noise=noise)) == [
        "4 blocks dropped because the machine changed its speed: "
        "a repeated small trial took 1.62x its earlier time"
    ]
