"""What will be measured, in which order. Layer: above ``engines``, below ``measure``.

A plan is made from a spec and a seed alone, so that the same spec always gives the same plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from regimescope.engines.base import Capabilities
from regimescope.errors import CapabilityError, SpecError
from regimescope.records import Cell, ModelFacts, Plan, PlannedProcess, PlannedTrial
from regimescope.spec import Arm, ScanSpec
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
    if spec.observer and not capabilities.unstamped:
        raise CapabilityError(
            f"Engine {spec.engine!r} always synchronizes at every token, so that the observer "
            "effect cannot be measured.",
            remedy="Leave out --observer.",
        )
    if spec.isolation == "inline" and not capabilities.virtual_clock:
        raise CapabilityError(
            f"Engine {spec.engine!r} takes real time, so it must be measured in its own process.",
            remedy="Leave isolation at 'auto'.",
        )


def check_positions(spec: ScanSpec, model: ModelFacts) -> None:
    """Refuse budgets that do not fit into the positions of the model.

    The last token is produced but never read again, so it takes no position.

    Raises:
        CapabilityError: Naming the limit and the largest budget that fits.
    """
    longest = spec.prompt_tokens + spec.budgets[-1] - 1
    if model.positions is None or longest <= model.positions:
        return
    room = model.positions - spec.prompt_tokens + 1
    raise CapabilityError(
        f"Prompt {spec.prompt_tokens} and budget {spec.budgets[-1]} need {longest:,} positions, "
        f"but {spec.model} has {model.positions:,} positions.",
        remedy=(
            f"With this prompt use budgets up to {room}."
            if room >= 2
            else f"Use a shorter prompt: prompt and budget share {model.positions:,} positions."
        ),
    )


# The sentinel is cheap, yet long enough that one slow step does not decide it.
SENTINEL_TOKENS = 32
# Three budgets and six trials on each side are the least that the exact test of the observer
# effect can decide on (method, 1.5 rule 2).
OBSERVED_BUDGETS = 3
OBSERVED_TRIALS = 6


def make_plan(spec: ScanSpec) -> Plan:
    """Return the fixed plan of a spec: complete blocks in seeded order.

    In the warm arm a process run is one full-length warm-up and ``repeats`` blocks; in the fresh
    arm every trial has its own process, with its own warm-up. In nested mode a block is a single
    generation of the largest budget. A sentinel opens and closes each block of several trials and
    stands after every ``sentinel_every`` of them.
    """
    random = np.random.default_rng(spec.seed)
    processes: list[PlannedProcess] = []
    for arm in spec.arms:
        for number in range(spec.processes):
            blocks = [_block(spec, arm, number, repeat, random) for repeat in range(spec.repeats)]
            groups: list[tuple[PlannedTrial, ...]]
            if arm == "fresh":
                groups = [(trial,) for block in blocks for trial in block]
            else:
                groups = [tuple(t for block in blocks for t in _with_sentinels(spec, block))]
            processes.extend(_with_warm_up(spec, arm, group) for group in groups)
    if spec.observer:
        processes.append(_observer_process(spec, random))
    return Plan(seed=spec.seed, processes=tuple(processes))


def _block(
    spec: ScanSpec, arm: Arm, number: int, repeat: int, random: np.random.Generator
) -> tuple[PlannedTrial, ...]:
    """Return one visit to every budget."""
    budgets = spec.budgets[-1:] if spec.mode == "nested" else spec.budgets
    order = {
        "ascending": list(budgets),
        "descending": list(reversed(budgets)),
        "random": random.permutation(np.asarray(budgets)).tolist(),
    }[spec.order]
    prefix = {"warm": "p", "fresh": "f"}[arm]
    return tuple(
        PlannedTrial(
            trial_id=f"{prefix}{number:03d}.b{repeat:03d}.{budget:06d}",
            cell=_cell(spec, budget),
            block=number * spec.repeats + repeat,
            repeat=repeat,
        )
        for budget in order
    )


def _with_sentinels(spec: ScanSpec, block: tuple[PlannedTrial, ...]) -> tuple[PlannedTrial, ...]:
    """Put sentinels around and between the trials of a block."""
    every = spec.sentinel_every
    if every == 0 or len(block) < 2:
        return block
    budget = next((b for b in spec.budgets if b >= SENTINEL_TOKENS), spec.budgets[-1])
    parts = [block[start : start + every] for start in range(0, len(block), every)]
    prefix, _, _ = block[0].trial_id.rpartition(".")
    trials: list[PlannedTrial] = []
    for number, part in enumerate([*parts, ()]):
        sentinel = PlannedTrial(
            trial_id=f"{prefix}.s{number:03d}",
            cell=_cell(spec, budget),
            block=block[0].block,
            repeat=number,
            sentinel=True,
        )
        trials += [sentinel, *part]
    return tuple(trials)


def _observer_process(spec: ScanSpec, random: np.random.Generator) -> PlannedProcess:
    """Return a process that measures a few budgets with and without a stamp at every token."""
    places = np.linspace(0, len(spec.budgets) - 1, min(OBSERVED_BUDGETS, len(spec.budgets)))
    trials = [
        PlannedTrial(
            trial_id=f"o{number:03d}.{'stamped' if stamped else 'plain'}.{budget:06d}",
            cell=_cell(spec, budget),
            block=number,
            repeat=number,
            stamped=stamped,
        )
        for number in range(OBSERVED_TRIALS)
        for budget in sorted({spec.budgets[round(place)] for place in places})
        for stamped in (True, False)
    ]
    shuffled = tuple(trials[k] for k in random.permutation(len(trials)))
    return _with_warm_up(spec, "observer", shuffled)


def _cell(spec: ScanSpec, budget: int) -> Cell:
    """Return the cell of one budget."""
    return Cell(
        budget=budget, prompt_tokens=spec.prompt_tokens, kv_cache=spec.kv_cache, batch=spec.batch
    )


def _with_warm_up(spec: ScanSpec, arm: Arm, trials: tuple[PlannedTrial, ...]) -> PlannedProcess:
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
    return PlannedProcess(arm=arm, trials=(warm_up, *trials))


def remaining(
    plan: Plan, finished: Collection[str], vetoes: Mapping[int, int] | None = None
) -> Plan:
    """Return what is left of a plan.

    A process run that was cut short starts again with a new warm-up, under a new id, since the
    process that was warm is gone; none of its finished trials is repeated. A block that was vetoed
    is measured again as a whole, under ids that end in the number of its vetoes.

    Args:
        plan: The whole plan.
        finished: Ids of the trials that are on disk, whatever their status.
        vetoes: How often each block of the warm arm was vetoed.
    """
    left = []
    for process in plan.processes:
        trials = [_redone(t, vetoes or {}) if process.arm == "warm" else t for t in process.trials]
        todo = tuple(t for t in trials if not t.warmup and t.trial_id not in finished)
        if any(trial.counts for trial in todo):
            warm_ups = _warm_ups(process, finished)
            left.append(PlannedProcess(arm=process.arm, trials=(*warm_ups, *todo)))
    return Plan(seed=plan.seed, processes=tuple(left), skipped=plan.skipped)


def without_budgets(plan: Plan, budgets: Collection[int | None], finished: Collection[str]) -> Plan:
    """Return a plan without what is not yet measured of some budgets; sentinels stay."""

    def stays(trial: PlannedTrial) -> bool:
        return not trial.counts or trial.cell.budget not in budgets or trial.trial_id in finished

    processes = tuple(
        replace(process, trials=tuple(t for t in process.trials if stays(t)))
        for process in plan.processes
    )
    return replace(plan, processes=processes)


def _redone(trial: PlannedTrial, vetoes: Mapping[int, int]) -> PlannedTrial:
    """Return a trial under the id of its latest attempt."""
    attempts = vetoes.get(trial.block, 0)
    if attempts == 0 or trial.warmup:
        return trial
    return replace(trial, trial_id=f"{trial.trial_id}.r{attempts}")


def _warm_ups(process: PlannedProcess, finished: Collection[str]) -> Iterator[PlannedTrial]:
    """Yield the warm-ups of a process under ids that are not taken."""
    for warm_up in process.trials:
        if not warm_up.warmup:
            continue
        trial_id, attempt = warm_up.trial_id, 1
        while trial_id in finished:
            attempt += 1
            trial_id = f"{warm_up.trial_id}.{attempt}"
        yield replace(warm_up, trial_id=trial_id)


def measured(plan: Plan) -> int:
    """Return the number of trials of a plan that count, warm-ups and sentinels left out."""
    return sum(trial.counts for process in plan.processes for trial in process.trials)


def tokens(plan: Plan) -> int:
    """Return the tokens a plan decodes, warm-ups and sentinels included."""
    return sum(trial.cell.budget or 0 for process in plan.processes for trial in process.trials)


def least_block(spec: ScanSpec) -> int:
    """Return the tokens of the smallest complete piece of a plan: a warm-up and one block."""
    (first, *_) = make_plan(replace(spec, processes=1, repeats=1, observer=False)).processes
    return sum(trial.cell.budget or 0 for trial in first.trials)


def check_limits(spec: ScanSpec) -> None:
    """Refuse a limit that leaves no room for one complete block.

    Raises:
        SpecError: Naming the least limit that works.
    """
    least = least_block(spec)
    if spec.max_tokens is not None and spec.max_tokens < least:
        raise SpecError(
            f"max_tokens {spec.max_tokens:,} leaves no room for one complete block.",
            remedy=f"A warm-up and one visit to every budget need {least:,} tokens.",
        )
