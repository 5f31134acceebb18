"""Confirmation where a process is slow only sometimes (method section 5, prevalence below 1).

Deflated by the margin, the normal processes of a mixture rank below the controls, so that the
rank test has no power when fewer than about 60 % of processes are slow. Counts of slow labels
have it, with one trial per process.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from regimescope.stats.arrays import finite_vector
from regimescope.stats.boundary import is_slow
from regimescope.stats.estimate import Estimate, wilson_interval

MIXTURE_ALPHA = 0.001  # a level of its own, beside that of the rank tests
CONTROLS_PER_TRIAL = 2  # both flanks are visited wherever the candidate is
SCREEN_MISS = 0.10  # twice the chance that no repeat of the screen meets a slow process
MIXTURE_POWER = 0.96
MOST_PROCESSES = 500  # enough for a share of 2.5 %; more is beyond what a run can afford


class MixtureTest(NamedTuple):
    """Counts of slow processes at a candidate against its controls.

    Attributes:
        slow: slow trials at the candidate.
        trials: trials there.
        control_slow: slow trials at the controls.
        control_trials: trials there.
        p_value: Fisher's exact test, one-sided.
        accepted: p at most the level.
        share: share of slow processes at the candidate with Wilson's interval.
    """

    slow: int
    trials: int
    control_slow: int
    control_trials: int
    p_value: float
    accepted: bool
    share: Estimate


def mixture_test(
    candidate_excess: ArrayLike,
    control_excess: ArrayLike,
    delta: float,
    *,
    alpha: float = MIXTURE_ALPHA,
) -> MixtureTest:
    """Test that more processes are slow at a candidate than at its controls.

    The candidate and ``delta`` come from the screen: chosen from the same trials they would make
    the p value too small.

    Args:
        candidate_excess: log latency less expected, one trial per process, shape (n,).
        control_excess: the same at both flanks, shape (m,).
        delta: log slowdown of slow processes; a trial is slow beyond half of it.
        alpha: level of the test.

    Raises:
        ValueError: an empty side, values that are not finite, or delta not positive.
    """
    there = is_slow(finite_vector(candidate_excess, "candidate_excess"), delta)
    control = is_slow(finite_vector(control_excess, "control_excess"), delta)
    if min(there.size, control.size) == 0:
        raise ValueError("a mixture test needs trials at the candidate and at its controls")
    k, c = int(there.sum()), int(control.sum())
    p = _fisher_greater(k, there.size, c, control.size)
    share = wilson_interval(k, there.size)
    return MixtureTest(k, there.size, c, control.size, p, p <= alpha, share)


def screen_repeats(prevalence: float, *, miss: float = SCREEN_MISS) -> int:
    """Trials per budget, in different processes, of a screen that looks for a mixture.

    ``ceil(log(miss / 2) / log(1 - prevalence))``: half of the miss for the screen, half for the
    test after it.

    Raises:
        ValueError: a prevalence outside (0, 1], or a miss outside (0, 1).
    """
    _check_prevalence(prevalence)
    if not 0 < miss < 1:
        raise ValueError(f"miss must lie between 0 and 1, got {miss}")
    if prevalence == 1:
        return 1
    return max(1, math.ceil(math.log(miss / 2) / math.log1p(-prevalence)))


@lru_cache(maxsize=64)
def mixture_trials(
    prevalence: float, *, power: float = MIXTURE_POWER, alpha: float = MIXTURE_ALPHA
) -> int:
    """Processes that a mixture test needs at the candidate, with twice as many control trials.

    Power is that of Fisher's test when no control is slow. It saws with the number of processes;
    the answer is the first number that reaches it.

    Raises:
        ValueError: a prevalence outside (0, 1], a power or level outside (0, 1), or a prevalence
            so small that 500 processes do not do.
    """
    _check_prevalence(prevalence)
    if not (0 < power < 1 and 0 < alpha < 1):
        raise ValueError(f"power and alpha must lie between 0 and 1, got {power} and {alpha}")
    needed = 1
    for n in range(1, MOST_PROCESSES + 1):
        # The count needed never falls as processes are added.
        while needed <= n and _fisher_greater(needed, n, 0, CONTROLS_PER_TRIAL * n) > alpha:
            needed += 1
        if needed <= n and stats.binom.sf(needed - 1, n, prevalence) >= power:
            return n
    raise ValueError(f"a prevalence of {prevalence} needs more than {MOST_PROCESSES} processes")


def _fisher_greater(slow: int, trials: int, control_slow: int, control_trials: int) -> float:
    """Chance of this many slow trials at the candidate or more, given the total of slow ones."""
    total = slow + control_slow
    return float(stats.hypergeom.sf(slow - 1, trials + control_trials, total, trials))


def _check_prevalence(prevalence: float) -> None:
    if not 0 < prevalence <= 1 or not np.isfinite(prevalence):
        raise ValueError(f"prevalence must lie in (0, 1], got {prevalence}")
