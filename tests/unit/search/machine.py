"""A machine of formulas: measures what a search asks for, without an engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np

from regimescope.growth import grown, growth
from regimescope.records import Plan, PlannedTrial, Series, Stage, Trial
from regimescope.search.decision import Finish
from regimescope.search.phases import Search
from regimescope.spec import ScanSpec

# A search of these tests takes some dozens of decisions; one that never ends takes all of them.
MOST_DECISIONS = 250

# Seconds of a trial from its phase, its value, and how often both were asked before; ``None``
# where it fails, infinity where it times out.
Law = Callable[[Stage, int, int], float | None]


class Searched(NamedTuple):
    """A search that has ended."""

    finish: Finish
    plan: Plan
    trials: list[Trial]

    def asked(self, stage: Stage) -> Counter[int]:
        """Return how often each value was asked in a phase."""
        return Counter(t.cell.budget or 0 for t in self.trials if t.stage == stage)


def spec_of(**values: Any) -> ScanSpec:
    """Return the settings of a search."""
    return ScanSpec(engine="simulated", model="smooth", sentinel_every=0, **values)


def normal_s(value: int, random: np.random.Generator) -> float:
    """Return the seconds of a normal trial: a convex curve with 2 % of noise."""
    seconds = 0.0125 * value + 1e-6 * value**2
    return float(seconds * np.exp(0.02 * random.standard_normal()))


def slow_between(onset: int, recovery: int, slowdown: float = 10.0, seed: int = 0) -> Law:
    """Return a machine that is slow at budgets of [onset, recovery)."""
    random = np.random.default_rng(seed)

    def law(stage: Stage, value: int, before: int) -> float | None:
        factor = slowdown if onset <= value < recovery else 1.0
        return normal_s(value, random) * factor

    return law


def searched(law: Law, spec: ScanSpec | None = None, skipped: Collection[int] = ()) -> Searched:
    """Run a search to its end.

    Raises:
        RuntimeError: It does not end, or asks for nothing.
    """
    spec = spec or spec_of()
    search, plan = Search(spec), Plan(seed=spec.seed, processes=())
    trials: list[Trial] = []
    asked: Counter[tuple[Stage, int]] = Counter()
    for _ in range(MOST_DECISIONS):
        wanted = search.decide(plan, trials, skipped)
        if isinstance(wanted, Finish):
            return Searched(wanted, plan, trials)
        added = growth(plan, spec, wanted)
        planned = [t for process in added.processes for t in process.trials if t.counts]
        if not planned:
            raise RuntimeError(f"nothing is asked for: {wanted.message}")
        plan = grown(plan, added)
        for trial in planned:
            place = (trial.stage or "screen", trial.cell.budget or 0)
            trials.append(_trial(trial, law(*place, asked[place])))
            asked[place] += 1
    raise RuntimeError(f"no end after {MOST_DECISIONS} decisions: {wanted.message}")


def _trial(planned: PlannedTrial, seconds: float | None) -> Trial:
    """Return what became of a planned trial."""
    late = seconds == float("inf")
    lived = seconds is not None and not late
    return Trial(
        trial_id=planned.trial_id,
        occasion="o",
        series=Series(engine="simulated", arm="warm"),
        cell=planned.cell,
        status="timeout" if late else "ok" if lived else "failed",
        warmup=False,
        phase="decode",
        process_run=planned.block,
        block=planned.block,
        stage=planned.stage,
        output_tokens=planned.cell.budget if lived else None,
        decode_s=seconds if lived else None,
        timeout_s=300.0 if late else None,
    )
