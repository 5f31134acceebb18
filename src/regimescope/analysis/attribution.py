"""What a slow interval of budgets follows: the budget, or the context length. Layer: ``analysis``.

Source: method, sections 1.2 and 10. If the budget only sets the number of steps, then step k of a
slow generation and step k of a longer normal one do the same work.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from regimescope.analysis.position import has_trace
from regimescope.analysis.sweep import FloatArray
from regimescope.records import Trial
from regimescope.results import Prefix, Regime, Verdict
from regimescope.stats.certificate import exact_rank_test
from regimescope.stats.position import block_medians

# Fewer processes on a side cannot reach a p value worth naming (method, 1.2).
LEAST_PROCESSES = 6
ALPHA = 0.01
# Steps count as equal up to this ratio (mechanisms, probe X).
EQUAL = math.log(1.15)
# Share of shared blocks that must be elevated for a generation to be slow from its start on.
ELEVATED_SHARE = 0.8


class _Shared(NamedTuple):
    """Step times of slow and normal generations on the steps they share.

    Attributes:
        slow: Mean of log step time over the shared blocks, one per process.
        normal: The same for larger normal budgets.
        excess: Log ratio of each shared block, shape (blocks,).
        total: Log ratio of slow totals to sums of as many steps of longer normal generations.
    """

    slow: list[float]
    normal: list[float]
    excess: FloatArray
    total: float


def in_spike(budget: int | None, regimes: Sequence[Regime]) -> bool:
    """Return whether a budget lies inside one of the slow intervals that end."""
    return any(
        r.verdict is Verdict.SPIKE
        and r.onset is not None
        and r.recovery is not None
        and r.onset[1] <= (budget or 0) < r.recovery[1]
        for r in regimes
    )


def attribute(
    regime: Regime, regimes: Sequence[Regime], trials: Sequence[Trial], positions: Sequence[Regime]
) -> Regime:
    """Return a slow interval with what its slowness follows, where the steps can tell.

    Args:
        regime: A slow interval of budgets.
        regimes: All of them.
        trials: Stamped trials of the sweep.
        positions: What is slow by context length in the steps of all trials; only intervals count,
            since single steps of a period slow every generation alike.
    """
    shared = _shared_steps(regime, regimes, trials)
    if shared is None:
        return regime
    ratio = float(np.median(shared.slow) - np.median(shared.normal))
    test = exact_rank_test(shared.slow, shared.normal)
    n = (len(shared.slow), len(shared.normal))
    prefix = Prefix(
        consistent=abs(ratio) <= EQUAL or (min(n) >= LEAST_PROCESSES and test.p_value > ALPHA),
        ratio=math.exp(ratio),
        total_ratio=math.exp(shared.total),
        p_value=test.p_value,
        n=n,
    )
    intervals = [p for p in positions if p.verdict is Verdict.SPIKE]
    return replace(regime, prefix=prefix, follows=_follows(prefix, shared, intervals))


def _follows(prefix: Prefix, shared: _Shared, positions: Sequence[Regime]) -> str | None:
    """Return what the slowness follows; ``None`` where the evidence does not agree."""
    if min(prefix.n) < LEAST_PROCESSES:
        return None
    half = math.log(prefix.ratio) / 2
    if not prefix.consistent and half > 0:
        elevated = float(np.mean(shared.excess > half))
        whole = elevated >= ELEVATED_SHARE and shared.total > half
        return "budget" if whole and not positions else None
    return "context_length" if positions else None


def _shared_steps(
    regime: Regime, regimes: Sequence[Regime], trials: Sequence[Trial]
) -> _Shared | None:
    """Collect the steps that slow generations share with longer normal ones."""
    if regime.verdict is not Verdict.SPIKE or regime.onset is None or regime.recovery is None:
        return None
    first, after = regime.onset[1], regime.recovery[1]
    traced = [t for t in trials if has_trace(t)]
    slow = [t for t in traced if first <= (t.cell.budget or 0) < after]
    longer = [t for t in traced if (t.cell.budget or 0) >= after]
    normal = [t for t in longer if not in_spike(t.cell.budget, regimes)]
    if not slow or not normal:
        return None
    slow_blocks, normal_blocks = _blocks(slow), _blocks(normal)
    length = min(b.size for b in (*slow_blocks.values(), *normal_blocks.values()))
    if length == 0:
        return None
    return _Shared(
        slow=[float(b[:length].mean()) for b in slow_blocks.values()],
        normal=[float(b[:length].mean()) for b in normal_blocks.values()],
        excess=np.median([b[:length] for b in slow_blocks.values()], axis=0)
        - np.median([b[:length] for b in normal_blocks.values()], axis=0),
        total=_against_sums(slow, normal),
    )


def _against_sums(slow: Sequence[Trial], longer: Sequence[Trial]) -> float:
    """Return the log ratio of totals to the sums of as many steps of longer generations.

    If the budget only sets the number of steps, the sum of the first steps of a longer generation
    is the total of a shorter one.
    """
    sums = [np.cumsum(trial.itl_s or ()) for trial in longer]
    ratios = []
    for trial in slow:
        steps = len(trial.itl_s or ())
        reached = [total[steps - 1] for total in sums if total.size >= steps]
        if reached:
            ratios.append(math.log(math.fsum(trial.itl_s or ()) / float(np.median(reached))))
    return float(np.median(ratios)) if ratios else 0.0


def _blocks(trials: Sequence[Trial]) -> dict[int | None, FloatArray]:
    """Return the block medians of each process, over its shortest generation."""
    by_process: dict[int | None, list[FloatArray]] = defaultdict(list)
    for trial in trials:
        by_process[trial.process_run].append(block_medians(trial.itl_s or ()))
    found: dict[int | None, FloatArray] = {}
    for process, blocks in by_process.items():
        length = min(block.size for block in blocks)
        found[process] = np.median([block[:length] for block in blocks], axis=0)
    return found
