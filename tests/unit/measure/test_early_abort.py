"""A slow trial is told early, a normal one is left alone, and the projection is what it says."""

from __future__ import annotations

import numpy as np
import pytest

from regimescope.measure.early_abort import SlowWatch
from regimescope.records import Expectation

EXPECTED = Expectation(base_s=0.01, slope_s=1e-6)
HELD = 65


def stamps(steps: int, slowdown: float, random: np.random.Generator) -> list[int]:
    """Stamps of a generation with autocorrelated noise and rare slow single steps."""
    noise = np.zeros(steps)
    for k in range(1, steps):
        noise[k] = 0.6 * noise[k - 1] + 0.05 * random.standard_normal()
    gaps = (0.01 + 1e-6 * (HELD + 1 + np.arange(steps))) * slowdown * np.exp(noise)
    gaps[random.random(steps) < 0.04] *= 10
    return np.concatenate([[0], np.cumsum(gaps * 1e9)]).astype(np.int64).tolist()


def decided_at(all_stamps: list[int]) -> int | None:
    watch = SlowWatch(EXPECTED, HELD)
    for tokens in range(1, len(all_stamps) + 1):
        if watch.decides(all_stamps[:tokens]):
            return tokens
    return None


def test_slow_trials_are_told_within_a_few_blocks() -> None:
    random = np.random.default_rng(1)
    for slowdown, latest in ((10.0, 41), (3.0, 41), (2.0, 73)):
        found = [decided_at(stamps(200, slowdown, random)) for _ in range(40)]
        assert all(tokens is not None and tokens <= latest for tokens in found), (slowdown, found)


def test_normal_trials_are_left_alone() -> None:
    random = np.random.default_rng(2)
    assert [decided_at(stamps(300, 1.0, random)) for _ in range(60)] == [None] * 60


def test_a_single_slow_block_does_not_decide() -> None:
    gaps = np.full(64, 10_000_000)
    gaps[16:24] *= 100
    assert decided_at(np.concatenate([[0], np.cumsum(gaps)]).tolist()) is None


def test_the_projection_is_the_expected_time_at_the_slowdown_seen() -> None:
    watch = SlowWatch(EXPECTED, HELD)
    all_stamps = stamps(100, 4.0, np.random.default_rng(3))
    for tokens in range(1, 101):
        watch.decides(all_stamps[:tokens])
    expected_s = sum(0.01 + 1e-6 * (HELD + 1 + k) for k in range(511))
    assert watch.projected_s(512) == pytest.approx(4 * expected_s, rel=0.1)


def test_steps_of_no_length_are_no_error() -> None:
    assert decided_at([0] * 100) is None
