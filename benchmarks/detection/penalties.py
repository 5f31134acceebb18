"""Penalties of the baselines, from simulated sweeps without any change.

ruptures has no default penalty, and the defaults of skchange are meant for long series. Each is
set so that a tenth of Gaussian series of the benchmark's length raises an alarm: the same screening
rate as that of the package's own detector. The seed is not that of the evaluation.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from ruptures.base import BaseCost
from ruptures.costs import cost_factory
from skchange.detectors import CAPA, CircularBinarySegmentation
from skchange.tuning import calibrate_penalty_scale_fwer

Array = NDArray[np.float64]

SEED = 20260601
LENGTH = 31  # budgets of the screen
ALARM_RATE = 0.1
NULLS = 400  # a standard error of 1.5 points on the alarm rate
NULLS_SKCHANGE = 99  # one null takes up to 25 fits


def standardized(y: Array) -> Array:
    """Center a series on its median and divide by a scale that levels do not inflate.

    The scale comes from differences of neighbors, 0.02 at least, as in the package's detector.
    """
    spread = 1.4826 * float(np.median(np.abs(np.diff(y)))) / np.sqrt(2)
    scaled: Array = (y - np.median(y)) / max(spread, 0.02)
    return scaled


def capa(scale: float = 1.0) -> CAPA:
    """CAPA with point anomalies and segments of any length."""
    return CAPA(penalty_scale=scale, include_point_anomalies=True, max_segment_length=LENGTH)


def binary_segmentation(scale: float = 2.0) -> CircularBinarySegmentation:
    """Circular binary segmentation that may return single points; its own default scale is 2."""
    return CircularBinarySegmentation(penalty_scale=scale, min_subinterval_length=1)


def cost_model(name: str) -> BaseCost:
    """Cost of ruptures that also takes single points, which its l1 cost by itself refuses."""
    cost: BaseCost = cost_factory(name)
    cost.min_size = 1
    return cost


def critical_penalty(cost: Callable[[int, int], float], n: int) -> float:
    """Least penalty per cut at which the best segmentation of a series has no cut.

    The largest saving per cut over all numbers of cuts, from exact segmentations.
    """
    table = np.full((n + 1, n + 1), np.inf)
    for start in range(n):
        for end in range(start + 1, n + 1):
            table[start, end] = cost(start, end)
    best = table[0]
    saving = [0.0]
    for cuts in range(1, n):
        best = np.min(best[:, None] + table, axis=0)
        saving.append((table[0, n] - best[n]) / cuts)
    return max(saving)


def load_penalties(path: Path) -> dict[str, float]:
    """Penalties by method, simulated on the first call and kept in a file."""
    if path.exists():
        stored: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
        return stored
    rng = np.random.default_rng(SEED)
    found = {}
    for model in ("l1", "l2", "rbf"):
        drawn = []
        for _ in range(NULLS):
            series = standardized(rng.standard_normal(LENGTH))
            cost = cost_model(model).fit(series.reshape(-1, 1))
            drawn.append(critical_penalty(cost.error, LENGTH))
        found[f"pelt_{model}"] = float(np.quantile(drawn, 1 - ALARM_RATE))

    def null(_: Array | None, length: int, source: np.random.Generator) -> Array:
        return standardized(source.standard_normal(length)).reshape(-1, 1)

    for name, detector in (("capa", capa()), ("cbs", binary_segmentation())):
        scale = calibrate_penalty_scale_fwer(
            detector,
            LENGTH,
            1,
            X=np.zeros((LENGTH, 1)),  # asked for, not used: the null is drawn
            sampler=null,
            level=ALARM_RATE,
            n_simulations=NULLS_SKCHANGE,
            random_state=SEED,
        )
        found[name] = float(scale)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return found
