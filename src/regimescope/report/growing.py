"""The curve of a search while it grows. Layer: report."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from regimescope import axes
from regimescope.records import Trial
from regimescope.report.display_units import time_unit
from regimescope.report.terminal_chart import draw_curve
from regimescope.results import Point
from regimescope.spec import Axis


class GrowingCurve:
    """Collects trials and draws what they show so far."""

    def __init__(self) -> None:
        """Start without a trial."""
        self._seen_s: dict[int, list[float]] = defaultdict(list)

    def add(self, trial: Trial, axis: Axis = "budget") -> None:
        """Take note of a trial; warm-ups, sentinels and failures show nothing."""
        value = axes.value(trial.cell, axis)
        latency_s = trial.projected_s or axes.latency_s(trial, axis)
        if trial.warmup or trial.sentinel or value is None or latency_s is None:
            return
        self._seen_s[value].append(latency_s)

    def draw(self, *, width: int, ascii_only: bool) -> str | None:
        """Return the medians so far as text; ``None`` where there is too little of either.

        Args:
            width: Columns to fill.
            ascii_only: Draw the frame in ASCII.
        """
        points = [
            Point(x=value, latency_s=median(seen), low_s=min(seen), high_s=max(seen), n=len(seen))
            for value, seen in sorted(self._seen_s.items())
        ]
        if not points:
            return None
        unit = time_unit(point.latency_s for point in points)
        return draw_curve(points, unit, width=width, ascii_only=ascii_only)
