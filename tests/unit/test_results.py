"""Conclusions as objects: rounded where logarithms leave a trace, and written without losses."""

import json
import math

import pytest

from regimescope.reasons import Reason
from regimescope.results import (
    Baseline,
    Conclusion,
    Counts,
    Estimate,
    Grade,
    Point,
    Regime,
    Verdict,
    rounded,
    to_json,
)


def conclusion(latency_s: float) -> Conclusion:
    point = Point(x=496, latency_s=latency_s, low_s=latency_s, high_s=9.5, n=3)
    regime = Regime(
        verdict=Verdict.SPIKE, grade=Grade.A, onset=(495, 496), slowdown=Estimate(value=latency_s)
    )
    return Conclusion(
        run="r",
        axis="budget",
        verdict=Verdict.SPIKE,
        grade=Grade.A,
        reasons=(Reason.NOISY,),
        regimes=(regime,),
        baseline=Baseline(coefficients=(latency_s, 1e-9 / 3), points=(point,)),
        counts=Counts(trials=3, failed=0, dropped=0),
    )


def test_a_median_never_exceeds_the_largest_value_by_a_rounding() -> None:
    noisy = math.exp(math.log(9.5)) * (1 + 2**-52)
    assert noisy > 9.5
    found = rounded(conclusion(noisy))
    assert found.baseline is not None
    assert found.baseline.points[0].latency_s == 9.5
    assert found.regimes[0].slowdown == Estimate(value=9.5)
    assert found.baseline.coefficients[1] == pytest.approx(1e-9 / 3, rel=1e-12)


def test_rounding_keeps_everything_else() -> None:
    exact = conclusion(9.5)
    assert rounded(exact) == rounded(rounded(exact))
    assert rounded(exact).regimes[0].onset == (495, 496)
    assert rounded(exact).reasons == (Reason.NOISY,)
    assert json.loads(to_json(rounded(exact)))["regimes"][0]["class"] == "SPIKE"
