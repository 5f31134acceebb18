"""How much of a plan is done and how long the rest may take. Layer: report."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from regimescope.records import Plan, PlannedTrial, Trial


class TimeLeft:
    """Estimates from what was seen: a budget seen before takes what it took, another its share.

    A slow budget must not make the estimate for all others slow, so the rate for budgets not seen
    yet is the median over budgets, not the mean over tokens.
    """

    def __init__(self, plan: Plan | None = None, done: int = 0) -> None:
        """Take up a plan.

        Args:
            plan: What is left to measure.
            done: Trials on disk already, which are not in the plan.
        """
        processes = plan.processes if plan else ()
        self._left: dict[str, PlannedTrial] = {
            trial.trial_id: trial for process in processes for trial in process.trials
        }
        self._done = done
        self._seen_s: dict[int, list[float]] = defaultdict(list)

    @property
    def trials_left(self) -> int:
        """Trials not measured yet, warm-ups left out."""
        return sum(trial.counts for trial in self._left.values())

    @property
    def share_done(self) -> float:
        """Share of the trials that are on disk, 0 to 1; 1 for an empty plan."""
        total = self._done + self.trials_left
        return self._done / total if total else 1.0

    def finish(self, trial: Trial) -> None:
        """Take a trial off the plan and learn from its duration.

        A process that starts again warms up again, under an id the plan does not know.
        """
        self._left.pop(trial.trial_id, None)
        if not trial.warmup:
            self._done += 1
        if trial.e2e_s is not None and trial.cell.budget:
            self._seen_s[trial.cell.budget].append(trial.e2e_s)

    def seconds_left(self) -> float | None:
        """Return the expected seconds of generation left, ``None`` before the first trial."""
        if not self._seen_s:
            return None
        typical_s = {budget: median(times) for budget, times in self._seen_s.items()}
        per_token_s = median(time_s / budget for budget, time_s in typical_s.items())
        budgets = (trial.cell.budget or 0 for trial in self._left.values())
        return sum(typical_s.get(budget, budget * per_token_s) for budget in budgets)
