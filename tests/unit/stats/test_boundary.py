"""Search for a boundary, to one token."""

from __future__ import annotations

import numpy as np
import pytest

from regimescope.stats.boundary import (
    Boundary,
    LabelErrors,
    adjacency_state,
    is_slow,
    label_errors,
    locate,
    split,
)

SURE = LabelErrors(0.02, 0.02)


def search(low: int, high: int, first: int, edge: str = "onset") -> Boundary:
    """Search without label errors for a sharp edge at ``first``."""
    queries: list[int] = []
    slow: list[bool] = []
    while True:
        found = locate((low, high), SURE, queries, slow, edge=edge)
        if found.next_query is None:
            return found
        queries.append(found.next_query)
        slow.append((found.next_query >= first) == (edge == "onset"))


@pytest.mark.parametrize("edge", ["onset", "recovery"])
@pytest.mark.parametrize("first", [481, 497, 511, 512])
def test_every_place_of_a_bracket_is_found(first: int, edge: str) -> None:
    found = search(480, 512, first, edge)
    assert found.estimate == first
    assert found.interval == (first - 1, first)
    assert found.exact
    assert found.trials <= 16


def test_a_recovery_mirrors_an_onset() -> None:
    queries, labels = [500, 490, 505], [True, False, True]
    onset = locate((480, 512), LabelErrors(0.05, 0.2), queries, labels)
    mirrored = locate(
        (480, 512), LabelErrors(0.2, 0.05), queries, [not x for x in labels], edge="recovery"
    )
    assert mirrored.probability == pytest.approx(onset.probability)
    assert mirrored.next_query == onset.next_query
    assert mirrored.p_slow == pytest.approx([1 - p for p in onset.p_slow])


def test_a_bracket_of_one_token_needs_no_query() -> None:
    found = locate((511, 512), SURE)
    assert (found.stopped, found.estimate, found.interval) == ("exact", 512, (511, 512))


def test_the_prior_covers_the_whole_bracket() -> None:
    found = locate((0, 100), SURE)
    assert found.probability == pytest.approx(np.full(100, 0.01))
    assert not found.done
    assert found.next_query is not None


def test_the_order_of_labels_does_not_matter() -> None:
    queries, labels = [10, 50, 30, 50], [False, True, False, False]
    forward = locate((0, 64), SURE, queries, labels)
    backward = locate((0, 64), SURE, queries[::-1], labels[::-1])
    assert forward.probability == pytest.approx(backward.probability)


def test_a_wide_transition_is_a_zone_with_a_wider_level() -> None:
    rng = np.random.default_rng(5)
    queries = np.repeat(np.arange(4, 128, 4), 3)
    chance = 1 / (1 + np.exp(-4 * (queries - 64) / 64))
    found = locate((0, 128), SURE, queries, rng.random(queries.size) < chance)
    assert found.codes == ("transition_zone",)
    assert found.level == 0.98
    assert found.expected_width > 8
    assert not found.exact
    assert 0.2 < found.p_slow[0] < found.p_slow[1] < 0.8


@pytest.mark.parametrize(("false_normal", "most"), [(0.05, 40), (0.5, 80)])
def test_contradictory_labels_stop_at_the_limit(false_normal: float, most: int) -> None:
    errors = LabelErrors(0.05, false_normal)
    queries = np.full(most - 1, 32)
    labels = np.arange(most - 1) % 2 == 0
    assert locate((0, 64), errors, queries, labels).stopped is None
    last = locate((0, 64), errors, [*queries, 32], [*labels, True])
    assert last.stopped == "limit"
    assert last.next_query is None


def test_error_rates_come_from_the_trials_and_keep_away_from_the_ends() -> None:
    control, core = [0.0] * 11 + [1.0], [1.0] * 4 + [0.0] * 2
    assert label_errors(control, core, 1.0) == pytest.approx((1.5 / 13, 2.5 / 7))
    assert label_errors([0.0] * 100, [1.0] * 100, 1.0) == (0.02, 0.02)
    assert label_errors([1.0] * 9, [0.0] * 9, 1.0) == (0.30, 0.70)
    assert label_errors([], [], 1.0) == (0.30, 0.50)


def test_labels_lie_beyond_half_the_slowdown() -> None:
    assert is_slow([0.49, 0.51, np.inf], 1.0).tolist() == [False, True, True]
    with pytest.raises(ValueError, match="positive"):
        is_slow([1.0], 0.0)


def test_one_contradiction_counts_when_labels_are_reliable() -> None:
    assert adjacency_state([False], expected_slow=False, errors=SURE) == "agrees"
    assert adjacency_state([True], expected_slow=False, errors=SURE) == "contradicts"


def test_an_unreliable_contradiction_is_repeated() -> None:
    unsure = LabelErrors(0.25, 0.25)
    assert adjacency_state([True], expected_slow=False, errors=unsure) == "repeat"
    assert adjacency_state([True, False], expected_slow=False, errors=unsure) == "agrees"
    assert adjacency_state([True] * 3, expected_slow=False, errors=unsure) == "contradicts"
    rarely = LabelErrors(0.02, 0.6)
    assert adjacency_state([False], expected_slow=True, errors=rarely) == "repeat"
    assert adjacency_state([False, True], expected_slow=True, errors=rarely) == "agrees"
    with pytest.raises(ValueError, match="at least one"):
        adjacency_state([], expected_slow=True, errors=SURE)


def test_a_contradiction_splits_the_bracket_into_two_searches() -> None:
    found = search(0, 64, 40)
    assert split(found, 20) == ((0, 20, "onset"), (20, 39, "recovery"))
    assert split(found, 50) == ((40, 50, "recovery"), (50, 64, "onset"))
    back = search(0, 64, 40, "recovery")
    assert split(back, 20) == ((0, 20, "recovery"), (20, 39, "onset"))
    for at in (0, 64, 99):
        with pytest.raises(ValueError, match="does not contradict"):
            split(found, at)


@pytest.mark.parametrize(
    ("bracket", "errors", "queries", "slow", "edge", "message"),
    [
        ((5, 5), SURE, [], [], "onset", "low < high"),
        ((0, 8), SURE, [], [], "start", "edge"),
        ((0, 8), LabelErrors(0.5, 0.5), [], [], "onset", "sum below 1"),
        ((0, 8), LabelErrors(0.0, 0.1), [], [], "onset", "positive"),
        ((0, 8), SURE, [1, 2], [True], "onset", "labels"),
        ((0, 8), SURE, [9], [True], "onset", "within"),
    ],
)
def test_bad_input_is_refused(
    bracket: tuple[int, int],
    errors: LabelErrors,
    queries: list[int],
    slow: list[bool],
    edge: str,
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message):
        locate(bracket, errors, queries, slow, edge=edge)
