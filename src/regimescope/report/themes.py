"""Vega configurations for light and dark surroundings. Layer: report.

Categories follow Okabe and Ito's palette, which people with the common kinds of color blindness
can tell apart; every line and point keeps a contrast of 3:1 or more against its background.
The ramp has one direction of lightness, so that it survives gray printing as well.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class _Palette(NamedTuple):
    """Colors of one surrounding.

    Attributes:
        ink: Text.
        line: Axes and grid.
        categories: By role: median, expected, single trial, slow, edge; decode and prefill take
            the first two.
    """

    ink: str
    line: str
    categories: list[str]


_PALETTES = {
    "light": _Palette(
        ink="#24292f",
        line="#d0d7de",
        categories=["#0072b2", "#b85c00", "#57606a", "#cc79a7", "#8b3a70"],
    ),
    "dark": _Palette(
        ink="#d7dee6",
        line="#3d444d",
        categories=["#56b4e9", "#e69f00", "#9aa4af", "#cc79a7", "#e8a9cd"],
    ),
}

THEME_NAMES = tuple(_PALETTES)


def vega_config(theme: str) -> dict[str, Any]:
    """Return the Vega-Lite ``config`` for a theme of ``THEME_NAMES``."""
    palette = _PALETTES[theme]
    text = {"labelColor": palette.ink, "titleColor": palette.ink}
    return {
        "background": "transparent",
        "font": "system-ui, sans-serif",
        "view": {"stroke": palette.line},
        "axis": {
            **text,
            "gridColor": palette.line,
            "gridOpacity": 0.6,
            "domainColor": palette.line,
            "tickColor": palette.line,
            "labelFontSize": 12,
            "titleFontSize": 13,
            "titleFontWeight": "normal",
            "labelOverlap": True,
        },
        "axisX": {"grid": False},
        "legend": {
            **text,
            "orient": "top",
            "columns": 3,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "gradientLength": 160,
            "symbolOpacity": 1,
        },
        "range": {
            "category": palette.categories,
            "heatmap": {"scheme": "viridis"},
            "ramp": {"scheme": "viridis"},
        },
        # Thousands of labeled marks are of no use to a screen reader; the tables are.
        "aria": False,
    }
