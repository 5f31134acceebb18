"""Compare two rules for controls that disagree, on simulated steps between them.

The method extends the controls to the last look at once; the package looks again at each one
(docs/decisions/0011-search.md). Prints how many draws of each noise and step confirm something.

    python scripts/flank_looks.py [DRAWS]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product

import numpy as np

from regimescope.stats.confirm import ACCEPTED, Candidate, ConfirmationRule, FreshTrials, confirm
from regimescope.stats.fresh import AGREE, EXTEND, MISMATCH, checked_trials, flank_check

# Two controls with three candidate values between them; the step lies before the fourth value.
STEPS = np.array([448.0, 512.0, 576.0, 624.0, 656.0])
DRAWS = 400
RULE = ConfirmationRule()
BLOCKS = RULE.looks[-1]
SIZE = (BLOCKS, STEPS.size)

Noise = Callable[[np.random.Generator], np.ndarray]


def gauss(random: np.random.Generator) -> np.ndarray:
    """Scatter of 2 %."""
    return random.normal(0, 0.02, SIZE)


def skew(random: np.random.Generator) -> np.ndarray:
    """Scatter of 3 %, and 8 % of trials slower by 1.2 to 2.5."""
    accident = np.log(random.uniform(1.2, 2.5, SIZE)) * (random.random(SIZE) < 0.08)
    found: np.ndarray = random.normal(0, 0.03, SIZE) + accident
    return found


def heavy(random: np.random.Generator) -> np.ndarray:
    """Scatter of 5 %, and 15 % of trials slower by 1.2 to 4."""
    accident = np.log(random.uniform(1.2, 4, SIZE)) * (random.random(SIZE) < 0.15)
    found: np.ndarray = random.normal(0, 0.05, SIZE) + accident
    return found


def curve() -> np.ndarray:
    """Return the log of a convex normal latency at each value."""
    x = STEPS / 1024
    expected: np.ndarray = np.log(0.05 + 6 * x + 4 * x**2)
    return expected


def confirmed(noise: np.ndarray, step: float, taken_up: float, slow: float) -> tuple[bool, bool]:
    """Return whether something is confirmed: by the rule of the package, by that of the method.

    Args:
        noise: Log latency less its level, one row a block.
        step: Slowdown from the fourth value on.
        taken_up: Share of the step that the curve of the screen follows at the upper control.
        slow: Slowdown of the third and fourth value beside it.
    """
    level = curve()
    level[3:] += np.log(step)
    level[2:4] += np.log(slow)
    low, *_, high = curve().tolist()
    upper = high + taken_up * float(np.log(step))
    candidate = Candidate(tuple(STEPS[1:4].tolist()), (STEPS[0], STEPS[-1]), (low, upper))
    trials = FreshTrials(
        np.tile(STEPS, BLOCKS), (level + noise).ravel(), np.repeat(np.arange(BLOCKS), STEPS.size)
    )
    found = confirm([candidate], trials)
    rows = checked_trials(trials)
    earlier = [rows.of(rows.block < looks) for looks in RULE.looks[:-1]]
    states = [confirm([candidate], FreshTrials(*part)).flanks[0].state for part in earlier]
    accepted = any(budget.state == ACCEPTED for budget in found.budgets)
    last = flank_check(candidate, rows, RULE, last=True)
    agree = last.state == AGREE if EXTEND in states else found.flanks[0].state != MISMATCH
    return bool(found.cores), accepted and agree


def main() -> None:
    """Print one line a cell, then the sums."""
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else DRAWS
    sums = {1.0: np.zeros(3, dtype=int), 1.5: np.zeros(3, dtype=int)}
    cells = product((gauss, skew, heavy), (1.15, 1.25, 1.35, 1.5), (0.0, 0.5), sums)
    for number, (noise, step, taken_up, slow) in enumerate(cells):
        random = np.random.default_rng(number)
        found = [confirmed(noise(random), step, taken_up, slow) for _ in range(draws)]
        each, once = (sum(side) for side in zip(*found, strict=True))
        sums[slow] += np.array([each, once, draws])
        print(f"{noise.__name__} step {step} taken up {taken_up} slow {slow}: {each} {once}")
    for slow, (each, once, total) in sums.items():
        print(f"slow {slow}: each look {each}, the method's rule {once} of {total}")


if __name__ == "__main__":
    main()
