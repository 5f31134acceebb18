"""Whether a run holds every trial that it planned. Layer: ``analysis``.

A folder can lack trials without saying so: a copy that broke off, a file cut short, a process that
was killed. What is missing must not count as measured (method, section 15).
"""

from __future__ import annotations

from regimescope.growth import replayed
from regimescope.plan import measured, remaining, without_values
from regimescope.reasons import Reason
from regimescope.records import Plan, Run
from regimescope.stopping import skipped_values, vetoes


def reasons_for_stopping(run: Run) -> list[Reason]:
    """Return why the latest invocation ended early; a run that is complete has no reason."""
    ends = [event for event in run.events if event.kind in ("stop", "done")]
    reasons = [ends[-1].reason] if ends and ends[-1].reason is not None else []
    stopped = bool(ends) and ends[-1].kind == "stop"
    if not stopped and Reason.LIMIT_REACHED not in reasons and is_unfinished(run):
        reasons.append(Reason.LIMIT_REACHED)
    return reasons


def is_unfinished(run: Run) -> bool:
    """Return whether a scan lacks planned trials, or a search its end."""
    spec = run.header.spec
    if run.header.source != "scan" or spec is None or run.header.plan is None or not run.events:
        return False  # an import, or records in memory that never were a run of ours
    ended = any(event.kind in ("stop", "done") for event in run.events)
    return missing_trials(run) > 0 or (not spec.budgets and not ended)


def planned(run: Run) -> Plan:
    """Return everything that a run planned, as far as it had come; empty for an import."""
    begun = run.header.plan or Plan(seed=0, processes=())
    return replayed(begun, run.events)


def missing_trials(run: Run) -> int:
    """Return the number of planned trials that a run has no record of.

    Args:
        run: The run, or one arm of it; what other arms planned is not looked for.
    """
    arms = {trial.series.arm for trial in run.trials}
    finished = {trial.trial_id for trial in run.trials}
    whole = planned(run)
    if arms:
        processes = tuple(p for p in whole.processes if p.arm in arms)
        whole = Plan(seed=whole.seed, processes=processes)
    wanted = without_values(whole, skipped_values(run), finished, run.header.axis)
    return measured(remaining(wanted, finished, vetoes(run)))
