"""What will be measured, in which order. Layer: below ``measure``.

A plan is made from a spec and a seed alone, so that the same spec always gives the same plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from regimescope import axes
from regimescope.records import Cell, Plan, PlannedProcess, PlannedTrial
from regimescope.search.screening import CALIBRATION_REPEATS, calibration_values, grid
from regimescope.spec import DEFAULT_HIGH, MAX_BUDGET, Arm, Axis, ScanSpec

# Sequences decoded together; a spec allows as many.
MAX_BATCH = 4096

# The sentinel is cheap, yet long enough that one slow step does not decide it.
SENTINEL_TOKENS = 32
# A search opens many processes, each with its sentinels; 64 tokens are a twentieth of their cost.
SEARCH_SENTINEL = 64
# Three budgets and six trials on each side are the least that the exact test of the observer
# effect can decide on (method, 1.5 rule 2).
OBSERVED_BUDGETS = 3
OBSERVED_TRIALS = 6


def make_plan(spec: ScanSpec) -> Plan:
    """Return the fixed plan of a spec: complete blocks in seeded order; empty for a search.

    In the warm arm a process run is one full-length warm-up and ``repeats`` blocks; in the fresh
    arm every trial has its own process, with its own warm-up. In nested mode a block is a single
    generation of the largest budget. A sentinel opens and closes each block of several trials and
    stands after every ``sentinel_every`` of them.
    """
    random = np.random.default_rng(spec.seed)
    processes: list[PlannedProcess] = []
    for arm in spec.arms if spec.budgets else ():
        for number in range(spec.processes):
            blocks = [_block(spec, arm, number, repeat, random) for repeat in range(spec.repeats)]
            groups: list[tuple[PlannedTrial, ...]]
            if arm == "fresh":
                groups = [(trial,) for block in blocks for trial in block]
            else:
                groups = [tuple(t for block in blocks for t in with_sentinels(spec, block))]
            processes.extend(with_warm_up(spec, arm, group) for group in groups)
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


def with_sentinels(
    spec: ScanSpec,
    block: tuple[PlannedTrial, ...],
    *,
    opens: bool = True,
    closes: bool = True,
    first: int = 0,
) -> tuple[PlannedTrial, ...]:
    """Put sentinels around and between the trials of a block.

    Args:
        spec: How often.
        block: The trials; not empty.
        opens: Whether one stands before them.
        closes: Whether one stands after them.
        first: Ordinal of the first sentinel.
    """
    every = spec.sentinel_every
    if every == 0 or (len(block) < 2 and opens and closes):
        return block
    prefix, _, _ = block[0].trial_id.rpartition(".")
    trials: list[PlannedTrial] = []

    def add_sentinel() -> None:
        number = first + sum(trial.sentinel for trial in trials)
        trials.append(
            PlannedTrial(
                trial_id=f"{prefix}.s{number:03d}",
                cell=axes.at(base_cell(spec), spec.axis, sentinel_value(spec)),
                block=block[0].block,
                repeat=number,
                sentinel=True,
            )
        )

    for start in range(0, len(block), every):
        if start or opens:
            add_sentinel()
        trials += block[start : start + every]
    if closes:
        add_sentinel()
    return tuple(trials)


def sentinel_value(spec: ScanSpec) -> int:
    """Return the place of the sentinel: the first that one slow step does not decide."""
    if spec.axis != "budget":
        return spec.budgets[0] if spec.budgets else spec.low
    if not spec.budgets:
        return max(min(spec.low, SEARCH_SENTINEL), 2)
    return next((b for b in spec.budgets if b >= SENTINEL_TOKENS), spec.budgets[-1])


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
    return with_warm_up(spec, "observer", shuffled)


def base_cell(spec: ScanSpec) -> Cell:
    """Return what all cells of a spec have in common."""
    return Cell(
        budget=spec.budget,
        prompt_tokens=spec.prompt_tokens,
        depth=spec.depth,
        capacity=spec.capacity,
        kv_cache=spec.kv_cache,
        batch=spec.batch,
    )


def _cell(spec: ScanSpec, budget: int) -> Cell:
    """Return the cell of one budget, or of one value of another axis."""
    return axes.at(base_cell(spec), spec.axis, budget)


def with_warm_up(spec: ScanSpec, arm: Arm, trials: tuple[PlannedTrial, ...]) -> PlannedProcess:
    """Put a warm-up at the largest value of the process before its trials (method, 1.5)."""
    longest = max(axes.value(trial.cell, spec.axis) or 0 for trial in trials)
    first = trials[0]
    warm_up = PlannedTrial(
        trial_id=f"{first.trial_id}.warmup",
        cell=axes.at(base_cell(spec), spec.axis, longest),
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
    process that was warm is gone; none of its finished trials is repeated. What is left of a block
    is opened by a sentinel anew, since sentinels are compared within one process. A block that was
    vetoed is measured again as a whole, under ids that end in the number of its vetoes.

    Args:
        plan: The whole plan.
        finished: Ids of the trials that are on disk, whatever their status.
        vetoes: How often each block of the warm arm was vetoed.
    """
    left = []
    for process in plan.processes:
        trials = [_redone(t, vetoes or {}) if process.arm == "warm" else t for t in process.trials]
        todo = tuple(t for t in trials if not t.warmup and t.trial_id not in finished)
        if todo:  # a closing sentinel alone is worth it: without it nobody judges its block
            opening = _opening(process, todo[0], finished, vetoes or {})
            first = (*_warm_ups(process, finished), *opening)
            left.append(PlannedProcess(arm=process.arm, trials=(*first, *todo)))
    return Plan(seed=plan.seed, processes=tuple(left), skipped=plan.skipped)


def without_values(
    plan: Plan, values: Collection[int | None], finished: Collection[str], axis: Axis
) -> Plan:
    """Return a plan without what is not yet measured of some values; sentinels stay.

    A process run that was to warm up at such a value does so at the largest one that is left to
    it; one that has none left is not opened for its sentinels alone.
    """

    def stays(trial: PlannedTrial) -> bool:
        unwanted = trial.counts and axes.value(trial.cell, axis) in values
        return not unwanted or trial.trial_id in finished

    def shortened(process: PlannedProcess) -> PlannedProcess:
        kept = tuple(t for t in process.trials if stays(t))
        if len(kept) == len(process.trials):
            return process
        counting = [t for t in kept if t.counts]
        if not counting:
            return replace(process, trials=tuple(t for t in kept if t.trial_id in finished))
        longest = max(counting, key=lambda t: axes.value(t.cell, axis) or 0)
        return replace(
            process,
            trials=tuple(replace(t, cell=longest.cell) if t.warmup else t for t in kept),
        )

    return replace(plan, processes=tuple(shortened(process) for process in plan.processes))


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


def _opening(
    process: PlannedProcess,
    first: PlannedTrial,
    finished: Collection[str],
    vetoes: Mapping[int, int],
) -> Iterator[PlannedTrial]:
    """Yield a sentinel before a trial in the middle of a block that has sentinels."""
    sentinels = (t for t in process.trials if t.sentinel and t.block == first.block)
    sentinel = next(sentinels, None)
    if sentinel is None or first.sentinel:
        return
    attempt = 2
    copy = sentinel
    while (copy := _redone(_renamed(sentinel, attempt), vetoes)).trial_id in finished:
        attempt += 1
    yield copy


def _renamed(trial: PlannedTrial, attempt: int) -> PlannedTrial:
    """Return a trial under the id of another attempt at it."""
    return replace(trial, trial_id=f"{trial.trial_id}.{attempt}")


def refuse_impossible(processes: Iterable[PlannedProcess]) -> None:
    """Refuse planned trials that no spec can have asked for; a stored plan may come from anybody.

    Raises:
        ValueError: A length is beyond the largest one, or so is the batch.
    """
    for process in processes:
        for trial in process.trials:
            cell = trial.cell
            lengths = (cell.budget, cell.prompt_tokens, cell.depth, cell.capacity)
            fits = all(n is None or 0 <= n <= MAX_BUDGET for n in lengths)
            if not fits or (cell.batch is not None and not 1 <= cell.batch <= MAX_BATCH):
                raise ValueError(f"the planned trial {trial.trial_id!r} asks for what cannot be")


def measured(plan: Plan) -> int:
    """Return the number of trials of a plan that count, warm-ups and sentinels left out."""
    return sum(trial.counts for process in plan.processes for trial in process.trials)


def tokens(plan: Plan) -> int:
    """Return the tokens a plan decodes, warm-ups and sentinels included."""
    return sum(trial.cell.budget or 0 for process in plan.processes for trial in process.trials)


def least_block(spec: ScanSpec) -> int:
    """Return the tokens of the smallest complete piece of a plan: a warm-up and one block.

    For a search that is its calibration and screen.
    """
    if not spec.budgets:
        return _least_screen(spec)
    (first, *_) = make_plan(replace(spec, processes=1, repeats=1, observer=False)).processes
    return sum(trial.cell.budget or 0 for trial in first.trials)


def _least_screen(spec: ScanSpec) -> int:
    """Return the tokens that a search takes before it knows anything."""
    high = spec.high or DEFAULT_HIGH
    values = [
        high,
        *CALIBRATION_REPEATS * calibration_values(spec.low, high),
        *grid(spec.low, high, spec.min_width, np.random.default_rng(spec.seed)),
    ]
    return sum(values) if spec.axis == "budget" else spec.budget * len(values)
