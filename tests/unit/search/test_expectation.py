"""What a normal step takes: a line in context length, from trials at the normal speed."""

from __future__ import annotations

import numpy as np
import pytest

from regimescope.records import Cell, Series, Trial
from regimescope.search.expectation import expect_steps


def trial(budget: int, factor: float = 1.0) -> Trial:
    context = 65 + 1 + np.arange(budget - 1)
    return Trial(
        trial_id=f"c{budget}",
        occasion="o",
        series=Series(engine="simulated"),
        cell=Cell(budget=budget, prompt_tokens=65),
        status="ok",
        warmup=False,
        phase="decode",
        itl_s=(factor * (0.01 + 2e-6 * context)).tolist(),
    )


def test_the_line_is_found_from_normal_trials() -> None:
    found = expect_steps([trial(64), trial(512), trial(1024)])
    assert found is not None
    assert found.base_s == pytest.approx(0.01, rel=1e-3)
    assert found.slope_s == pytest.approx(2e-6, rel=1e-2)


def test_a_slow_calibration_is_no_reference() -> None:
    found = expect_steps([trial(64), trial(512, 10.0), trial(1024)])
    assert found is not None
    assert found.base_s + 500 * found.slope_s == pytest.approx(0.011, rel=1e-2)


def test_short_trials_show_nothing() -> None:
    assert expect_steps([trial(12)]) is None
    assert expect_steps([]) is None
