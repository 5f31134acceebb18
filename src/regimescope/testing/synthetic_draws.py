"""Random truths of a named kind, for rates over many sweeps (method section 12).

Layer: ``testing``.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from regimescope.testing.synthetic_truth import SlowRegime, Truth

LOW, HIGH = 64, 1024  # range of budgets
GAP = (
    40  # tokens; the largest gap of the screening grid, which a regime must be wide enough to meet
)
MARGIN = 3 * GAP  # normal budgets on both sides of a regime
WIGGLE = 0.04  # most lasting excess of a single budget (method section 1.4)
SCATTER = 0.15  # most scatter of the log slowdown inside a regime
NARROW = (GAP, 2 * GAP)  # one or two budgets of the grid
WIDE = ((HIGH - LOW) // 3, 2 * (HIGH - LOW) // 3)  # a third to two thirds of the range
CONFOUNDERS = ("clean", "step", "ramp", "kink", "sawtooth", "early_end")


def draw_curve(rng: np.random.Generator, *, kv_cache: bool) -> Truth:
    """Draw a curve with nothing on it but the wiggle of single budgets.

    Coefficients are log-uniform over a decade: a small constant, a linear part, and with a cache
    the slow growth of attention, without it the square and the cube of recomputation.

    Args:
        rng: source of the curve.
        kv_cache: whether the step cost is affine in the context length (degree 2) or grows
            with its square (degree 3).
    """
    scale = 10 ** rng.uniform(-0.5, 1.0)
    parts = 10 ** rng.uniform(-1.0, 0.0, 3 if kv_cache else 4)
    parts[0] *= 0.1
    coefficients = tuple((scale * parts).tolist())
    return Truth(coefficients, HIGH, wiggle=float(rng.uniform(0.0, WIGGLE)))


def draw_confounder(kind: str, rng: np.random.Generator, *, kv_cache: bool = True) -> Truth:
    """Draw a truth without any regime.

    Args:
        kind: ``clean``, ``step`` (1.1 to 2 times), ``ramp`` (up to twice at the end), ``kink`` (the
            slope changes by a third at most), ``sawtooth`` (pages, 5 %) or ``early_end`` (a tenth
            of the trials end early).
        rng: source of the truth.
        kv_cache: kind of curve.

    Raises:
        ValueError: an unknown kind.
    """
    truth = draw_curve(rng, kv_cache=kv_cache)
    place = int(rng.integers(LOW + MARGIN, HIGH - MARGIN))
    total = sum(truth.coefficients)
    if kind == "clean":
        return truth
    if kind == "step":
        return replace(truth, step_at=place, step_slowdown=float(rng.uniform(1.1, 2.0)))
    if kind == "ramp":
        return replace(truth, bend_at=place, bend=total * float(rng.uniform(0.3, 1.0)))
    if kind == "kink":
        size = float(rng.uniform(-1 / 3, 1 / 3)) * (1 - place / HIGH)
        return replace(truth, bend_at=place, bend=total * size)
    if kind == "sawtooth":
        return replace(truth, page=int(rng.choice([16, 32, 64, 128, 256])), page_size=0.05)
    if kind == "early_end":
        return replace(truth, early_end=0.1)
    raise ValueError(f"unknown kind {kind!r}; known: {', '.join(CONFOUNDERS)}")


def draw_regime(
    rng: np.random.Generator, *, slowdown: float, width: tuple[int, int], kv_cache: bool = True
) -> Truth:
    """Draw a truth with one regime at a random place, normal budgets on both sides.

    Args:
        rng: source of the truth.
        slowdown: typical factor inside.
        width: least and largest number of tokens.
        kv_cache: kind of curve.
    """
    truth = draw_curve(rng, kv_cache=kv_cache)
    tokens = int(rng.integers(width[0], width[1] + 1))
    onset = int(rng.integers(LOW + MARGIN, HIGH - MARGIN - tokens + 1))
    scatter = float(rng.uniform(0.0, SCATTER)) * min(1.0, math.log(slowdown))
    return replace(truth, regimes=(SlowRegime(onset, onset + tokens, slowdown, scatter),))


def draw_two_regimes(rng: np.random.Generator, *, kv_cache: bool = True) -> Truth:
    """Draw a truth with two regimes of 2 to 5 times, sometimes one grid point apart."""
    truth = draw_curve(rng, kv_cache=kv_cache)
    first, second = (int(v) for v in rng.integers(GAP, 4 * GAP + 1, 2))
    gap = int(rng.integers(GAP, 6 * GAP + 1))
    onset = int(rng.integers(LOW + MARGIN, HIGH - MARGIN - first - gap - second + 1))
    low, high = (float(v) for v in rng.uniform(2.0, 5.0, 2))
    scatter = float(rng.uniform(0.0, SCATTER))
    start = onset + first + gap
    return replace(
        truth,
        regimes=(
            SlowRegime(onset, onset + first, low, scatter),
            SlowRegime(start, start + second, high, scatter),
        ),
    )
