"""Confirmation of candidates: looks, flanks, cores, and replay."""

from __future__ import annotations

import numpy as np
import pytest

from regimescope.stats.confirm import (
    Candidate,
    Confirmation,
    ConfirmationRule,
    FreshTrials,
    chord,
    confirm,
    core_reading,
)

FLAT = Candidate((20.0, 30.0, 40.0), (10.0, 50.0), (0.0, 0.0))


def trials(
    blocks: int, slow: dict[float, float], *, seed: int = 1, sd: float = 0.02
) -> FreshTrials:
    """Blocks over all values of FLAT on a flat curve, slow by the given log amounts."""
    rng = np.random.default_rng(seed)
    steps = np.tile([10.0, 20.0, 30.0, 40.0, 50.0], blocks)
    level = np.array([slow.get(step, 0.0) for step in steps.tolist()])
    noise = rng.normal(0, sd, steps.size)
    return FreshTrials(steps, level + noise, np.repeat(np.arange(blocks), 5))


def states(found: Confirmation) -> list[str]:
    return [budget.state for budget in found.budgets]


def test_before_the_first_look_everything_is_wanted_and_open() -> None:
    found = confirm([FLAT], trials(5, {20: 1, 30: 1, 40: 1}))
    assert states(found) == ["undecided"] * 3
    assert (found.looks, found.next_look, found.p_value) == (0, 6, 1.0)
    assert found.wanted == (10, 20, 30, 40, 50)
    assert not found.done
    assert not found.cores


def test_no_trials_at_all_wait_for_the_first_look() -> None:
    assert confirm([FLAT], FreshTrials([], [], [])).next_look == 6


def test_no_candidates_are_done_at_once() -> None:
    found = confirm([], FreshTrials([], [], []))
    assert found.done
    assert found.p_value == 1.0


def test_a_twofold_interval_is_accepted_at_the_first_look() -> None:
    found = confirm([FLAT], trials(6, {20: 0.7, 30: 0.7, 40: 0.7}))
    assert states(found) == ["accepted"] * 3
    assert found.done
    assert found.looks == 1
    (core,) = found.cores
    assert core.steps == (20, 30, 40)
    assert (core.onset, core.recovery) == ((10, 20), (40, 50))
    # 6 against 12 values, all above: 1 / 18 564, three budgets, three looks.
    assert found.budgets[0].p_value == pytest.approx(1 / 18564)
    assert found.p_value == pytest.approx(9 / 18564)


def test_a_slowdown_below_the_margin_is_never_accepted() -> None:
    found = confirm([FLAT], trials(24, {20: 0.1, 30: 0.1, 40: 0.1}))
    assert states(found) == ["futile"] * 3
    assert found.done
    assert not found.cores


def test_a_normal_value_between_slow_ones_makes_two_cores() -> None:
    found = confirm([FLAT], trials(24, {20: 0.7, 40: 0.7}))
    assert states(found) == ["accepted", "futile", "accepted"]
    assert [core.steps for core in found.cores] == [(20,), (40,)]
    assert [core.recovery for core in found.cores] == [(20, 30), (40, 50)]
    assert found.cores[1].onset == (30, 40)


def test_decided_values_are_no_longer_wanted_but_their_controls_are() -> None:
    rule = ConfirmationRule(futility=1.0)
    found = confirm([FLAT], trials(6, {30: 0.7}), rule=rule)
    assert states(found) == ["undecided", "accepted", "undecided"]
    assert found.wanted == (10, 20, 40, 50)
    assert found.next_look == 12
    assert not found.cores, "a neighbor may still join the core"


def test_values_still_open_after_the_last_look_end_the_core() -> None:
    rule = ConfirmationRule(futility=1.0)
    found = confirm([FLAT], trials(24, {30: 0.7}), rule=rule)
    assert found.done
    assert found.cores[0].onset == (20, 30)


def test_the_state_after_a_look_reads_the_blocks_up_to_it_only() -> None:
    early = trials(6, {20: 0.7, 30: 0.7})
    later = trials(11, {20: 5.0, 30: -5.0}, seed=2)
    keep = np.asarray(later.block) >= 6
    joined = FreshTrials(
        np.concatenate([early.steps, np.asarray(later.steps)[keep]]),
        np.concatenate([early.log_latency, np.asarray(later.log_latency)[keep]]),
        np.concatenate([early.block, np.asarray(later.block)[keep]]),
    )
    assert confirm([FLAT], joined).budgets == confirm([FLAT], early).budgets


def test_the_order_of_rows_does_not_matter() -> None:
    given = trials(12, {20: 0.4, 30: 0.35})
    order = np.random.default_rng(3).permutation(60)
    mixed = FreshTrials(*(np.asarray(column)[order] for column in given))
    assert confirm([FLAT], mixed) == confirm([FLAT], given)


def test_fewer_than_six_processes_give_p_and_accept_nothing() -> None:
    found = confirm([FLAT], trials(5, {20: 1, 30: 1, 40: 1}), final=True)
    assert states(found) == ["undecided"] * 3
    assert found.budgets[0].p_value == pytest.approx(1 / 3003)
    assert found.codes == ("too_few_processes",)
    assert found.done
    assert not found.cores


def test_unequal_controls_ask_for_more_controls_and_then_veto() -> None:
    step = {20: 0.9, 30: 0.9, 40: 0.9, 50: 0.4}
    first = confirm([FLAT], trials(6, step))
    assert "accepted" in states(first)
    assert first.flanks[0].state == "extend"
    assert not first.cores
    last = confirm([FLAT], trials(24, step))
    assert last.flanks[0].state == "mismatch"
    assert last.codes == ("reference_mismatch",)
    assert last.done
    assert not last.cores
    assert last.p_value == 1.0


def test_extended_controls_alone_are_looked_at_again_at_the_next_look() -> None:
    step = {20: 1.5, 30: 1.5, 40: 1.5, 50: 0.4}
    found = confirm([FLAT], trials(6, step))
    assert states(found) == ["accepted"] * 3
    assert found.next_look == 12
    assert found.wanted == (10, 50)
    # A difference that persists is no reason for a veto before the last look.
    again = confirm([FLAT], trials(12, step))
    assert again.flanks[0].state == "extend"
    assert again.next_look == 24


def test_unequal_controls_that_agree_in_the_end_are_forgiven() -> None:
    early = trials(6, {20: 1.5, 30: 1.5, 40: 1.5, 50: 0.2})
    late = trials(24, {20: 1.5, 30: 1.5, 40: 1.5}, seed=4)
    keep = np.asarray(late.block) >= 6
    joined = FreshTrials(
        *(np.concatenate([a, np.asarray(b)[keep]]) for a, b in zip(early, late, strict=True))
    )
    assert confirm([FLAT], early).flanks[0].state == "extend"
    found = confirm([FLAT], joined)
    assert found.flanks[0].state == "agree"
    assert len(found.cores) == 1


def test_doubted_controls_without_further_processes_confirm_nothing() -> None:
    found = confirm([FLAT], trials(6, {20: 1.5, 30: 1.5, 40: 1.5, 50: 0.2}, sd=0.3), final=True)
    doubted = found.flanks[0].state in {"extend", "mismatch"}
    assert doubted == (not found.cores)
    assert found.done


def test_two_candidates_share_a_flank_and_the_correction() -> None:
    left = Candidate((20.0,), (10.0, 30.0), (0.0, 0.0))
    right = Candidate((40.0,), (30.0, 50.0), (0.0, 0.0))
    found = confirm([left, right], trials(6, {20: 0.7, 40: 0.7}))
    assert [core.candidate for core in found.cores] == [0, 1]
    assert found.budgets[0].adjusted == pytest.approx(2 / 18564)


def test_timeouts_rank_last_on_either_side() -> None:
    given = trials(6, {20: 0.7, 30: 0.7, 40: 0.7})
    latency = np.array(given.log_latency)
    steps = np.asarray(given.steps)
    latency[steps == 30] = np.inf
    hung = FreshTrials(given.steps, latency, given.block)
    assert states(confirm([FLAT], hung)) == ["accepted"] * 3
    latency[np.isin(steps, [10.0, 50.0])] = np.inf
    assert "accepted" not in states(confirm([FLAT], FreshTrials(steps, latency, given.block)))


def test_a_value_without_any_trial_stays_open() -> None:
    given = trials(6, {20: 0.7, 40: 0.7})
    keep = np.asarray(given.steps) != 30
    found = confirm([FLAT], FreshTrials(*(np.asarray(column)[keep] for column in given)))
    assert states(found) == ["accepted", "undecided", "accepted"]


def test_equal_latencies_confirm_nothing_and_name_the_timer() -> None:
    steps = np.tile([10.0, 20.0, 50.0], 6)
    single = Candidate((20.0,), (10.0, 50.0), (0.0, 0.0))
    rule = ConfirmationRule(r_min=1.0)
    found = confirm([single], FreshTrials(steps, np.zeros(18), np.repeat(range(6), 3)), rule=rule)
    assert states(found) == ["futile"]
    assert found.codes == ("tied_timer",)


def test_the_chord_bounds_a_convex_curve_and_meets_it_at_the_flanks() -> None:
    x = np.linspace(10, 50, 41)
    curve = np.log(1 + x + 0.1 * x**2)
    bent = Candidate((20.0,), (10.0, 50.0), (float(curve[0]), float(curve[-1])))
    reference = chord(bent, x)
    assert (reference >= curve - 1e-12).all()
    assert reference[[0, -1]] == pytest.approx(curve[[0, -1]])


def test_the_chord_survives_latencies_far_from_one_second() -> None:
    far = Candidate((20.0,), (10.0, 50.0), (-800.0, 800.0))
    assert chord(far, [20.0])[0] == pytest.approx(800 + np.log(0.25))


def test_a_core_reading_gives_slowdown_and_excess() -> None:
    given = trials(6, {20: 0.7, 30: 0.8, 40: 0.9})
    (core,) = confirm([FLAT], given).cores
    reading = core_reading(core, FLAT, given, [0.0, 0.0, 0.0])
    assert reading.log_slowdown == pytest.approx([0.7, 0.8, 0.9], abs=0.05)
    assert reading.delta == pytest.approx(0.8, abs=0.05)
    assert (reading.core_excess.size, reading.control_excess.size) == (18, 12)
    with pytest.raises(ValueError, match="needs trials"):
        core_reading(core, FLAT, FreshTrials([20.0], [0.0], [0]), [0.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        (Candidate((), (10.0, 50.0), (0.0, 0.0)), "ascend"),
        (Candidate((10.0,), (10.0, 50.0), (0.0, 0.0)), "ascend"),
        (Candidate((30.0, 20.0), (10.0, 50.0), (0.0, 0.0)), "ascend"),
        (Candidate((20.0,), (10.0, 50.0), (0.0, float("nan"))), "finite"),
    ],
)
def test_malformed_candidates_are_refused(candidate: Candidate, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        confirm([candidate], FreshTrials([], [], []))


def test_a_value_in_two_candidates_and_bad_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="one candidate"):
        confirm([FLAT, FLAT], FreshTrials([], [], []))
    with pytest.raises(ValueError, match="log_latency"):
        confirm([FLAT], FreshTrials([10.0], [np.nan], [0]))
    with pytest.raises(ValueError, match="looks"):
        confirm([FLAT], FreshTrials([], [], []), rule=ConfirmationRule(looks=(6, 6)))
    with pytest.raises(ValueError, match="r_min"):
        confirm([FLAT], FreshTrials([], [], []), rule=ConfirmationRule(r_min=0.9))
