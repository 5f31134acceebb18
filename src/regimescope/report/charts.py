"""Chart definitions, one per chart, for the page and for static figures. Layer: report.

Each function returns an Altair chart without theme and width, or ``None`` where there is nothing
to draw. Every mark takes its color from the theme of the moment (``themes``), so that one
definition serves light and dark. Strings reach a chart as data only, never as Vega expressions.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from regimescope.errors import MissingDependencyError
from regimescope.records import Run, Trial
from regimescope.report import measured, thinning
from regimescope.report.display_units import TimeUnit, time_unit
from regimescope.report.wording import (
    axis_words,
    edge_text,
    latency_word,
    points_of,
    regime_kind,
)
from regimescope.results import Conclusion, Point, Regime
from regimescope.units import ratio, share

Rows = list[dict[str, Any]]
GapKind = Literal["median", "longest"]

# Marks that a screen of about 1000 pixels can tell apart; more only make the page heavy.
MOST_TRIALS = 2000
MOST_POINTS = 1000
MOST_GAP_ROWS = 40
MOST_GAP_COLUMNS = 64
MOST_BARS = 48
# From this ratio of extremes on, a linear color scale shows nothing but the extremes.
_LOG_FROM = 10.0

# What the marks of a chart are, in the order of the colors in ``themes``.
MEDIAN, EXPECTED, TRIAL, SLOW, EDGE = "median", "expected", "single trial", "slow", "edge in here"
ROLES = [MEDIAN, EXPECTED, TRIAL, SLOW, EDGE]
PREFILL, DECODE = "prefill", "decode"

_UNITS = {"budget": "tokens", "context": "tokens", "prompt": "tokens", "capacity": "positions"}
_HEIGHT = 320


class _Scales(NamedTuple):
    """What the layers of one chart agree on; ``roles`` are those that the legend explains."""

    alt: Any
    roles: list[str]
    unit: TimeUnit
    x_title: str
    y_title: str


def load_altair() -> Any:
    """Import Altair.

    Raises:
        MissingDependencyError: Altair is not installed.
    """
    try:
        import altair
    except ImportError as error:
        raise MissingDependencyError(
            "The report needs altair, which is not installed.",
            remedy="Install it: pip install 'regimescope[report]'",
        ) from error
    return altair


def definition(chart: Any, *, width: int | Literal["container"]) -> dict[str, Any]:
    """Return the Vega-Lite object of a chart.

    Args:
        chart: A chart of this module.
        width: Pixels, or ``container`` to fill the element it is put into.
    """
    spec: dict[str, Any] = chart.properties(width=width).to_dict()
    # The address of the schema is for editors; a page that names no host cannot fetch from one.
    del spec["$schema"]
    return spec


def axis_title(axis: str) -> str:
    """Return the title of the swept axis with its unit."""
    name = axis_words(axis).one
    return f"{name} ({_UNITS[axis]})" if axis in _UNITS else name


def latency_chart(run: Run, conclusion: Conclusion) -> Any | None:
    """Draw latency against the swept axis: trials, medians, expectation, slow intervals.

    Returns:
        A layered chart; ``None`` if no trial and no point has a place on it. Warm-ups and trials
        that did not finish are not drawn.
    """
    points, trials = points_of(conclusion), measured.on_curve(run, conclusion)
    if not points and not trials.trials:
        return None
    alt = load_altair()
    unit = time_unit([point.latency_s for point in points] or trials.latency_s.tolist())
    y_title = f"{latency_word(conclusion)} ({unit.name})"
    roles = _roles_present(conclusion, trials)
    scales = _Scales(alt, roles, unit, axis_title(conclusion.axis), y_title)
    shown = _thin_points(points)
    layers = [
        *_interval_layers(scales, conclusion),
        *_trial_layers(scales, trials),
        *_expected_layers(scales, shown),
        *_median_layers(scales, shown),
    ]
    zoom = alt.selection_interval(
        bind="scales",
        encodings=["x"],
        # A bare wheel or finger must scroll the page, so both gestures ask for the shift key.
        zoom="wheel![event.shiftKey]",
        translate="[pointerdown[event.shiftKey], window:pointerup] > window:pointermove!",
    )
    layers[-1] = layers[-1].add_params(zoom)
    return alt.layer(*layers).properties(height=_HEIGHT)


def _roles_present(conclusion: Conclusion, trials: measured.Measured) -> list[str]:
    """Return the roles that some mark of the chart has."""
    points, regimes = points_of(conclusion), conclusion.regimes
    present = {
        MEDIAN: bool(points),
        EXPECTED: any(point.expected_s is not None for point in points),
        TRIAL: bool(trials.trials),
        SLOW: bool(regimes),
        EDGE: any(regime.onset or regime.recovery for regime in regimes),
    }
    return [role for role in ROLES if present[role]]


def _thin_points(points: tuple[Point, ...]) -> list[Point]:
    """Return few enough points for a curve, the extremes among them."""
    kept = thinning.keep_extremes(
        [point.x for point in points], [point.latency_s for point in points], MOST_POINTS
    )
    return [points[index] for index in kept]


def _layer(scales: _Scales, rows: Rows, mark: str, **style: Any) -> Any:
    """Start a layer on the shared axes; rows have ``x``, ``y`` and ``role``."""
    alt = scales.alt
    chart = getattr(alt.Chart(alt.InlineData(values=rows)), f"mark_{mark}")(**style)
    return chart.encode(
        x=alt.X("x:Q", scale=alt.Scale(zero=False, nice=False, padding=12)).title(scales.x_title),
        # The whole domain even if some roles are absent: a role keeps its color in every chart.
        color=alt.Color("role:N", scale=alt.Scale(domain=ROLES))
        .title(None)
        .legend(values=scales.roles),
    )


def _interval_layers(scales: _Scales, conclusion: Conclusion) -> list[Any]:
    """Shade what is surely slow, and frame the brackets in which the edges lie."""
    alt = scales.alt
    slow = [_slow_row(regime, conclusion) for regime in conclusion.regimes]
    brackets = [row for regime in conclusion.regimes for row in _edge_rows(regime)]
    layers = []
    if slow:
        base = _layer(scales, slow, "rect", opacity=0.22, strokeWidth=0)
        tips = [alt.Tooltip(f"{name}:N") for name in ("class", "from", "to", "slowdown")]
        layers.append(base.encode(x2="x2:Q", tooltip=tips))
    if brackets:
        tips = [alt.Tooltip("edge:N")]
        base = _layer(scales, brackets, "rect", opacity=0.25, strokeWidth=0)
        layers.append(base.encode(x2="x2:Q", tooltip=tips))
        # Edges known to one token are too narrow to see as an area, so both ends get a line.
        ends = [row | {"x": row[end]} for row in brackets for end in ("x", "x2")]
        layers.append(_layer(scales, ends, "rule", strokeWidth=1.5).encode(tooltip=tips))
    return layers


def _slow_row(regime: Regime, conclusion: Conclusion) -> dict[str, Any]:
    """Return the values surely inside an interval; an unseen edge reaches the end of the sweep."""
    xs = [point.x for point in points_of(conclusion)]
    first = regime.onset[1] if regime.onset else min(xs, default=0)
    last = regime.recovery[0] if regime.recovery else max(xs, default=first)
    row = {"x": first, "x2": last, "role": SLOW, "from": first, "to": last}
    row["class"] = f"{regime_kind(regime)} (grade {regime.grade.value})"
    row["slowdown"] = ratio(regime.slowdown.value) if regime.slowdown else "not estimated"
    return row


def _edge_rows(regime: Regime) -> Rows:
    """Return the brackets of the edges that are seen."""
    named = (("onset", regime.onset), ("recovery", regime.recovery))
    return [
        {"x": edge[0], "x2": edge[1], "role": EDGE, "edge": f"{name} {edge_text(edge)}"}
        for name, edge in named
        if edge
    ]


def _trial_layers(scales: _Scales, trials: measured.Measured) -> list[Any]:
    """Draw single trials; the slowest and fastest of a value are always among them."""
    if not trials.trials:
        return []
    alt = scales.alt
    kept = thinning.keep_extremes(trials.x, trials.latency_s, MOST_TRIALS)
    rows = [
        _trial_row(trials.trials[i], int(trials.x[i]), float(trials.latency_s[i]), scales.unit)
        for i in kept
    ]
    tips = [
        alt.Tooltip("x:Q").title(scales.x_title),
        alt.Tooltip("shown:N").title(scales.y_title),
        *(alt.Tooltip(f"{name}:N") for name in ("process", "block", "order")),
    ]
    layer = _layer(scales, rows, "point", filled=True, size=22, opacity=0.55)
    return [layer.encode(y=_y(scales), tooltip=tips)]


def _trial_row(trial: Trial, x: int, latency_s: float, unit: TimeUnit) -> dict[str, Any]:
    """Return one trial as a mark; what is unknown of it says so in the tooltip."""
    known = {"process": trial.process_run, "block": trial.block, "order": trial.order_index}
    row: dict[str, Any] = {"x": x, "y": latency_s * unit.factor, "role": TRIAL}
    row["shown"] = unit.show(latency_s)
    return row | {name: "unknown" if value is None else value for name, value in known.items()}


def _expected_layers(scales: _Scales, points: list[Point]) -> list[Any]:
    """Draw the baseline through its values at the measured points."""
    rows = [
        {"x": point.x, "y": point.expected_s * scales.unit.factor, "role": EXPECTED}
        for point in points
        if point.expected_s is not None
    ]
    if not rows:
        return []
    layer = _layer(scales, rows, "line", strokeDash=[6, 4], strokeWidth=2.5)
    return [layer.encode(y=_y(scales))]


def _median_layers(scales: _Scales, points: list[Point]) -> list[Any]:
    """Draw the medians, joined by a line."""
    if not points:
        return []
    alt, unit = scales.alt, scales.unit
    rows = [
        {
            "x": point.x,
            "y": point.latency_s * unit.factor,
            "role": MEDIAN,
            "shown": unit.show(point.latency_s),
            "expected": unit.show(point.expected_s),
            "slowdown": "-" if point.slowdown is None else ratio(point.slowdown),
            "trials": point.n,
        }
        for point in points
    ]
    tips = [
        alt.Tooltip("x:Q").title(scales.x_title),
        alt.Tooltip("shown:N").title(f"median {scales.y_title}"),
        *(alt.Tooltip(f"{name}:N") for name in ("expected", "slowdown", "trials")),
    ]
    marks = {"filled": True, "size": 55}
    layer = _layer(scales, rows, "line", strokeWidth=1.5, point=marks)
    return [layer.encode(y=_y(scales), tooltip=tips)]


def _y(scales: _Scales) -> Any:
    """Return the latency axis, which starts at zero so that heights compare like ratios."""
    return scales.alt.Y("y:Q", scale=scales.alt.Scale(zero=True)).title(scales.y_title)


def gap_grid(run: Run, conclusion: Conclusion) -> thinning.GapGrid | None:
    """Return the gaps between tokens, thinned to a grid; ``None`` if no trial has any."""
    traces = measured.traces(run, measured.trace_axis(run, conclusion))
    if not traces:
        return None
    return thinning.bin_gaps(
        [trace.x for trace in traces],
        [trace.gaps_s for trace in traces],
        rows=MOST_GAP_ROWS,
        columns=MOST_GAP_COLUMNS,
    )


def gap_chart(grid: thinning.GapGrid, axis: str, kind: GapKind) -> Any:
    """Draw the gaps as a map: value of the axis by step, colored by the median or longest gap.

    Args:
        grid: Gaps of ``gap_grid``.
        axis: The axis of the rows.
        kind: What a cell shows. A single slow step inside a cell shows in the longest gap only.
    """
    alt = load_altair()
    unit = time_unit(grid.median_s[grid.gaps > 0].tolist())
    values = (grid.median_s if kind == "median" else grid.longest_s)[grid.gaps > 0]
    spread = float(values.max()) / float(values.min()) if values.min() > 0 else 1.0
    # From zero on, so that noise around a constant looks constant; a log scale has no zero.
    log = spread > _LOG_FROM
    scale = alt.Scale(type="log", nice=False) if log else alt.Scale(type="linear", zero=True)
    labels = [_row_label(row) for row in grid.rows]
    chart = alt.Chart(alt.InlineData(values=_gap_rows(grid, kind, labels, unit))).mark_rect()
    tips = [alt.Tooltip(f"{name}:N") for name in ("steps", "median", "longest", "gaps")]
    return chart.encode(
        x=alt.X("from:Q", scale=alt.Scale(nice=False)).title("decode step"),
        x2="to:Q",
        y=alt.Y("row:O", sort=labels[::-1]).title(axis_title(axis)),
        color=alt.Color("value:Q", scale=scale, legend=alt.Legend(format=",.3~r")).title(
            f"{kind} gap ({unit.name})"
        ),
        tooltip=[alt.Tooltip("row:N").title(axis_title(axis)), *tips],
    ).properties(height=min(max(14 * len(labels), 110), 420))


def _row_label(row: tuple[int, int]) -> str:
    """Return the values of the axis that share a row."""
    return str(row[0]) if row[0] == row[1] else f"{row[0]}-{row[1]}"


def _gap_rows(grid: thinning.GapGrid, kind: GapKind, labels: list[str], unit: TimeUnit) -> Rows:
    """Return one mark per cell that has gaps."""
    values = grid.median_s if kind == "median" else grid.longest_s
    rows: Rows = []
    for row, column in zip(*grid.gaps.nonzero(), strict=True):
        start, stop = int(grid.starts[column]), int(grid.stops[column])
        rows.append(
            {
                "row": labels[row],
                "from": start - 0.5,
                "to": stop + 0.5,
                "value": float(values[row, column]) * unit.factor,
                "steps": f"{start} to {stop}",
                "median": f"{unit.show(float(grid.median_s[row, column]))} {unit.name}",
                "longest": f"{unit.show(float(grid.longest_s[row, column]))} {unit.name}",
                "gaps": int(grid.gaps[row, column]),
            }
        )
    return rows


def phase_chart(conclusion: Conclusion) -> Any | None:
    """Draw the shares of prefill and decode at each value.

    Returns:
        ``None`` if they are unknown, or known of a single value, which is no chart.
    """
    shares = conclusion.phases.by_value if conclusion.phases else ()
    if len(shares) < 2:
        return None
    alt = load_altair()
    kept = thinning.keep_extremes([x for x, _ in shares], [part for _, part in shares], MOST_BARS)
    rows = [
        {"x": shares[i][0], "part": part, "share": value, "shown": share(value)}
        for i in kept
        for part, value in ((PREFILL, shares[i][1]), (DECODE, 1 - shares[i][1]))
    ]
    chart = alt.Chart(alt.InlineData(values=rows)).mark_bar()
    return chart.encode(
        x=alt.X("x:O").title(axis_title(conclusion.axis)),
        y=alt.Y("share:Q", axis=alt.Axis(format=".0%")).title("share of the time"),
        color=alt.Color("part:N", scale=alt.Scale(domain=[DECODE, PREFILL])).title(None),
        order=alt.Order("part:N", sort="descending"),
        tooltip=[
            alt.Tooltip("x:O").title(axis_title(conclusion.axis)),
            alt.Tooltip("part:N"),
            alt.Tooltip("shown:N").title("share"),
        ],
    ).properties(height=180)
