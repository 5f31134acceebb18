"""A few kills at random moments; ``scripts/reliability.py`` makes hundreds and writes the table."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from msgspec.json import encode
from msgspec.structs import replace
from scripts import fuzz_figures, reliability
from scripts.reliability import TRIAL_S, Case, Outcome, Victim, is_whole

from regimescope.api import resume, scan
from regimescope.plan import make_plan
from regimescope.records import Run, RunHeader, Trial
from regimescope.spec import ScanSpec
from regimescope.store import load_run


@pytest.mark.parametrize("victim", ["parent", "child"])
@pytest.mark.parametrize("seed", range(2))
def test_only_the_trial_in_flight_is_lost(tmp_path: Path, victim: Victim, seed: int) -> None:
    # Among the trials, of which there are some eighty.
    random = Random(seed)
    case = Case("simulated", victim, random.randrange(1, 60), random.uniform(0.0, TRIAL_S))
    outcome = None
    while outcome is None:  # a scan that had ended before, or has no child for a moment
        outcome = reliability.kill(case, tmp_path / "run")
    assert outcome.finished >= case.trials
    assert outcome.loads
    assert outcome.lost == 0
    assert outcome.in_flight <= 1
    assert outcome.left == 0
    assert outcome.completes, outcome.note


def test_a_run_is_whole_only_with_every_planned_trial_once(tmp_path: Path) -> None:
    spec = replace(reliability.SPECS["simulated"], isolation="auto")
    run = scan(spec, out=tmp_path / "run")
    assert is_whole(run)
    assert not is_whole(replace(run, trials=run.trials[:-1]))
    assert not is_whole(replace(run, trials=(*run.trials, run.trials[-1])))


def test_the_table_counts_and_stands_between_its_markers(tmp_path: Path) -> None:
    good = Outcome(5, 0, 1, 0, loads=True, completes=True, left=0)
    bad = Outcome(7, 2, 0, 1, loads=True, completes=False, left=3)
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- kills: begin -->\nstale\n<!-- kills: end -->\nafter\n")
    reliability.write(reliability.render({("simulated", "parent"): [good, bad]}, 4, 1), page)
    text = page.read_text()
    assert "| simulated | parent | 2 | 0 | 12 | 2 | 1 | 1 | 2 of 2 | 1 of 2 | 3 |" in text
    assert "stale" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")


def test_the_figures_of_a_fuzzer_are_read_and_a_missing_end_is_said() -> None:
    log = (
        "Done 1000000 runs in 900 second(s)\n"
        "stat::number_of_executed_units: 1000000\nstat::peak_rss_mb:  46\n"
    )
    assert "1,000,000 inputs in 900 s, 0 findings, 46 MB" in fuzz_figures.figures(log)
    assert "1 findings" in fuzz_figures.figures(log + "==1== ERROR: libFuzzer: timeout\n")
    assert "before it was done" in fuzz_figures.figures("#12 pulse\n")


def cut_before(folder: Path, trial_id: str) -> None:
    """Take a trial and whatever came after it off the disk, as a kill does."""
    lines = (folder / "trials.jsonl").read_bytes().splitlines(keepends=True)
    kept = next(k for k, line in enumerate(lines) if f'"{trial_id}"'.encode() in line)
    (folder / "trials.jsonl").write_bytes(b"".join(lines[:kept]))
    events = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "events.jsonl").write_bytes(events[0])


SPEC = ScanSpec(
    engine="simulated",
    model="smooth",
    budgets=tuple(range(16, 161, 16)),
    prompt_tokens=4,
    processes=1,
    sentinel_every=5,
    engine_options={"noise": "none"},
)


def drifting(trial: Trial, factor: float) -> Trial:
    return replace(trial, decode_s=(trial.decode_s or 0.0) * factor)


def test_a_block_whose_closing_sentinel_was_lost_is_judged_when_the_run_goes_on(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    whole = scan(SPEC, out=folder)
    closing = whole.trials[-1]
    assert closing.sentinel
    cut_before(folder, closing.trial_id)
    before = load_run(folder)
    # The last of the sentinels that are left is slower than the first by half.
    *_, last = (trial for trial in before.trials if trial.sentinel)
    slow = [drifting(t, 1.5) if t is last else t for t in before.trials]
    (folder / "trials.jsonl").write_bytes(b"".join(encode(trial) + b"\n" for trial in slow))
    after = resume(folder)
    (veto,) = (event for event in after.events if event.kind == "veto")
    assert veto.facts is not None
    assert veto.facts["shift"] == pytest.approx(1.5)
    assert {t.trial_id.endswith(".r1") for t in after.trials if not t.warmup} == {True, False}
    assert after.events[-1].kind == "done"


def test_a_lost_closing_sentinel_is_measured_and_a_steady_block_stands(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    closing = scan(SPEC, out=folder).trials[-1]
    cut_before(folder, closing.trial_id)
    after = resume(folder)
    assert after.trials[-1].trial_id == closing.trial_id
    assert [event.kind for event in after.events].count("veto") == 0
    assert is_whole(after)


def test_what_a_kill_leaves_of_a_block_is_opened_by_a_sentinel(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    whole = scan(SPEC, out=folder)
    plan = whole.header.plan
    assert plan is not None
    (process,) = plan.processes
    middle = process.trials[4]
    assert middle.counts
    cut_before(folder, middle.trial_id)
    known = {trial.trial_id for trial in load_run(folder).trials}
    after = resume(folder)
    new = [trial for trial in after.trials if trial.trial_id not in known]
    assert [trial.warmup for trial in new[:3]] == [True, False, False]
    assert [trial.sentinel for trial in new[:3]] == [False, True, False]
    assert new[1].trial_id == f"{process.trials[1].trial_id}.2"
    assert new[2].trial_id == middle.trial_id
    assert is_whole(after)


def test_a_header_without_a_plan_is_not_whole() -> None:
    bare = RunHeader(schema_version=2, run="r", created_utc="now")
    assert not is_whole(Run(header=bare, trials=()))
    planned = replace(bare, plan=make_plan(SPEC))
    assert not is_whole(Run(header=planned, trials=()))
