"""Adjusted p values."""

from __future__ import annotations

import numpy as np
import pytest

from regimescope.stats.multiplicity import benjamini_hochberg, holm


def test_holm_multiplies_by_what_is_left_and_never_falls() -> None:
    assert holm([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06])


def test_holm_keeps_the_given_order_and_stays_below_one() -> None:
    assert holm([0.9, 0.001, 0.8]).tolist() == pytest.approx([1.0, 0.003, 1.0])


def test_decided_hypotheses_that_enter_as_one_still_count() -> None:
    assert holm([0.001, 1.0, 1.0])[0] == pytest.approx(0.003)


def test_benjamini_hochberg_is_milder_than_holm() -> None:
    p = [0.001, 0.01, 0.02, 0.5]
    found = benjamini_hochberg(p)
    assert found.tolist() == pytest.approx([0.004, 0.02, 0.08 / 3, 0.5])
    assert (found <= holm(p)).all()


@pytest.mark.parametrize("adjust", [holm, benjamini_hochberg])
def test_nothing_to_adjust_gives_nothing(adjust: object) -> None:
    assert callable(adjust)
    assert adjust([]).size == 0


@pytest.mark.parametrize("bad", [[-0.1], [1.1], [np.nan]])
def test_numbers_that_are_no_probabilities_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="p"):
        holm(bad)
    with pytest.raises(ValueError, match="p"):
        benjamini_hochberg(bad)
