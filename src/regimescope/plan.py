"""What will be measured, in which order. Layer: above ``engines``, below ``measure``.

A plan is made from a spec and a seed alone, so that the same spec always gives the same plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from regimescope.engines.base import Capabilities
from regimescope.errors import CapabilityError
from regimescope.records import Cell, ModelFacts, Plan, PlannedProcess, PlannedTrial
from regimescope.spec import ScanSpec
from regimescope.units import listing


def check_capabilities(spec: ScanSpec, capabilities: Capabilities) -> None:
    """Refuse what an engine cannot do, before it is started.

    Raises:
        CapabilityError: Naming the setting and what the engine offers.
    """
    for setting, wanted, offered in (
        ("kv_cache", spec.kv_cache, capabilities.kv_cache),
        ("mode", spec.mode, capabilities.modes),
    ):
        if wanted not in offered:
            raise CapabilityError(
                f"Engine {spec.engine!r} cannot do {setting} {wanted!r}.",
                remedy=f"It offers {setting}: {listing(offered)}.",
            )
    if spec.batch > 1 and not capabilities.batch:
        raise CapabilityError(
            f"Engine {spec.engine!r} decodes one sequence at a time; batch {spec.batch} is asked.",
            remedy="Use batch 1.",
        )
    if spec.isolation == "inline" and not capabilities.virtual_clock:
        raise CapabilityError(
            f"Engine {spec.engine!r} takes real time, so it must be measured in its own process.",
            remedy="Leave isolation at 'auto'.",
        )


def check_positions(spec: ScanSpec, model: ModelFacts) -> None:
    """Refuse budgets that do not fit into the positions of the model.

    Raises:
        CapabilityError: Naming the limit and the largest budget that fits.
    """
    longest = spec.prompt_tokens + spec.budgets[-1]
    if model.positions is None or longest <= model.positions:
        return
    room = model.positions - spec.prompt_tokens
    fits = [budget for budget in spec.budgets if budget <= room]
    raise CapabilityError(
        f"Prompt {spec.prompt_tokens} plus budget {spec.budgets[-1]} is {longest} tokens, but "
        f"{spec.model} has {model.positions:,} positions.",
        remedy=(
            f"With this prompt use budgets up to {room}."
            if fits
            else f"Use a shorter prompt and budgets that sum to {model.positions:,} at most."
        ),
    )


def make_plan(spec: ScanSpec) -> Plan:
    """Return the fixed plan of a spec: complete blocks in seeded random order.

    In the warm arm a process run is one full-length warm-up and ``repeats`` blocks; in the fresh
    arm every trial has its own process, with its own warm-up. In nested mode a block is a single
    generation of the largest budget.
    """
    random = np.random.default_rng(spec.seed)
    budgets = spec.budgets[-1:] if spec.mode == "nested" else spec.budgets
    processes: list[PlannedProcess] = []
    for number in range(spec.processes):
        trials: list[PlannedTrial] = []
        for repeat in range(spec.repeats):
            block = number * spec.repeats + repeat
            for budget in random.permutation(np.asarray(budgets)).tolist():
                trial_id = f"p{number:03d}.b{repeat:03d}.{budget:06d}"
                cell = _cell(spec, budget)
                trials.append(
                    PlannedTrial(trial_id=trial_id, cell=cell, block=block, repeat=repeat)
                )
        groups = [trials] if spec.arm == "warm" else [[trial] for trial in trials]
        processes.extend(_with_warm_up(spec, group) for group in groups)
    return Plan(seed=spec.seed, processes=tuple(processes))


def _cell(spec: ScanSpec, budget: int) -> Cell:
    """Return the cell of one budget."""
    return Cell(
        budget=budget, prompt_tokens=spec.prompt_tokens, kv_cache=spec.kv_cache, batch=spec.batch
    )


def _with_warm_up(spec: ScanSpec, trials: list[PlannedTrial]) -> PlannedProcess:
    """Put a warm-up at the largest budget of the process before its trials (method, 1.5)."""
    longest = max(trial.cell.budget or 0 for trial in trials)
    first = trials[0]
    warm_up = PlannedTrial(
        trial_id=f"{first.trial_id}.warmup",
        cell=_cell(spec, longest),
        block=first.block,
        repeat=0,
        warmup=True,
    )
    return PlannedProcess(trials=(warm_up, *trials))


def remaining(plan: Plan, finished: Collection[str]) -> Plan:
    """Return what is left of a plan.

    A process run that was cut short starts again with a new warm-up, under a new id, since the
    process that was warm is gone; none of its finished trials is repeated.

    Args:
        plan: The whole plan.
        finished: Ids of the trials that are on disk, whatever their status.
    """
    left = []
    for process in plan.processes:
        trials = tuple(t for t in process.trials if not t.warmup and t.trial_id not in finished)
        if trials:
            left.append(PlannedProcess(trials=(*_warm_ups(process, finished), *trials)))
    return Plan(seed=plan.seed, processes=tuple(left), skipped=plan.skipped)


def _warm_ups(process: PlannedProcess, finished: Collection[str]) -> Iterable[PlannedTrial]:
    """Return the warm-ups of a process under ids that are not taken."""
    for warm_up in process.trials:
        if not warm_up.warmup:
            continue
        trial_id, attempt = warm_up.trial_id, 1
        while trial_id in finished:
            attempt += 1
            trial_id = f"{warm_up.trial_id}.{attempt}"
        yield PlannedTrial(
            trial_id=trial_id, cell=warm_up.cell, block=warm_up.block, repeat=0, warmup=True
        )


def measured(plan: Plan) -> int:
    """Return the number of trials of a plan that count, warm-ups left out."""
    return sum(not trial.warmup for process in plan.processes for trial in process.trials)


def tokens(plan: Plan) -> int:
    """Return the tokens a plan decodes, warm-ups included."""
    return sum(trial.cell.budget or 0 for process in plan.processes for trial in process.trials)
