"""Processes that fall into two levels."""

from __future__ import annotations

import numpy as np
import pytest

from regimescope.stats.lottery import largest_gap_split, lottery_scope, modes, process_lottery


def test_labels_that_follow_the_process_are_a_lottery() -> None:
    slow = [True] * 6 + [False] * 9
    found = process_lottery(slow, np.repeat(range(5), 3))
    assert found.bimodal
    assert not found.codes
    assert (found.slow_processes, found.processes, found.repeated) == (2, 5, 5)
    assert found.share is not None
    assert found.share.value == pytest.approx(0.4)
    assert found.constant_share == 1.0


def test_labels_that_change_within_processes_are_none() -> None:
    found = process_lottery([True, False] * 10, np.repeat(range(10), 2))
    assert not found.bimodal
    assert found.constant_share == 0.0


def test_nine_of_ten_constant_processes_are_enough_and_eight_are_not() -> None:
    slow = np.repeat([True] * 5 + [False] * 5, 2)
    slow[0] = False
    assert process_lottery(slow, np.repeat(range(10), 2)).bimodal
    slow[2] = False
    assert not process_lottery(slow, np.repeat(range(10), 2)).bimodal


def test_one_slow_process_is_an_accident() -> None:
    assert not process_lottery(
        np.repeat([True, False, False, False], 3), np.repeat(range(4), 3)
    ).bimodal


def test_without_repeats_the_process_cannot_be_told_from_the_trial() -> None:
    found = process_lottery([True, True, False, False], range(4))
    assert not found.bimodal
    assert found.codes == ("no_replication",)
    assert found.constant_share is None


def test_one_process_or_none_says_so() -> None:
    assert process_lottery([True, False], [7, 7]).codes == ("single_process", "too_few_processes")
    nothing = process_lottery([], [])
    assert nothing.share is None
    assert nothing.codes == ("too_few_processes",)


def test_the_split_lies_in_the_middle_of_the_gap() -> None:
    values = np.concatenate([np.linspace(0, 0.1, 15), np.linspace(1.1, 1.2, 5)])
    assert largest_gap_split(values, sigma=0.02) == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("values", "sigma"),
    [
        (np.r_[np.zeros(14), np.ones(5)], 0.0),  # 19 trials
        (np.r_[np.zeros(15), np.full(5, 0.25)], 0.0),  # below log 1.3
        (np.r_[np.zeros(15), np.ones(5)], 0.2),  # below six times the scale
        (np.r_[np.zeros(19), np.ones(1)], 0.0),  # a single accident
        (np.zeros(30), np.nan),
    ],
)
def test_no_split_without_a_clear_gap(values: np.ndarray, sigma: float) -> None:
    assert largest_gap_split(values, sigma=sigma) is None


def test_a_control_that_flips_makes_the_lottery_global() -> None:
    assert lottery_scope([True, False], [False, True]) == "local"
    assert lottery_scope([True, True], [False, True]) == "global"
    assert lottery_scope([False, False], [False, True]) == "none"
    assert lottery_scope([], []) == "none"


def test_both_modes_are_given_and_never_one_mean() -> None:
    assert modes([0.0, 0.2, 1.0], [False, False, True]) == (pytest.approx(0.1), 1.0, (2, 1))
    assert modes([0.0], [False]).slow is None


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="labels"):
        process_lottery([True], [1, 2])
    with pytest.raises(ValueError, match="marks"):
        lottery_scope([True], [])
    with pytest.raises(ValueError, match="labels"):
        modes([1.0], [])
    with pytest.raises(ValueError, match="sigma"):
        largest_gap_split([1.0], sigma=-1.0)
