"""When a running trial has proved to be slow. Layer: ``measure``.

Source: method, section 11. A sequential likelihood ratio over blocks of eight steps tells a
slowdown of 2 from one of 1.1; a slow trial is told after 24 to 32 steps, a normal one ends as such
with a probability of at least 999 in 1000. The requested budget is not changed by it, since the
budget may be what makes the trial slow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from regimescope.records import Expectation
from regimescope.units import NS_PER_S

BLOCK_STEPS = 8
# The first steps after prefill differ in nature.
DROPPED_STEPS = 8
NORMAL, SLOW = math.log(1.1), math.log(2.0)
# Scatter of a block's median between trials, from the noise the rule was designed on.
BLOCK_SPREAD = 0.25
# One block alone must not decide, however slow it is.
MOST_PER_BLOCK = 3.0
THRESHOLD = math.log(1000)


class SlowWatch:
    """Watches the stamps of one generation.

    Attributes:
        decided: Whether the generation has proved slow.
    """

    def __init__(self, expectation: Expectation, held: int) -> None:
        """Start.

        Args:
            expectation: What a step takes at each context length.
            held: Context length before the first output token: depth plus prompt.
        """
        self._expectation = expectation
        self._held = held
        self._next = DROPPED_STEPS + BLOCK_STEPS
        self._evidence = 0.0
        self.decided = False
        self._log_ratios: list[float] = []

    def decides(self, stamps_ns: Sequence[int]) -> bool:
        """Return whether the steps so far prove the trial slow; cheap except at block ends.

        Args:
            stamps_ns: The stamps so far, one per output token.
        """
        if len(stamps_ns) <= self._next:
            return False
        first = self._next - BLOCK_STEPS
        gaps_s = np.diff(np.array(stamps_ns[first : self._next + 1], dtype=np.int64)) / NS_PER_S
        expected_s = self._expected_s(np.arange(first, self._next))
        self._next += BLOCK_STEPS
        log_ratio = float(np.median(np.log(np.maximum(gaps_s, 1e-9) / expected_s)))
        self._log_ratios.append(log_ratio)
        gain = (SLOW - NORMAL) / BLOCK_SPREAD**2 * (log_ratio - (NORMAL + SLOW) / 2)
        self._evidence += min(max(gain, -MOST_PER_BLOCK), MOST_PER_BLOCK)
        self.decided = self._evidence > THRESHOLD
        return self.decided

    def projected_s(self, budget: int) -> float:
        """Return the decode seconds a trial would come to at the slowdown seen so far."""
        slowdown = math.exp(float(np.median(self._log_ratios)))
        return float(self._expected_s(np.arange(budget - 1)).sum()) * slowdown

    def _expected_s(self, step: np.ndarray) -> np.ndarray:
        """Return what steps should take; step k works at ``held + 1 + k`` tokens of context."""
        context = self._held + 1 + step
        expected = self._expectation.base_s + self._expectation.slope_s * context
        return np.maximum(expected, 1e-9)
