"""The methods compared: each turns a series into half-open index intervals that it calls slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import ruptures
from asv.step_detect import detect_steps
from benchmarks.detection.otava_process import Otava
from benchmarks.detection.penalties import binary_segmentation, capa, cost_model, standardized
from benchmarks.detection.scoring import RESIDUAL
from benchmarks.detection.segments import Interval, raised_anomalies, raised_runs, runs_above
from numpy.typing import NDArray

Array = NDArray[np.float64]

QUADRATIC_RATIO = 1.5  # the rule of thumb: slower than a fitted parabola by a half


class Series(NamedTuple):
    """What a baseline sees: raw log medians, or residuals of the package's own curve."""

    steps: Array
    y: Array
    kind: str


Detector = Callable[[Series], list[Interval]]


def quadratic_rule(series: Series) -> list[Interval]:
    """Points slower than an ordinary parabola, or than the package's curve, by a half."""
    if series.kind == RESIDUAL:
        return runs_above(series.y, float(np.log(QUADRATIC_RATIO)))
    x = series.steps / series.steps[-1]
    seconds = np.exp(series.y)
    fitted = np.polyval(np.polyfit(x, seconds, 2), x)
    positive = np.maximum(fitted, np.finfo(float).tiny)
    return runs_above(series.y - np.log(positive), float(np.log(QUADRATIC_RATIO)))


def pelt(model: str, penalty: float) -> Detector:
    """Return PELT with a cost model."""

    def run(series: Series) -> list[Interval]:
        fitted = ruptures.Pelt(custom_cost=cost_model(model), min_size=1, jump=1)
        fitted = fitted.fit(standardized(series.y))
        return raised_runs(series.y, fitted.predict(pen=penalty)[:-1])

    return run


def kernel(penalty: float) -> Detector:
    """Return the kernel method with a Gaussian kernel."""

    def run(series: Series) -> list[Interval]:
        signal = standardized(series.y).reshape(-1, 1)
        fitted = ruptures.KernelCPD(kernel="rbf", min_size=1, jump=1).fit(signal)
        return raised_runs(series.y, fitted.predict(pen=penalty)[:-1])

    return run


def step_detection(series: Series) -> list[Interval]:
    """Run asv's step detection with its own choice of penalty."""
    steps = detect_steps(series.y.tolist())
    return raised_runs(series.y, [step[0] for step in steps[1:]])


def collective_anomalies(scale: float) -> Detector:
    """Return CAPA with a penalty scale."""

    def run(series: Series) -> list[Interval]:
        signal = standardized(series.y).reshape(-1, 1)
        found = capa(scale).fit(signal).predict_segment_anomalies(signal)
        return raised_anomalies(series.y, [(int(a), int(b)) for a, b in found])

    return run


def circular(scale: float) -> Detector:
    """Return circular binary segmentation with a penalty scale."""

    def run(series: Series) -> list[Interval]:
        signal = standardized(series.y).reshape(-1, 1)
        fitted = binary_segmentation(scale).fit(signal)
        found = fitted.predict_segment_anomalies(signal)
        return raised_anomalies(series.y, [(int(a), int(b)) for a, b in found])

    return run


def otava(child: Otava, p: float) -> Detector:
    """Return Otava at a level; it sees seconds, or ratios to the curve, not logs."""

    def run(series: Series) -> list[Interval]:
        return raised_runs(series.y, child.cuts(np.exp(series.y).tolist(), p))

    return run


def baselines(penalties: dict[str, float], child: Otava | None) -> dict[str, Detector]:
    """All methods but the package's own, by name."""
    found: dict[str, Detector] = {
        "ratio > 1.5": quadratic_rule,
        "PELT l1": pelt("l1", penalties["pelt_l1"]),
        "PELT l2": pelt("l2", penalties["pelt_l2"]),
        "PELT rbf": pelt("rbf", penalties["pelt_rbf"]),
        "KernelCPD rbf": kernel(penalties["pelt_rbf"]),
        "CAPA default": collective_anomalies(1.0),
        "CAPA calibrated": collective_anomalies(penalties["capa"]),
        "CBS default": circular(2.0),
        "CBS calibrated": circular(penalties["cbs"]),
        "asv detect_steps": step_detection,
    }
    if child is not None:
        found["Otava default"] = otava(child, 0.001)
        found["Otava p = .05"] = otava(child, 0.05)
    return found
