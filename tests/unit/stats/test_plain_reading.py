import numpy as np
import pytest

from regimescope.stats.plain_reading import read_plainly


def read(steps, latency, degree=2):
    return read_plainly(steps, np.log(latency), degree=degree, r_min=1.25)


@pytest.mark.parametrize(
    ("steps", "latency", "degree", "shape"),
    [
        ([383, 511, 639], [6.6, 9.2, 11.2], 2, "CLEAN"),
        ([100, 200, 300, 400], [5.0, 5.1, 4.9, 5.0], 0, "CLEAN"),
        ([100, 200, 300, 400], [1.0, 2.0, 9.0, 12.0], 2, "STEP"),
        ([100, 200, 300], [1.0, 1.0, 2.0], 0, "STEP"),
        ([100, 200, 300, 400], [1.0, 1.3, 1.7, 2.2], 0, "RAMP"),
        ([383, 511, 639], [5.1, 84.5, 8.8], 2, "INCONCLUSIVE"),
        ([495, 511, 623, 639], [9.5, 83.9, 92.0, 8.6], 2, "INCONCLUSIVE"),
        ([100, 200, 300, 400, 500], [9.0, 7.0, 5.0, 3.0, 1.0], 2, "INCONCLUSIVE"),
    ],
)
def test_short_series_are_described(steps, latency, degree, shape):
    assert read(steps, latency, degree).shape == shape


def test_a_jump_tells_where_and_how_large():
    reading = read([100, 200, 300, 400], [1.0, 2.0, 9.0, 12.0])
    assert reading.onset == 2
    assert np.exp(reading.log_effect) == pytest.approx(3.0, rel=0.05)


def test_two_points_tell_nothing():
    assert read([1, 2], [1.0, 50.0]).shape == "INCONCLUSIVE"
    with pytest.raises(ValueError, match="at least one step"):
        read([], [])
