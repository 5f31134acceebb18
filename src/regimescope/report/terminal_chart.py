"""The latency curve in characters. Layer: report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from regimescope.report import thinning
from regimescope.report.display_units import TimeUnit
from regimescope.results import Point

# Rows of the plot: tall enough to tell 1.25x from 1x, short enough to leave the verdict on screen.
HEIGHT = 14
# Narrower than this the frame and its labels leave no room for a curve.
LEAST_WIDTH = 40
MEDIAN_MARK, EXPECTED_MARK = "o", "."
# Two columns of a character cell and a little; more points would only overprint each other.
_MOST_POINTS = 300
_MOST_TICKS = 6
_ASCII_FRAME = str.maketrans("─│┌┐└┘┬┴├┤┼", "-|+++++++++")


def draw_curve(
    points: Sequence[Point], unit: TimeUnit, *, width: int, ascii_only: bool
) -> str | None:
    """Draw medians and expected latencies against the swept axis, without color.

    Args:
        points: Measured points, ascending.
        unit: Unit of the vertical axis.
        width: Columns to fill.
        ascii_only: Draw the frame in ASCII.

    Returns:
        Lines of at most ``width`` columns; ``None`` for fewer than two points, too narrow a
        terminal, or where the drawing library has no build for this system.
    """
    if len(points) < 2 or width < LEAST_WIDTH:
        return None
    try:
        # Loaded on use: it brings a compiled part, which some systems have no build of.
        import plotext
    except ImportError:
        return None
    kept = thinning.keep_extremes(
        [point.x for point in points], [point.latency_s for point in points], _MOST_POINTS
    )
    figure = plotext.figure
    figure.clear.all()
    plotext.terminal.limit(False, False)
    figure.plot_size(width, HEIGHT)
    figure.theme("colorless")
    figure.legend(False)
    _draw_marks(figure, [points[index] for index in kept], unit)
    drawn: str = figure.build().string(colorless=True)
    # The figure is shared by everybody in the process who draws with this library.
    figure.clear.all()
    lines = [line.rstrip() for line in drawn.splitlines()]
    text = "\n".join(line for line in lines if line)
    return text.translate(_ASCII_FRAME) if ascii_only else text


def _draw_marks(figure: Any, points: Sequence[Point], unit: TimeUnit) -> None:
    """Draw the expectation first, so that medians lie on top, and label both axes."""
    xs, medians = [point.x for point in points], [p.latency_s * unit.factor for p in points]
    expected = [(p.x, p.expected_s * unit.factor) for p in points if p.expected_s is not None]
    if expected:
        at, height = map(list, zip(*expected, strict=True))
        figure.draw(figure.signal(at, height, marker=EXPECTED_MARK).lines())
    figure.draw(figure.signal(xs, medians, marker=MEDIAN_MARK))
    steps = min(_MOST_TICKS, len(xs))
    ticks = sorted({xs[round(k * (len(xs) - 1) / (steps - 1))] for k in range(steps)})
    figure.ruler(0, 0).ticks(ticks, [str(x) for x in ticks])
    highest = max([*medians, *(y for _, y in expected)])
    heights = _round_heights(highest)
    figure.ruler(1, 0).lim(0, max(highest, heights[-1]))
    figure.ruler(1, 0).ticks(heights, [f"{height:g}" for height in heights])


def _round_heights(highest: float) -> list[float]:
    """Return three to six round numbers from zero to just below the highest value."""
    power = 10.0 ** math.floor(math.log10(highest))
    step = next(power * part for part in (0.2, 0.5, 1, 2, 5) if highest / (power * part) < 6)
    return [step * k for k in range(int(highest / step) + 1)]
