import pytest

from regimescope.report.display_units import significant, time_unit


@pytest.mark.parametrize(
    ("values_s", "name"),
    [([], "s"), ([0.5, 2.0], "s"), ([1.0], "s"), ([0.999], "ms"), ([2e-6], "us"), ([0.0], "us")],
)
def test_one_unit_is_chosen_by_the_greatest_value(values_s, name):
    assert time_unit(values_s).name == name


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.01234, "0.0123"),
        (9.2, "9.20"),
        (89.24, "89.2"),
        (110.1, "110"),
        (1234.5, "1,234"),
    ],
)
def test_three_significant_digits(value, shown):
    assert significant(value) == shown


def test_an_absent_value_is_a_dash():
    assert time_unit([1.0]).show(None) == "-"
    assert time_unit([0.02]).show(0.0153) == "15.3"
