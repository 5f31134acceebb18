"""Processes that fall into two levels: the lottery of a start (method sections 8.3 and 8.4)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from regimescope.stats.arrays import BoolArray, IntArray, finite_vector
from regimescope.stats.estimate import Estimate, wilson_interval

LEAST_GAP = float(np.log(1.3))  # levels closer than this are scatter of one level
GAP_SIGMAS = 6.0  # a gap that noise alone makes once in millions
LEAST_POOLED = 20  # trials below which the largest gap is an accident
LEAST_PROCESSES = 2  # of each label; one slow process may be an accident
LEAST_CONSTANT = 0.9  # share of repeated processes that must keep their label
# One process on a side is an outlier, not a level. Accidents slow a run down and do not speed it
# up, so that two fast ones are a level sooner than two slow ones.
LEAST_FAST = 2
LEAST_SLOW = 4


class Lottery(NamedTuple):
    """Whether the label of one budget is drawn once per process.

    Attributes:
        bimodal: both labels in at least 2 processes, constant within 90 % of repeated ones.
        share: share of slow processes (by the majority of their trials; half a process for a
            tie rounds down) with Wilson's interval; None without processes.
        slow_processes: processes with a slow majority.
        processes: processes seen.
        repeated: processes with at least 2 trials.
        constant_share: share of repeated processes whose trials agree; None without any.
        codes: among ``single_process``, ``too_few_processes``, ``no_replication``.
    """

    bimodal: bool
    share: Estimate | None
    slow_processes: int
    processes: int
    repeated: int
    constant_share: float | None
    codes: tuple[str, ...]


class Modes(NamedTuple):
    """Both levels of a bimodal budget, which has no single one.

    Attributes:
        normal: median of the normal trials; None without any.
        slow: median of the slow trials; None without any.
        size: numbers of normal and of slow trials.
    """

    normal: float | None
    slow: float | None
    size: tuple[int, int]


class Gap(NamedTuple):
    """The widest gap between neighboring values.

    Attributes:
        width: from the value below it to the one above.
        below: number of values below it.
        middle: the level halfway.
    """

    width: float
    below: int
    middle: float


def widest_gap(values: ArrayLike, *, below: int, above: int) -> Gap | None:
    """Find the widest gap that leaves enough values on both sides.

    Args:
        values: any order, shape (n,).
        below: least number of values under it, >= 1.
        above: least number over it, >= 1.

    Returns:
        None with fewer values than both sides need.

    Raises:
        ValueError: values that are not finite, or a side that needs none.
    """
    if min(below, above) < 1:
        raise ValueError(f"a gap has a value on each side, got {below} and {above}")
    ordered = np.sort(finite_vector(values, "values"))
    if ordered.size < below + above:
        return None
    gaps = np.diff(ordered)[below - 1 : ordered.size - above]
    k = below + int(np.argmax(gaps))
    return Gap(float(gaps[k - below]), k, float((ordered[k - 1] + ordered[k]) / 2))


def is_wide(gap: Gap | None, sigma: float) -> bool:
    """Return whether a gap exceeds log 1.3 and six times a scale; NaN counts as a scale of 0."""
    noise = 0.0 if np.isnan(sigma) else sigma
    return gap is not None and gap.width > max(LEAST_GAP, GAP_SIGMAS * noise)


def level_split(levels: ArrayLike, *, least: float, floor: float) -> float | None:
    """Find the log latency between two tight levels of processes, one number for each of them.

    A slow accident scatters, a level repeats itself: hence several processes on each side, and a
    gap six times as wide as the scatter of either.

    Args:
        levels: log level of each process, shape (n,).
        least: least log ratio of the two medians that counts.
        floor: least scatter assumed of a side, log units.

    Returns:
        None if there are no two levels.

    Raises:
        ValueError: values that are not finite.
    """
    gap = widest_gap(levels, below=LEAST_FAST, above=LEAST_SLOW)
    if gap is None:
        return None
    ordered = np.sort(np.asarray(levels, dtype=np.float64))
    fast, slow = ordered[: gap.below], ordered[gap.below :]
    spread = max(float(np.std(fast, ddof=1)), float(np.std(slow, ddof=1)), floor)
    apart = float(np.median(slow) - np.median(fast))
    return None if apart < least or gap.width <= GAP_SIGMAS * spread else gap.middle


def largest_gap_split(log_latency: ArrayLike, *, sigma: float) -> float | None:
    """Level between two modes of one budget, in the middle of the largest gap.

    The gap must exceed log 1.3 and six times the scale of one trial, and leave at least 2 trials
    on each side. Fewer than 20 pooled trials have no split.

    Args:
        log_latency: trials of one budget over all processes, shape (n,).
        sigma: scale of one trial within a process, log units; NaN counts as 0.

    Returns:
        The level; trials above it are slow. None where no gap is wide enough.

    Raises:
        ValueError: values that are not finite, or a negative sigma.
    """
    values = finite_vector(log_latency, "log_latency")
    if sigma < 0:
        raise ValueError(f"sigma must not be negative, got {sigma}")
    if values.size < LEAST_POOLED:
        return None
    gap = widest_gap(values, below=LEAST_PROCESSES, above=LEAST_PROCESSES)
    return gap.middle if gap is not None and is_wide(gap, sigma) else None


def process_lottery(slow: ArrayLike, process: ArrayLike) -> Lottery:
    """Judge whether the labels of one budget follow the process.

    Args:
        slow: label of each trial, by half the log slowdown or by ``largest_gap_split``; (N,).
        process: label of each trial's process, shape (N,).

    Raises:
        ValueError: unequal lengths.
    """
    labels = np.asarray(slow, dtype=bool)
    numbers, index = np.unique(np.asarray(process), return_inverse=True)
    if labels.ndim != 1 or labels.shape != index.shape:
        raise ValueError(f"{labels.size} labels but {index.size} processes")
    if labels.size == 0:
        return Lottery(False, None, 0, 0, 0, None, ("too_few_processes",))
    counts, hits = _counts(labels, index)
    repeated = counts >= 2
    constant = (hits == 0) | (hits == counts)
    share_constant = float(constant[repeated].mean()) if repeated.any() else None
    slow_processes = int((2 * hits > counts).sum())
    # With each process of one kind the labels of a process cannot be told from those of a trial.
    both = min(int((hits > 0).sum()), int((hits < counts).sum())) >= LEAST_PROCESSES
    bimodal = both and share_constant is not None and share_constant >= LEAST_CONSTANT
    codes = {
        "single_process": numbers.size == 1,
        "too_few_processes": numbers.size < 2 * LEAST_PROCESSES,
        "no_replication": not repeated.any(),
    }
    return Lottery(
        bimodal=bool(bimodal),
        share=wilson_interval(slow_processes, numbers.size),
        slow_processes=slow_processes,
        processes=numbers.size,
        repeated=int(repeated.sum()),
        constant_share=share_constant,
        codes=tuple(code for code, holds in codes.items() if holds),
    )


def lottery_scope(bimodal: ArrayLike, control: ArrayLike) -> str:
    """Say whether a lottery belongs to some budgets or to the whole process.

    Args:
        bimodal: whether each budget is bimodal, shape (n,).
        control: whether each budget is a control, shape (n,).

    Returns:
        ``none``; ``global`` when a control flips as well, so that the lottery is reported once
        and not localized; else ``local``.

    Raises:
        ValueError: unequal lengths.
    """
    flips, controls = np.asarray(bimodal, dtype=bool), np.asarray(control, dtype=bool)
    if flips.shape != controls.shape:
        raise ValueError(f"{flips.size} budgets but {controls.size} control marks")
    if not flips.any():
        return "none"
    return "global" if (flips & controls).any() else "local"


def modes(log_latency: ArrayLike, slow: ArrayLike) -> Modes:
    """Median of each label's trials; a bimodal budget is never summarized by one number.

    Raises:
        ValueError: unequal lengths or values that are not finite.
    """
    y = finite_vector(log_latency, "log_latency")
    labels = np.asarray(slow, dtype=bool)
    if labels.shape != y.shape:
        raise ValueError(f"{y.size} trials but {labels.size} labels")
    sides = [y[~labels], y[labels]]
    normal, above = (float(np.median(side)) if side.size else None for side in sides)
    return Modes(normal, above, (sides[0].size, sides[1].size))


def _counts(labels: BoolArray, index: IntArray) -> tuple[IntArray, IntArray]:
    """Trials and slow trials of each process."""
    counts = np.bincount(index).astype(np.int64)
    hits = np.rint(np.bincount(index, weights=labels)).astype(np.int64)
    return counts, hits
