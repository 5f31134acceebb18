"""Regenerate the penalty table of the detector from simulated sweeps without any slow stretch.

For each size, number of repeats and degree: draw sweeps from curves of the model with Student-t4
noise, run the detector's first selection step with its scale updates on each, and record the 90 %
point of the best single gain. With that penalty 10 % of clean sweeps raise an alarm.

    python scripts/calibrate_lambda.py --out src/regimescope/stats/lambda_table.json

Cells run in order of size and are written as they finish; a cell that is already in the output
with the same settings is kept, so that an interrupted run continues. ``--share 0.01`` makes a
quick trial of the procedure; its table says how few sweeps it rests on.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimescope.stats.batched_cost import CostRule, batched_cost
from regimescope.stats.curve import basis, residual_scale
from regimescope.stats.epidemic import SCALE_FLOOR, SCALE_PASSES, SCALE_SETTLED, SCALE_START
from regimescope.stats.estimate import repeat_scale_factor
from regimescope.stats.proposals import all_intervals

Array = NDArray[np.float64]

SEED = 20260513
ALARM_RATE = 0.1  # alpha_screen: screening decides nothing and may be loose
R_MIN = 1.0001  # any slowdown counts, so that the table holds for every margin
NOISE_SCALE = 0.03  # log units, of Student's t with 4 degrees of freedom
STEPS = (64.0, 1024.0)  # ends of the simulated axis; only their ratio matters
SIZES = (6, 8, 12, 16, 24, 32, 48, 64, 128)
REPEATS = (1, 2, 3, 5, 7)
DEGREES = (0, 1, 2, 3)
# Simulated sweeps per cell. The work per sweep grows with the cube of the size, hence fewer of
# the large ones; the table records the number behind each of its entries.
NULLS = {6: 4000, 8: 4000, 12: 4000, 16: 4000, 24: 4000, 32: 4000, 48: 300, 64: 150, 128: 60}
LARGE_REPEATS = {64: (1, 3, 5), 128: (1, 3)}  # fewer repeats where a cell takes minutes
PILOT_SHARE = 0.1  # of the sweeps, for the run that finds roughly where the penalty lies
PILOT_RANGE = (0.4, 2.2)  # penalties followed, in units of the pilot's
BATCH_ELEMENTS = 1 << 15  # sweeps x intervals x points fitted at once


class Cell(NamedTuple):
    """One entry of the table."""

    n: int
    repeats: int
    degree: int


class Ranges(NamedTuple):
    """Ranges [low, high) of the penalty in which a sweep raises an alarm, shape (M,) each."""

    sweep: NDArray[np.int64]
    low: Array
    high: Array

    @classmethod
    def joined(cls, parts: list[Ranges]) -> Ranges:
        """All ranges of several batches."""
        return cls(
            np.concatenate([p.sweep for p in parts]),
            np.concatenate([p.low for p in parts]),
            np.concatenate([p.high for p in parts]),
        )


class Branches(NamedTuple):
    """Paths of the scale updates, each for the penalties in [low, high), shape (M,) each."""

    sweep: NDArray[np.int64]
    low: Array
    high: Array
    scale: Array

    @classmethod
    def joined(cls, parts: list[Branches]) -> Branches:
        """Branches of both outcomes."""
        ranges = Ranges.joined([p.ranges() for p in parts])
        return cls(*ranges, np.concatenate([p.scale for p in parts]))

    def ranges(self) -> Ranges:
        """The penalties without the scale that they lead to."""
        return Ranges(self.sweep, self.low, self.high)

    def only(self, mask: NDArray[np.bool_]) -> Branches:
        """The marked branches."""
        return Branches(self.sweep[mask], self.low[mask], self.high[mask], self.scale[mask])


class _Grid(NamedTuple):
    """What all sweeps of a cell share."""

    cell: Cell
    X: Array
    labels: NDArray[np.int8]
    rule: CostRule

    @classmethod
    def of(cls, cell: Cell) -> _Grid:
        steps = np.linspace(*STEPS, cell.n)
        rule = CostRule(float(np.log(R_MIN)), cell.degree + 2)
        every = all_intervals(cell.n, cell.n - rule.min_outside)
        index = np.arange(cell.n)
        inside = (index >= every.start[:, None]) & (index < every.end[:, None])
        labels = np.concatenate([np.zeros((1, cell.n)), inside]).astype(np.int8)
        return cls(cell, basis(steps, steps[-1], cell.degree), labels, rule)

    def updated_scale(
        self, ratio: Array, theta: Array, chosen: NDArray[np.int64], floor: Array
    ) -> Array:
        residual = -np.log((ratio @ theta[:, :, None])[:, :, 0])
        scales = [
            residual_scale(z[self.labels[k] == 0], self.cell.degree, floor=float(f))
            for z, k, f in zip(residual, chosen, floor, strict=True)
        ]
        return np.array(scales)


def simulate(cell: Cell, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw clean sweeps: medians of the repeats (count, n) and the pooled scale (count,)."""
    steps = np.linspace(*STEPS, cell.n)
    # Coefficients log-uniform over a decade, the linear one in the middle of it.
    theta = 10 ** rng.uniform(-1.0, 0.0, (count, cell.degree + 1))
    theta[:, 0] *= 0.1 if cell.degree else 1.0
    clean = np.log(theta @ basis(steps, steps[-1], cell.degree).T)
    noise = NOISE_SCALE * rng.standard_t(4, (count, cell.repeats, cell.n))
    middle = np.median(noise, axis=1)
    return clean + middle, pooled_scale(noise, middle)


def pooled_scale(noise: Array, middle: Array) -> Array:
    """Pooled scale of one repeat for each sweep, NaN for single repeats (method section 4)."""
    count, repeats, _ = noise.shape
    if repeats < 2:
        return np.full(count, np.nan)
    deviation = np.abs(noise - middle[:, None]).reshape(count, -1)
    spread = np.array([np.median(row[row > 0]) for row in deviation])
    scaled: Array = repeat_scale_factor(repeats) * 1.4826 * spread
    return scaled


def alarm_ranges(cell: Cell, y: Array, sigma: Array, within: tuple[float, float]) -> Ranges:
    """Penalties at which each clean sweep raises an alarm.

    The penalty decides which interval the scale update leaves out, so the final gain depends on
    it. Both outcomes of each decision are followed, each with the penalties that lead to it.

    Args:
        cell: size, repeats and degree.
        y: log latency of each sweep, shape (N, n).
        sigma: pooled repeat scale of each sweep, shape (N,).
        within: penalties of interest; other branches are cut.
    """
    grid = _Grid.of(cell)
    floor = np.maximum(SCALE_FLOOR, np.nan_to_num(1.25 * sigma / np.sqrt(cell.repeats)))
    ratio = grid.X / np.exp(y - np.median(y, axis=1, keepdims=True))[:, :, None]
    sweeps = np.arange(y.shape[0])
    branches = Branches(
        sweeps,
        np.full(sweeps.size, within[0]),
        np.full(sweeps.size, within[1]),
        np.maximum(floor, SCALE_START),
    )
    alarms: list[Ranges] = []
    for last in [False] * (SCALE_PASSES - 1) + [True]:
        fit = batched_cost(ratio[branches.sweep], grid.labels, branches.scale, grid.rule)
        best = 1 + np.argmin(fit.cost[:, 1:], axis=1)
        rows = np.arange(best.size)
        gain = fit.cost[:, 0] - fit.cost[rows, best]
        accepted = branches._replace(high=np.minimum(branches.high, gain))
        rejected = branches._replace(low=np.maximum(branches.low, gain))
        onward = []
        for branch, chosen in ((accepted, best), (rejected, np.zeros_like(best))):
            theta = fit.theta[rows, chosen]
            scale = grid.updated_scale(ratio[branch.sweep], theta, chosen, floor[branch.sweep])
            settled = np.abs(np.log(scale / branch.scale)) < SCALE_SETTLED
            possible = branch.low < branch.high
            if branch is accepted:
                ended = possible & (settled | last)
                alarms.append(branch.only(ended).ranges())
            onward.append(branch._replace(scale=scale).only(possible & ~settled))
        branches = Branches.joined(onward)
        if branches.sweep.size == 0:
            break
    return Ranges.joined(alarms)


def alarm_penalty(ranges: Ranges, count: int, rate: float) -> float:
    """Least penalty above which at most a given share of the sweeps raises an alarm.

    The ranges of one sweep do not overlap, so the alarms at a penalty are counted by events.
    """
    value = np.concatenate([ranges.low, ranges.high])
    change = np.concatenate([np.ones(ranges.low.size), -np.ones(ranges.high.size)])
    order = np.argsort(value, kind="stable")
    alarms = np.cumsum(change[order])
    above = np.flatnonzero(alarms > rate * count)
    return float(value[order][above[-1] + 1]) if above.size else 0.0


def calibrate(cell: Cell, nulls: int) -> dict[str, Any]:
    """Penalty of one cell with its Monte-Carlo error."""
    pilot = max(40, round(PILOT_SHARE * nulls))
    rough = alarm_penalty(simulated_alarms(cell, pilot, (0.0, np.inf), 0), pilot, ALARM_RATE)
    error = float(np.sqrt(ALARM_RATE * (1 - ALARM_RATE) / nulls))
    rates = (ALARM_RATE + error, ALARM_RATE, ALARM_RATE - error)
    for within in ((PILOT_RANGE[0] * rough, PILOT_RANGE[1] * rough), (0.0, np.inf)):
        ranges = simulated_alarms(cell, nulls, within, 1)
        low, lam, high = (alarm_penalty(ranges, nulls, rate) for rate in rates)
        if within[0] < low and high < within[1]:  # else the pilot was off; follow everything
            break
    return {
        **cell._asdict(),
        "nulls": nulls,
        "lam": round(lam, 3),
        "lam_se": round((high - low) / 2, 3),
    }


def simulated_alarms(
    cell: Cell, count: int, within: tuple[float, float], round_number: int
) -> Ranges:
    """Alarm ranges of freshly simulated clean sweeps, a batch at a time."""
    rng = np.random.default_rng([SEED, *cell, round_number])
    y, sigma = simulate(cell, count, rng)
    rows = max(1, BATCH_ELEMENTS // (cell.n**2 * (cell.n + 1) // 2))
    parts = [
        alarm_ranges(cell, y[k : k + rows], sigma[k : k + rows], within)
        for k in range(0, count, rows)
    ]
    return Ranges.joined(parts)


def write_table(path: Path, cells: list[dict[str, Any]]) -> None:
    """Replace the table atomically, so that a reader never sees half of one."""
    table = {
        "seed": SEED,
        "alarm_rate": ALARM_RATE,
        "noise": f"Student t4, scale {NOISE_SCALE}",
        "steps": f"{STEPS[0]:g}..{STEPS[1]:g}, evenly spaced",
        "r_min": R_MIN,
        "cells": cells,
    }
    lines = ",\n".join("  " + json.dumps(c) for c in cells)
    head = json.dumps({**table, "cells": []}, indent=1)
    text = head.replace('"cells": []', '"cells": [\n' + lines + "\n ]") + "\n"
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as part:
        part.write(text)
    Path(part.name).replace(path)


def main() -> None:
    """Run the cells that the output lacks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--share", type=float, default=1.0, help="share of the usual sweeps")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    arguments = parser.parse_args()
    cells: list[dict[str, Any]] = []
    if arguments.out.exists():
        stored = json.loads(arguments.out.read_text())
        cells = stored["cells"] if stored.get("seed") == SEED else []
    for n in arguments.sizes:
        nulls = max(20, round(arguments.share * NULLS[n]))
        for repeats in LARGE_REPEATS.get(n, REPEATS):
            for degree in DEGREES:
                cell = Cell(n, repeats, degree)
                same = [c for c in cells if (c["n"], c["repeats"], c["degree"]) == cell]
                if any(c["nulls"] == nulls for c in same):
                    continue
                fresh = calibrate(cell, nulls)
                cells = [c for c in cells if c not in same] + [fresh]
                cells.sort(key=lambda c: (c["repeats"], c["degree"], c["n"]))
                write_table(arguments.out, cells)
                print(fresh, flush=True)


if __name__ == "__main__":
    main()
