"""What a compiler of steps did to a measurement, in sentences. Layer: report.

Engines that compile count it in the process since it began (``compiles_count`` and its like, see
``engines.hf_compile``), so that what a trial caused is the difference to the trial before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from regimescope.records import Run, Trial
from regimescope.units import count

_COMPILES, _FALLBACKS = "compiles_count", "compile_fallbacks_count"
_BREAKS = "graph_breaks_count"


def compilation_sentences(run: Run) -> list[str]:
    """Return what was compiled, what fell back and ran uncompiled, and which trials hold it.

    Empty where nothing was compiled, or the engine does not count it.
    """
    processes = _by_process(run.trials)
    if not processes:
        return []
    last = [trials[-1] for trials in processes.values()]
    compiles, breaks = (max(_read(t, name) for t in last) for name in (_COMPILES, _BREAKS))
    sentences = [
        f"steps run compiled: {count(compiles, 'compilation')} in a process"
        + (f", {count(breaks, 'place')} left to Python" if breaks else "")
    ]
    fallen = [t for t in last if _read(t, _FALLBACKS)]
    if fallen:
        most = max(_read(t, _FALLBACKS) for t in fallen)
        sentences.append(
            f"the compiler gave up on {count(most, 'function')} in "
            f"{len(fallen)} of {count(len(last), 'process')}: there steps ran uncompiled"
        )
    late = sum(_compiled_late(trials) for trials in processes.values())
    if late:
        holds = "measured trial holds" if late == 1 else "measured trials hold"
        sentences.append(f"{late} {holds} the time of a compilation")
    return sentences


def _by_process(trials: Sequence[Trial]) -> dict[tuple[str, int | None], list[Trial]]:
    """Return the trials that count compilations, by process, in the order they ran."""
    found: dict[tuple[str, int | None], list[Trial]] = defaultdict(list)
    for trial in trials:
        if trial.counters and _COMPILES in trial.counters:
            found[trial.occasion, trial.process_run].append(trial)
    return dict(found)


def _compiled_late(trials: Sequence[Trial]) -> int:
    """Return how many measured trials of a process compiled something."""
    return sum(
        not trial.warmup and _read(trial, _COMPILES) > _read(before, _COMPILES)
        for before, trial in pairwise(trials)
    )


def _read(trial: Trial, name: str) -> int:
    """Return a count of a trial; 0 where the release of the compiler lacks it."""
    return int((trial.counters or {}).get(name, 0))
