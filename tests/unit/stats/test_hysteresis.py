"""What a slow interval follows."""

from __future__ import annotations

import numpy as np
import pytest

from regimescope.stats.hysteresis import attribute_axis, factor_test, history_dependent


def test_arms_with_disjoint_edges_depend_on_history() -> None:
    assert history_dependent([(496, 512), (512, 520)])
    assert not history_dependent([(496, 512), (511, 520)])
    assert history_dependent([(0, 10), (5, 20), (12, 15)])
    assert not history_dependent([(496, 512)])


def test_the_published_prompts_fit_neither_axis() -> None:
    found = attribute_axis([3, 65], [(512, 624), (496, 512)], [(624, 640), (624, 640)])
    assert found.onset == (False, True)
    assert found.recovery == (True, False)
    assert found.axis is None
    assert found.codes == ("axis_mixed",)


def test_an_edge_that_stays_on_one_axis_names_it() -> None:
    budget = attribute_axis([0, 100], [(10, 12), (10, 12)], [(40, 42), (41, 43)])
    assert budget.axis == "budget"
    assert not budget.codes
    context = attribute_axis([0, 100], [(210, 212), (110, 112)], [(240, 242), (140, 142)])
    assert context.axis == "context_length"


def test_prompts_closer_than_the_intervals_decide_nothing() -> None:
    found = attribute_axis([0, 3], [(496, 512), (496, 512)], [(624, 640), (624, 640)])
    assert found.onset == (True, True)
    assert found.axis is None
    assert found.codes == ("axis_mixed",)


def design(blocks: int, effect: np.ndarray, seed: int = 1) -> tuple[np.ndarray, ...]:
    """One trial per cell and block with block effects; ``effect`` is the table of cells."""
    rng = np.random.default_rng(seed)
    block, first, second = (x.ravel() for x in np.indices((blocks, 2, 2)))
    level = effect[first, second] + rng.normal(0, 0.3, blocks)[block]
    return level + rng.normal(0, 0.03, block.size), first == 1, second == 1, block


def test_one_factor_alone_is_named() -> None:
    by_first = factor_test(*design(6, np.array([[0.0, 0.0], [2.0, 2.0]])))
    assert by_first.factor == "first"
    assert not by_first.codes
    assert by_first.first.log_effect == pytest.approx(2.0, abs=0.1)
    # All 12 differences have one sign: 2 of 4096 patterns.
    assert by_first.first.p_value == pytest.approx(2 / 4096)
    assert factor_test(*design(6, np.array([[0.0, 2.0], [0.0, 2.0]]))).factor == "second"


@pytest.mark.parametrize(
    "effect", [[[0.0, 0.0], [0.0, 2.0]], [[0.0, 1.0], [1.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]]]
)
def test_both_factors_or_none_are_mixed(effect: list[list[float]]) -> None:
    found = factor_test(*design(6, np.array(effect)))
    assert found.factor is None
    assert found.codes == ("axis_mixed",)


def test_too_few_blocks_reach_no_level() -> None:
    found = factor_test(*design(3, np.array([[0.0, 0.0], [2.0, 2.0]])))
    assert found.factor is None
    assert found.codes == ("axis_mixed", "too_few_processes")


def test_many_blocks_are_drawn_and_agree_with_themselves() -> None:
    given = design(12, np.array([[0.0, 0.0], [2.0, 2.0]]))
    found = factor_test(*given)
    assert found == factor_test(*given)
    assert found.first.p_value == pytest.approx(1e-5)


def test_incomplete_blocks_are_left_out_and_repeats_are_medians() -> None:
    y, first, second, block = design(6, np.array([[0.0, 0.0], [2.0, 2.0]]))
    assert factor_test(y[:-1], first[:-1], second[:-1], block[:-1]).blocks == 5
    tripled = factor_test(*(np.tile(x, 3) for x in (y, first, second, block)))
    assert tripled == factor_test(y, first, second, block), "copies sharpen nothing"


def test_no_effect_is_named_as_rarely_as_the_level_says() -> None:
    small = [factor_test(*design(6, np.zeros((2, 2)), seed)).first.p_value for seed in range(300)]
    share = np.mean(np.array(small) <= 0.05)
    assert share <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / 300)
    assert share >= 0.01


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="low < high"):
        history_dependent([(5, 5)])
    with pytest.raises(ValueError, match="two or more"):
        attribute_axis([3], [(1, 2)], [(3, 4)])
    with pytest.raises(ValueError, match="four combinations"):
        factor_test([0.0], [True], [True], [1])
    with pytest.raises(ValueError, match="one level"):
        factor_test([0.0, 1.0], [True], [True], [1])
