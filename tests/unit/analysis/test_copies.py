"""The same measurement under several ids is no replication."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.analysis.test_regimes import run_of, slow_inside, sweep

from regimescope.analysis.regimes import conclude
from regimescope.reasons import Reason


@pytest.mark.parametrize("copies", [2, 5])
@pytest.mark.parametrize("seed", range(4))
def test_copied_trials_sharpen_nothing_and_are_named(copies: int, seed: int) -> None:
    trials = [replace(t, start_ns=1000 * k) for k, t in enumerate(sweep(slow_inside, seed=seed))]
    copied = [replace(t, trial_id=f"{t.trial_id}.c{c}") for t in trials for c in range(copies)]
    once, often = conclude(run_of(trials)), conclude(run_of(copied))
    assert often.regimes == once.regimes
    assert often.baseline == once.baseline
    assert Reason.POSSIBLE_DUPLICATES in often.reasons
    assert Reason.POSSIBLE_DUPLICATES not in once.reasons
    assert often.counts.dropped == (copies - 1) * len(trials)


def test_equal_rows_without_a_start_are_named_and_kept() -> None:
    trials = sweep()
    twin = replace(trials[3], trial_id="twin")
    found = conclude(run_of([*trials, twin]))
    assert Reason.POSSIBLE_DUPLICATES in found.reasons
    assert found.counts.dropped == 0


def test_two_trials_of_one_process_with_equal_seconds_both_count() -> None:
    trials = [
        replace(t, start_ns=1000 * k, decode_s=0.01 * (t.cell.budget or 0))
        for k, t in enumerate(sweep())
    ]
    again = [replace(t, trial_id=f"{t.trial_id}.b", start_ns=(t.start_ns or 0) + 1) for t in trials]
    found = conclude(run_of(trials + again))
    assert Reason.POSSIBLE_DUPLICATES not in found.reasons
    assert found.counts.dropped == 0
