"""The trials of a run as columns, for notebooks and files of tables. Layer: ``store``.

``pandas.DataFrame(trial_columns(run))`` and ``polars.DataFrame(trial_columns(run))`` make data
frames of them; so do ``gap_columns`` with one row per inter-token gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from regimescope.metrics import tpot_s
from regimescope.records import Cell, Run, Series, Trial

Columns = dict[str, npt.NDArray[Any]]

# Fields of a trial that hold one value each; lists and tables get columns of their own.
_PLAIN = (
    "status", "warmup", "sentinel", "phase", "process_run", "block", "repeat", "order_index",
    "start_ns", "start_utc", "idle_before_s", "cached_tokens", "output_tokens", "decode_steps",
    "ttft_s", "decode_s", "e2e_s",
)  # fmt: skip
_LATER = ("stage", "synced", "abort_at", "projected_s", "timeout_s", "message")


def trial_lists(run: Run) -> dict[str, list[Any]]:
    """Return one list per column, ``None`` where a trial has no value.

    Columns: ``run``, ``trial_id``, ``occasion``; the fields of ``Series``, ``Cell`` and ``Trial``
    that hold one value; ``tpot_s``; ``reasons`` as codes joined by blanks; ``memory_KIND_bytes``
    and ``counter_NAME`` for every reading that any trial has. Gaps, chunks and samples are left
    out.
    """
    trials = run.trials
    columns: dict[str, list[Any]] = {
        "run": [run.header.run] * len(trials),
        "trial_id": [t.trial_id for t in trials],
        "occasion": [t.occasion for t in trials],
    }
    columns |= {n: [getattr(t.series, n) for t in trials] for n in Series.__struct_fields__}
    columns |= {n: [getattr(t.cell, n) for t in trials] for n in Cell.__struct_fields__}
    columns |= {name: [getattr(t, name) for t in trials] for name in _PLAIN}
    columns["tpot_s"] = [_tpot_s(trial) for trial in trials]
    columns |= {name: [getattr(t, name) for t in trials] for name in _LATER}
    columns["reasons"] = [" ".join(r.value for r in t.reasons or ()) or None for t in trials]
    columns |= _readings(trials, "memory_{}_bytes", lambda trial: trial.memory_bytes)
    return columns | _readings(trials, "counter_{}", lambda trial: trial.counters)


def trial_columns(run: Run) -> Columns:
    """Return the columns of ``trial_lists`` as arrays of shape (trials,).

    Numbers with missing values become floats with NaN, texts and flags become objects with
    ``None``; without missing values whole numbers stay whole.
    """
    return {name: _array(values) for name, values in trial_lists(run).items()}


def gap_columns(run: Run) -> Columns:
    """Return one row per gap between two tokens, as arrays of shape (gaps,).

    Columns: ``trial`` (its row in ``trial_columns``), ``gap`` (0 for the one after the first
    token), ``context_length`` (depth, prompt and the tokens before the gap; -1 where the prompt is
    unknown) and ``itl_s``. Trials without gaps have no rows.
    """
    with_gaps = [(row, trial) for row, trial in enumerate(run.trials) if trial.itl_s]
    sizes = np.array([len(trial.itl_s or ()) for _, trial in with_gaps], dtype=np.int64)
    rows = np.array([row for row, _ in with_gaps], dtype=np.int64)
    starts = np.array([_first_context(trial.cell) for _, trial in with_gaps], dtype=np.int64)
    ends = np.cumsum(sizes)
    gap = np.arange(ends[-1] if sizes.size else 0) - np.repeat(ends - sizes, sizes)
    known = np.repeat(starts, sizes)
    return {
        "trial": np.repeat(rows, sizes),
        "gap": gap,
        "context_length": np.where(known < 0, -1, known + gap),
        "itl_s": np.concatenate([np.empty(0), *(np.asarray(t.itl_s) for _, t in with_gaps)]),
    }


def _first_context(cell: Cell) -> int:
    """Return the context length of the first gap (formats, section 0), -1 if it is unknown."""
    return -1 if cell.prompt_tokens is None else (cell.depth or 0) + cell.prompt_tokens + 1


def _tpot_s(trial: Trial) -> float | None:
    """Return seconds per output token after the first, ``None`` where the trial has none."""
    if trial.ttft_s is None or trial.e2e_s is None or trial.output_tokens is None:
        return None
    return tpot_s(trial.ttft_s, trial.e2e_s, trial.output_tokens)


def _readings(
    trials: Sequence[Trial], named: str, of: Callable[[Trial], dict[str, Any] | None]
) -> dict[str, list[Any]]:
    """Return a column for every reading that any trial has, in alphabetical order."""
    kinds = sorted({kind for trial in trials for kind in of(trial) or ()})
    return {named.format(kind): [(of(t) or {}).get(kind) for t in trials] for kind in kinds}


def _array(values: Iterable[Any]) -> npt.NDArray[Any]:
    """Return a column as an array; see ``trial_columns`` for missing values."""
    listed = list(values)
    present = [value for value in listed if value is not None]
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in present)
    if present and len(present) == len(listed) and (numbers or _are_flags(present)):
        return np.array(listed)
    if present and numbers:
        return np.array([np.nan if v is None else v for v in listed], dtype=np.float64)
    array = np.empty(len(listed), dtype=object)
    array[:] = listed
    return array


def _are_flags(values: Sequence[Any]) -> bool:
    """Return whether all values are true or false."""
    return all(isinstance(value, bool) for value in values)
