"""Processes that fall into two levels."""

from __future__ import annotations

import numpy as np
import pytest

from regimescope.stats.lottery import (
    is_wide,
    largest_gap_split,
    level_split,
    lottery_scope,
    modes,
    process_lottery,
    widest_gap,
)


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


def test_the_widest_gap_leaves_enough_values_on_both_sides() -> None:
    gap = widest_gap([5.0, 0.0, 1.0, 2.5, 2.6], below=2, above=2)
    assert gap is not None
    assert (gap.width, gap.below, gap.middle) == (1.5, 2, 1.75)
    outer = widest_gap([0.0, 1.0, 2.5, 2.6, 5.0], below=1, above=1)
    assert outer is not None
    assert (outer.below, outer.width) == (4, pytest.approx(2.4))
    assert widest_gap([1.0, 2.0, 3.0], below=2, above=2) is None
    assert widest_gap([], below=1, above=1) is None
    equal = widest_gap([1.0, 1.0], below=1, above=1)
    assert equal is not None
    assert equal.width == 0.0
    with pytest.raises(ValueError, match="each side"):
        widest_gap([1.0, 2.0], below=0, above=1)


def test_a_gap_is_wide_beyond_both_limits() -> None:
    gap = widest_gap(np.log([1.0, 1.0, 1.5, 1.5]), below=2, above=2)
    assert is_wide(gap, 0.0)
    assert is_wide(gap, float("nan"))
    assert not is_wide(gap, 0.07)
    assert not is_wide(None, 0.0)
    assert not is_wide(widest_gap(np.log([1.0, 1.0, 1.3, 1.3]), below=2, above=2), 0.0)


def test_levels_split_where_both_sides_repeat_themselves() -> None:
    levels = np.log([1.0, 1.01, 1.5, 1.51, 1.49, 1.5])
    cut = level_split(levels, least=np.log(1.25), floor=0.02)
    assert cut is not None
    assert np.log(1.01) < cut < np.log(1.49)
    assert level_split(levels, least=np.log(2.0), floor=0.02) is None
    assert level_split(levels, least=np.log(1.25), floor=0.1) is None
    # Three slow ones are accidents, two fast ones a level.
    assert level_split(levels[:5], least=np.log(1.25), floor=0.02) is None
    assert level_split(np.zeros(6), least=np.log(1.25), floor=0.02) is None
