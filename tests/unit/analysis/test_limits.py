"""Runs that drifted, broke or have too few values: what is said, and what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from regimescope.analysis.regimes import conclude
from regimescope.api import scan
from regimescope.reasons import NOTES, Reason
from regimescope.records import Event, Run
from regimescope.report.disturbances import noise_sentences
from regimescope.report.tables import point_table
from regimescope.report.wording import headline
from regimescope.results import Grade, Verdict
from regimescope.spec import ScanSpec

from .test_regimes import run_of, slow_inside, sweep, trial


def simulated(folder: Path, options: dict[str, Any], **values: Any) -> Run:
    spec = ScanSpec(engine="simulated", model="smooth", engine_options=options, **values)
    return scan(spec, out=folder / "run")


def test_blocks_that_were_vetoed_count_as_left_out(tmp_path: Path) -> None:
    """A machine that slows down from the first trial to the last measures nothing that stands."""
    run = simulated(tmp_path, {"drift_per_100_s": 1.0, "noise": "gauss"})
    assert any(event.kind == "veto" for event in run.events)
    conclusion = conclude(run)
    counted = [t for t in run.trials if not t.warmup and not t.sentinel]
    assert conclusion.counts.trials == len(counted)
    assert conclusion.counts.dropped > 0
    assert conclusion.verdict is Verdict.INCONCLUSIVE
    assert Reason.DRIFT_VETO in conclusion.reasons
    assert "the machine changed its speed" in headline(conclusion)
    assert "regimescope doctor" in headline(conclusion)
    assert any("its earlier time" in sentence for sentence in noise_sentences(conclusion))


def test_the_largest_shift_is_the_one_that_is_told(tmp_path: Path) -> None:
    run = simulated(tmp_path, {"noise": "gauss"})
    vetoes = tuple(
        Event(
            kind="veto",
            at_utc="2026-01-01T00:00:00+00:00",
            message="moved",
            reason=Reason.DRIFT_VETO,
            facts={"block": block, "shift": shift},
        )
        for block, shift in ((90, 1.2), (91, 0.5), (92, 1.6))
    )
    conclusion = conclude(replace(run, events=(*run.events, *vetoes)))
    assert conclusion.noise is not None
    assert (conclusion.noise.vetoed, conclusion.noise.veto_shift) == (3, 0.5)


@pytest.mark.parametrize("values", [(64, 128), (64, 128, 192, 256)])
def test_from_too_few_values_no_expectation_is_shown(values: tuple[int, ...]) -> None:
    trials = [trial(b, 0.01 * b * (2.5 if b == 128 else 1.0), p) for p in range(3) for b in values]
    conclusion = conclude(run_of(trials))
    assert Reason.TOO_FEW_BUDGETS in conclusion.reasons
    assert not point_table(conclusion).expected
    assert conclusion.baseline is not None
    assert conclusion.baseline.degree is None
    assert len(conclusion.baseline.points) == len(values)


def test_enough_values_show_their_expectation() -> None:
    assert point_table(conclude(run_of(sweep(slow_inside)))).expected


@pytest.mark.parametrize(
    ("source", "origin"), [("case", "import"), ("scan", "plan")], ids=["import", "scan"]
)
def test_a_conclusion_knows_who_chose_what_was_measured(source: str, origin: str) -> None:
    run = run_of(sweep())
    found = conclude(replace(run, header=replace(run.header, source=source)))
    assert found.origin == origin


def test_controls_that_disagree_are_told_on_their_own_interval_alone(tmp_path: Path) -> None:
    """A spike that ends on a step: its controls disagree, and the other spike is confirmed."""
    bands = [
        {"onset": 300, "recovery": 380, "slowdown": 4.0},
        {"onset": 600, "recovery": 700, "slowdown": 2.0},
        {"onset": 700, "slowdown": 1.22},
    ]
    conclusion = conclude(simulated(tmp_path, {"bands": bands, "noise": "gauss"}))
    confirmed, open_one = conclusion.regimes
    assert (conclusion.verdict, confirmed.grade) == (Verdict.SPIKE, Grade.A)
    assert (confirmed.onset, confirmed.recovery) == ((299, 300), (379, 380))
    assert open_one.grade is Grade.C
    assert open_one.reasons == (Reason.REFERENCE_MISMATCH,)
    assert Reason.REFERENCE_MISMATCH not in (*conclusion.reasons, *confirmed.reasons)


def test_the_last_veto_of_a_block_does_not_promise_another_attempt(tmp_path: Path) -> None:
    run = simulated(tmp_path, {"drift_per_100_s": 1.0, "noise": "gauss"})
    messages = [event.message for event in run.events if event.kind == "veto"]
    assert all("measured again" in message for message in messages[:-1])
    assert "given up" in messages[-1]


def test_a_missing_verdict_names_first_what_withholds_it(tmp_path: Path) -> None:
    run = simulated(tmp_path, {"noise": "none"}, budgets=(64, 96, 128), processes=1)
    measured = [
        replace(t, reasons=[Reason.CLIENT_SIDE_TIMES, Reason.MISSING_PROCESS_RUN])
        for t in run.trials
    ]
    failing = [t if t.cell.budget != 96 else replace(t, status="failed") for t in measured]
    conclusion = conclude(replace(run, trials=failing))
    assert conclusion.verdict is Verdict.INCONCLUSIVE
    notes = [reason in NOTES for reason in conclusion.reasons]
    assert notes == sorted(notes)
    assert {True, False} == set(notes)
    assert "network" not in headline(conclusion)
