"""Rates of the position detector: correlated noise, spikes to 20x, bursts, fixed seeds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from regimescope.stats.position import Profile, position_profile, slow_positions

TOKENS, PROMPT, RUNS = 1024, 16, 5


def traces(rng: np.random.Generator, ratio: float = 1.0, zone: tuple[int, int] = (0, 0)) -> Profile:
    """Profile of five runs with AR(1) noise, 4 % spikes, and a burst in one of ten runs."""
    context = PROMPT + np.arange(TOKENS)
    level = np.log(0.01 + 4e-6 * context)
    level = level + np.log(ratio) * ((context >= zone[0]) & (context < zone[1]))
    runs = []
    for _ in range(RUNS):
        noise = lfilter([1.0], [1.0, -0.6], rng.normal(0, 0.03, TOKENS))
        noise += np.log(rng.uniform(1.5, 20, TOKENS)) * (rng.random(TOKENS) < 0.04)
        if rng.random() < 0.1:
            start = int(rng.integers(0, TOKENS - 100))
            noise[start : start + 100] += np.log(3)
        runs.append(np.exp(level + noise))
    return position_profile(runs, [PROMPT] * RUNS)


@pytest.mark.parametrize("ratio", [1.5, 2.0, 10.0])
def test_slow_stretches_are_found_to_one_block(ratio: float) -> None:
    rng = np.random.default_rng(31)
    for _ in range(6):
        start = int(rng.integers(200, 500))
        end = start + int(rng.integers(64, 300))
        profile = traces(rng, ratio, (start, end))
        fit = slow_positions(profile)
        # A block that an edge cuts in two has a level of its own and may stand apart, touching.
        parts = np.array(fit.intervals)
        assert parts.size
        assert (parts[1:, 0] == parts[:-1, 1]).all()
        assert abs(profile.context[parts[0, 0]] - start) <= 8
        assert abs(profile.context[parts[-1, 1]] - end) <= 8
        widest = int(np.argmax(parts[:, 1] - parts[:, 0]))
        assert np.exp(fit.offsets[widest]) == pytest.approx(ratio, rel=0.1)


def test_clean_traces_have_no_slow_stretch() -> None:
    rng = np.random.default_rng(32)
    for _ in range(15):
        assert not slow_positions(traces(rng)).intervals
