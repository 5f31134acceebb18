import sys

import pytest
from tests.unit.report.builders import PROBE, make_points

from regimescope.report.display_units import time_unit
from regimescope.report.terminal_chart import HEIGHT, draw_curve

UNIT = time_unit([100.0])


@pytest.mark.parametrize("width", [40, 79, 80, 100])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_the_curve_fits_its_width_and_has_no_control_characters(width, ascii_only):
    drawn = draw_curve(make_points(PROBE), UNIT, width=width, ascii_only=ascii_only)
    lines = drawn.splitlines()
    assert len(lines) == HEIGHT
    assert max(map(len, lines)) <= width
    assert all(line.isprintable() for line in lines)
    assert drawn.isascii() is ascii_only


def test_medians_stand_above_the_expectation_where_they_are_slow():
    drawn = draw_curve(make_points(PROBE), UNIT, width=80, ascii_only=True)
    lines = drawn.splitlines()
    assert sum("o" in line for line in lines) >= 3
    lowest = max(row for row, line in enumerate(lines) if "o" in line)
    assert ".." in lines[lowest]
    assert "480" in lines[-1]
    assert "656" in lines[-1]


def test_a_curve_without_expectation_is_drawn():
    drawn = draw_curve(make_points(PROBE, expected_s=None), UNIT, width=60, ascii_only=True)
    # Dots stand in tick labels only.
    assert ".." not in drawn
    assert "o" in drawn


@pytest.mark.parametrize("latency_s", [3e-7, 0.004, 1.0, 5.0, 123456.0])
def test_equal_latencies_of_any_size_are_drawn(latency_s):
    points = make_points(dict.fromkeys(range(64, 128, 8), latency_s), expected_s=latency_s)
    drawn = draw_curve(points, time_unit([latency_s]), width=60, ascii_only=True)
    assert "o" in drawn


def test_very_many_points_keep_the_slow_one():
    values = dict.fromkeys(range(1, 20_001), 1.0) | {7_777: 100.0}
    top = draw_curve(make_points(values), UNIT, width=80, ascii_only=True).splitlines()[1]
    assert "o" in top


def test_one_point_or_a_narrow_terminal_gives_no_curve():
    assert draw_curve(make_points({64: 1.0}), UNIT, width=80, ascii_only=True) is None
    assert draw_curve((), UNIT, width=80, ascii_only=True) is None
    assert draw_curve(make_points(PROBE), UNIT, width=39, ascii_only=True) is None


def test_a_system_without_the_drawing_library_goes_without_a_curve(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotext", None)
    assert draw_curve(make_points(PROBE), UNIT, width=80, ascii_only=True) is None
