"""Memory against latency: what leaves its line with it, and what cannot explain it."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace
from tests.unit.analysis.test_compare import conclusion, regime
from tests.unit.report.builders import make_trial

from regimescope.analysis.memory import memory_readings
from regimescope.report.disturbances import memory_sentences
from regimescope.results import Verdict

GRID = range(128, 1025, 64)
SLOW = regime(onset=(448, 512), recovery=(640, 704))


def trials(random, jump=1.0, processes=2, kinds=("reserved",)):
    """Trials whose memory grows with the budget, and by a factor inside the interval."""
    return [
        replace(
            make_trial(budget, 1.0, process_run=process, trial_id=f"{process}-{budget}"),
            memory_bytes={
                kind: int(
                    (1e9 + 1e6 * budget)
                    * (jump if kind == "reserved" and 512 <= budget <= 640 else 1.0)
                    * (1 + 0.002 * random.standard_normal())
                )
                for kind in kinds
            },
        )
        for process in range(processes)
        for budget in GRID
    ]


@pytest.mark.parametrize(("jump", "behavior"), [(1.0, "smooth"), (2.0, "higher"), (0.5, "lower")])
def test_a_reading_is_held_against_the_line_through_its_neighbors(jump, behavior):
    for seed in range(20):
        (found,) = memory_readings(trials(np.random.default_rng(seed), jump), [SLOW], "budget")
        assert found.behavior == behavior
        assert found.ratio.value == pytest.approx(jump, rel=0.02)
        assert found.ratio.n == 6


def test_each_kind_is_told_and_one_may_move_while_another_does_not():
    random = np.random.default_rng(1)
    found = memory_readings(trials(random, 2.0, kinds=("live", "reserved")), [SLOW], "budget")
    assert {one.kind: one.behavior for one in found} == {"live": "smooth", "reserved": "higher"}
    told = replace(conclusion(SLOW), memory=found)
    assert memory_sentences(told) == [
        "memory at 512 to 640 against the line through the values around: live on it (1.00x), "
        f"reserved above it ({found[1].ratio.value:.2f}x); other kinds were not recorded"
    ]


def test_a_single_reading_off_the_line_is_no_change():
    some = trials(np.random.default_rng(1))
    at = next(k for k, t in enumerate(some) if t.cell.budget == 576)
    some[at] = replace(some[at], memory_bytes={"reserved": 10**10})
    assert memory_readings(some, [SLOW], "budget")[0].behavior == "smooth"


@pytest.mark.parametrize(
    "interval",
    [
        regime(onset=None),
        regime(recovery=None, verdict=Verdict.STEP),
        regime(onset=(64, 128), recovery=(640, 704)),
        regime(onset=(530, 540), recovery=(550, 560)),
        regime(verdict=Verdict.BIMODAL),
    ],
)
def test_without_values_on_both_sides_and_inside_there_is_no_line(interval):
    assert memory_readings(trials(np.random.default_rng(1)), [interval], "budget") == ()


def test_trials_without_readings_say_nothing():
    bare = [make_trial(budget, 1.0) for budget in GRID]
    assert memory_readings(bare, [SLOW], "budget") == ()
    assert memory_readings([], [SLOW], "budget") == ()
    assert memory_sentences(conclusion(SLOW)) == []
