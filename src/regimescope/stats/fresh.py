"""Fresh trials of a candidate and the tests on them (method section 5).

A candidate is compared with its own controls, measured in the same processes. Its expected
latency is the chord between the controls, which no convex curve exceeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from regimescope.stats.arrays import (
    BoolArray,
    FloatArray,
    finite_vector,
    finite_vector_like,
)
from regimescope.stats.certificate import RankTest, exact_rank_test, rank_sum_law

DECIMALS = 9  # log units; equal latencies differ by rounding of the chord, far below any timer
OPEN, AGREE, EXTEND, MISMATCH = "open", "agree", "extend", "mismatch"


@dataclass(frozen=True)
class ConfirmationRule:
    """Settings of the confirmation.

    Attributes:
        r_min: least slowdown worth a name, >= 1.
        alpha: chance of any false acceptance in a sweep, spent evenly over the looks.
        looks: numbers of blocks after which the test is done, ascending. Six blocks can reach
            the level with up to six budgets; two looks lose a quarter of the mild regimes under
            heavy noise, hence three.
        futility: p above which a budget is given up: it is no slower than its controls.
        flank_limit: log difference between the two controls from which the chord is doubted.
        flank_alpha: level of the two-sided test that turns the doubt into a veto.
    """

    r_min: float = 1.25
    alpha: float = 0.001
    looks: tuple[int, ...] = (6, 12, 24)
    futility: float = 0.5
    flank_limit: float = float(np.log(1.15))
    flank_alpha: float = 0.01


class Candidate(NamedTuple):
    """An interval that the screen suspects.

    Attributes:
        steps: tested axis values, ascending, strictly between the flanks, at least one.
        flanks: nearest normal value on each side, the controls.
        log_expected: log of the screening curve at the two flanks.
    """

    steps: tuple[float, ...]
    flanks: tuple[float, float]
    log_expected: tuple[float, float]


class FreshTrials(NamedTuple):
    """Trials measured for the confirmation alone, one row each; only those of finished blocks.

    Attributes:
        steps: axis value, shape (N,).
        log_latency: log latency; plus infinity for a timeout, which is ranked last. Shape (N,).
        block: label of the block (one process each), ascending in time, shape (N,).
    """

    steps: ArrayLike
    log_latency: ArrayLike
    block: ArrayLike


class FlankCheck(NamedTuple):
    """Whether the controls on both sides keep the same distance from the screening curve.

    Attributes:
        difference: log, median of the left less that of the right; None before it is needed.
        p_value: of the two-sided exact test; None unless the difference exceeds the limit.
        state: ``open`` (nothing accepted yet), ``agree``, ``extend`` (controls are wanted up to
            the last look) or ``mismatch`` (veto).
    """

    difference: float | None = None
    p_value: float | None = None
    state: str = OPEN


class Core(NamedTuple):
    """A maximal run of accepted values, with what brackets its edges.

    Attributes:
        candidate: index of its candidate.
        steps: accepted values, ascending.
        onset: (nearest tested value that did not pass or control, first accepted value].
        recovery: (last accepted value, nearest tested value that did not pass or control].
    """

    candidate: int
    steps: tuple[float, ...]
    onset: tuple[float, float]
    recovery: tuple[float, float]


class CoreReading(NamedTuple):
    """What the fresh trials say about a core.

    Attributes:
        log_slowdown: median excess at each value less the median control excess, shape (K,).
        core_excess: log latency less expected, of every trial at the core, shape (n,).
        control_excess: the same at both controls, shape (m,).
        delta: median log slowdown of the core.
    """

    log_slowdown: FloatArray
    core_excess: FloatArray
    control_excess: FloatArray
    delta: float


class Rows(NamedTuple):
    """Checked trials, see ``FreshTrials``."""

    steps: FloatArray
    log_latency: FloatArray
    block: FloatArray

    def of(self, seen: BoolArray) -> Rows:
        """Return the rows that a mask of shape (N,) chooses."""
        return Rows(self.steps[seen], self.log_latency[seen], self.block[seen])

    def at(self, step: float) -> FloatArray:
        """Return the log latencies at one step."""
        found: FloatArray = self.log_latency[self.steps == step]
        return found


def checked_trials(trials: FreshTrials) -> Rows:
    """Return trials as arrays.

    Raises:
        ValueError: unequal lengths, NaN, or minus infinity.
    """
    steps = finite_vector(trials.steps, "steps")
    latency = np.asarray(trials.log_latency, dtype=np.float64)
    if latency.shape != steps.shape or np.isnan(latency).any() or (latency == -np.inf).any():
        raise ValueError("log_latency needs one number per step, finite or plus infinity")
    block = finite_vector_like(trials.block, steps.size, "block")
    return Rows(steps, latency, block)


def chord(candidate: Candidate, steps: ArrayLike) -> FloatArray:
    """Log of the straight line between the expected latencies of the flanks.

    It bounds every convex curve through both ends from above.

    Args:
        candidate: its flanks and their expected latency.
        steps: axis values between the flanks, shape (K,).

    Raises:
        ValueError: values that are not finite or lie outside the flanks.
    """
    x = finite_vector(steps, "steps")
    low, high = candidate.flanks
    left, right = candidate.log_expected
    u = (x - low) / (high - low)
    if u.size and (u.min() < 0 or u.max() > 1):
        raise ValueError(f"steps must lie between the flanks {candidate.flanks}")
    with np.errstate(divide="ignore"):  # log 0 at a flank itself drops the other end
        reference: FloatArray = np.logaddexp(np.log1p(-u) + left, np.log(u) + right)
    return reference


def core_reading(
    core: Core, candidate: Candidate, trials: FreshTrials, log_expected: ArrayLike
) -> CoreReading:
    """Excess of a core and of its controls, for the slowdown interval and the edge search.

    Args:
        core: a confirmed core.
        candidate: the candidate that it belongs to.
        trials: fresh trials of the confirmation.
        log_expected: log of the curve at the steps of the core, shape (K,).

    Raises:
        ValueError: malformed input, or a step or both controls without a trial.
    """
    expected = finite_vector_like(log_expected, len(core.steps), "log_expected")
    rows = checked_trials(trials)
    at_core = [rows.at(s) - e for s, e in zip(core.steps, expected, strict=True)]
    controls = _control_excess(candidate, rows)
    control = np.concatenate(controls)
    if control.size == 0 or any(part.size == 0 for part in at_core):
        raise ValueError("a core needs trials at each of its steps and at a control")
    slowdown = np.array([np.median(part) for part in at_core]) - np.median(control)
    return CoreReading(slowdown, np.concatenate(at_core), control, float(np.median(slowdown)))


def deflated_test(candidate: Candidate, step: float, rows: Rows, r_min: float) -> RankTest:
    """Test that a value is slower than its chord by more than the margin."""
    x = rows.at(step) - chord(candidate, [step]) - np.log(r_min)
    c = np.concatenate(_control_excess(candidate, rows))
    if min(x.size, c.size) == 0:
        return RankTest(1.0, False, (x.size, c.size))
    return rank_test(x, c, "greater")


def rank_test(x: FloatArray, y: FloatArray, alternative: str) -> RankTest:
    """Exact rank test, ``greater`` or ``two-sided``; infinite values share the last rank."""
    both = np.concatenate([x, y])
    finite = both[np.isfinite(both)]
    last = float(finite.max()) + 1.0 if finite.size else 0.0
    first, second = (np.round(np.minimum(side, last), DECIMALS) for side in (x, y))
    ranks = stats.rankdata(np.concatenate([first, second]))
    if np.unique(ranks).size < ranks.size:
        return exact_rank_test(first, second, alternative=alternative)
    # Without ties the law depends on the sizes alone, and a search asks for few of them often.
    law = _untied_law(first.size, second.size)
    observed = int(ranks[: first.size].sum())
    greater, less = float(law[observed:].sum()), float(law[: observed + 1].sum())
    p = greater if alternative == "greater" else min(1.0, 2 * min(greater, less))
    return RankTest(p, False, (first.size, second.size))


@lru_cache(maxsize=256)
def _untied_law(a: int, b: int) -> FloatArray:
    """Probability of each rank sum of a values among a + b distinct ones."""
    return rank_sum_law(np.arange(1, a + b + 1), a)


def _control_excess(candidate: Candidate, rows: Rows) -> tuple[FloatArray, FloatArray]:
    left, right = (
        rows.at(flank) - expected
        for flank, expected in zip(candidate.flanks, candidate.log_expected, strict=True)
    )
    return left, right


def flank_check(
    candidate: Candidate, rows: Rows, rule: ConfirmationRule, *, last: bool
) -> FlankCheck:
    """Compare the two controls of a candidate; ask for more of them before a veto.

    Args:
        candidate: whose controls.
        rows: trials up to the look.
        rule: limit and level.
        last: no more controls can be had; judge now.
    """
    left, right = _control_excess(candidate, rows)
    if min(left.size, right.size) == 0:
        # One control alone cannot bear witness for the other.
        return FlankCheck(None, None, EXTEND)
    medians = [min(float(np.median(side)), np.finfo(float).max / 4) for side in (left, right)]
    difference = medians[0] - medians[1]
    doubtful = abs(difference) > rule.flank_limit
    if not last:
        return FlankCheck(difference, None, EXTEND if doubtful else AGREE)
    if not doubtful:
        return FlankCheck(difference, None, AGREE)
    p = rank_test(left, right, "two-sided").p_value
    return FlankCheck(difference, p, MISMATCH if p <= rule.flank_alpha else AGREE)
