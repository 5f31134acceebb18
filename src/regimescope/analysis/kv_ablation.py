"""What the KV cache buys at each budget, and where it stops buying it. Layer: ``analysis``.

Two runs of the same plan, one with the cache and one without. The speed-up grows with the budget,
since a step without a cache reads the whole text; inside a regime of the cached run it collapses.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np

from regimescope.analysis.compare import INTERVALS, Judged, core
from regimescope.analysis.sweep import primary_series, select, to_sweep
from regimescope.analysis.unlike import refuse_unlike
from regimescope.errors import InputError
from regimescope.reasons import Reason
from regimescope.records import Run
from regimescope.results import Estimate, Result
from regimescope.stats.estimate import ratio_of_groups

# An interval needs two levels on either side.
LEAST_PROCESSES = 2


class SpeedUp(Result, frozen=True, kw_only=True):
    """Latency without the cache over latency with it, at one value of the axis.

    Attributes:
        x: The value.
        ratio: The speed-up; its interval is that of process runs, its ``n`` their number in both.
    """

    x: int
    ratio: Estimate


class KvAblation(Result, frozen=True, kw_only=True):
    """What the KV cache buys.

    Attributes:
        cached: Name of the run with the cache.
        uncached: Name of the run without it.
        axis: The swept axis of both.
        speed_ups: At every value that both measured, ascending.
        collapsed: Values inside a slow interval of the cached run where the speed-up is below that
            of the nearest values outside, intervals apart.
        falling: Neighboring values of which the run without the cache is slower at the
            smaller one, beyond the interval: no growing work explains that.
    """

    cached: str
    uncached: str
    axis: str
    speed_ups: tuple[SpeedUp, ...]
    collapsed: tuple[int, ...] = ()
    falling: tuple[tuple[int, int], ...] = ()


def kv_ablation(cached: Judged, uncached: Judged) -> KvAblation:
    """Compare a run with the KV cache and one without.

    Args:
        cached: The run with the cache, and its verdict.
        uncached: The run without it.

    Raises:
        InputError: They differ in more than the cache, not in it, or share no value.
    """
    refuse_unlike(cached.run, uncached.run, besides=("kv_cache",))
    found = {name: _caches(one.run) for name, one in (("on", cached), ("off", uncached))}
    if found != {"on": {"on"}, "off": {"off"}}:
        raise InputError(
            Reason.MIXED_SERIES,
            f"{cached.run.header.run} must have its KV cache on and {uncached.run.header.run} off.",
            remedy="Measure the second with --kv-cache off, and name the cached run first.",
        )
    on, off = _levels(cached.run), _levels(uncached.run)
    speed_ups = tuple(
        SpeedUp(x=x, ratio=_ratio(on[x], off[x])) for x in sorted(on.keys() & off.keys())
    )
    if not speed_ups:
        raise InputError(
            Reason.TOO_FEW_BUDGETS,
            "The runs share no value of the axis.",
            remedy="Measure both with the same --budgets.",
        )
    return KvAblation(
        cached=cached.conclusion.run,
        uncached=uncached.conclusion.run,
        axis=cached.conclusion.axis,
        speed_ups=speed_ups,
        collapsed=_collapsed(speed_ups, cached),
        falling=_falling(off),
    )


def _caches(run: Run) -> set[str | None]:
    """Return the settings of the cache in a run."""
    return {t.cell.kv_cache for t in select(primary_series(run)).trials}


def _levels(run: Run) -> dict[int, list[float]]:
    """Return the level of each process at each value of the axis, as logarithms of seconds."""
    selection = select(primary_series(run))
    if not selection.trials:
        return {}
    sweep = to_sweep(selection, run.header.axis)
    logs: dict[tuple[int, str, int | None], list[float]] = defaultdict(list)
    for trial, x, seconds in zip(selection.trials, sweep.x, sweep.latency_s, strict=True):
        logs[int(x), trial.occasion, trial.process_run].append(float(np.log(seconds)))
    levels: dict[int, list[float]] = defaultdict(list)
    for (x, *_), found in logs.items():
        levels[x].append(float(np.median(found)))
    return levels


def _ratio(before: list[float], after: list[float]) -> Estimate:
    """Return the ratio of two levels, with an interval where there are processes for one."""
    n = len(before) + len(after)
    if min(len(before), len(after)) < LEAST_PROCESSES:
        return Estimate(value=float(np.exp(np.mean(after) - np.mean(before))), n=n)
    found = ratio_of_groups(before, after)
    return Estimate(value=found.value, low=found.low, high=found.high, n=n)


def _collapsed(speed_ups: tuple[SpeedUp, ...], cached: Judged) -> tuple[int, ...]:
    """Return the slow values whose speed-up is below that of both neighbors outside."""
    cores = [core(r) for r in cached.conclusion.regimes if r.verdict in INTERVALS]
    outside = [s for s in speed_ups if not any(low <= s.x <= high for low, high in cores)]
    found = []
    for one in speed_ups:
        if one in outside:
            continue
        beside = [
            max((s for s in outside if s.x < one.x), key=lambda s: s.x, default=None),
            min((s for s in outside if s.x > one.x), key=lambda s: s.x, default=None),
        ]
        near = [s.ratio for s in beside if s is not None]
        top = one.ratio.high if one.ratio.high is not None else one.ratio.value
        if near and all(top < (r.low if r.low is not None else r.value) for r in near):
            found.append(one.x)
    return tuple(found)


def _falling(levels: dict[int, list[float]]) -> tuple[tuple[int, int], ...]:
    """Return neighboring values where latency falls beyond its interval."""
    values = sorted(x for x, found in levels.items() if len(found) >= LEAST_PROCESSES)
    return tuple(
        (a, b) for a, b in pairwise(values) if ratio_of_groups(levels[a], levels[b]).high < 1
    )
