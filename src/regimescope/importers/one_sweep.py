"""One sweep out of all measurements that files hold. Layer: ``importers``.

Source: formats, section 0. The axis is the one quantity that varies; the rest must agree. What
belongs to another sweep is left out, counted and named, never pooled.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from regimescope import axes
from regimescope.errors import InputError
from regimescope.importers.foreign import Found
from regimescope.reasons import Reason
from regimescope.records import SCHEMA_VERSION, Cell, Event, Phase, Run, RunHeader, Series, Trial
from regimescope.spec import Axis
from regimescope.units import count, listing, utc_now

# A verdict takes six values; from three on a curve can at least be shown.
LEAST_VALUES = 3
MAX_LISTED = 20
# In this order where several quantities vary equally often.
_AXES: tuple[Axis, ...] = ("budget", "prompt", "context", "batch")
_WORDS = {"prompt_tokens": "prompt"}


class FileOf(NamedTuple):
    """A file by its name, what it holds, and whether each of its parts was a process."""

    name: str
    found: Found
    is_process: bool


class _Group(NamedTuple):
    """What must agree: axis, phase, series, the cell without the axis, settings."""

    axis: Axis
    phase: Phase
    series: Series
    cell: Cell
    settings: tuple[tuple[str, str], ...]


def one_sweep(source: str, files: Sequence[FileOf], axis: Axis | None) -> Run:
    """Return the measurements of the largest sweep in files of one format.

    Args:
        source: Name of the format.
        files: What was read.
        axis: The axis to take, or ``None`` for the one with the most values.

    Raises:
        InputError: More than half of the records cannot be measurements, or none of the axes has
            three values where all the rest agrees.
    """
    trials = [trial for k, file in enumerate(files) for trial in _placed(k, file, len(files) > 1)]
    _refuse_rejected(files, len(trials))
    group, chosen = _largest(trials, axis)
    events = [_skipped(text) for text in _left_out(trials, chosen, group)]
    events += [_skipped(text) for file in files for text in _file_notes(file)]
    header = RunHeader(
        schema_version=SCHEMA_VERSION,
        run=" + ".join(file.name for file in files),
        created_utc=utc_now(),
        axis=group.axis,
        source=source,
    )
    return Run(header=header, trials=tuple(_numbered(chosen, group)), events=tuple(events))


def _placed(ordinal: int, file: FileOf, several: bool) -> Iterator[Trial]:
    """Yield the trials of a file with ids, occasion and process of their own."""
    for trial in file.found.trials:
        process = None
        if file.is_process:
            # Far apart, so that parts of one file and files stay different.
            process = ordinal * 10_000 + (trial.process_run or 0)
        yield replace(
            trial,
            trial_id=f"{ordinal}:{trial.trial_id}" if several else trial.trial_id,
            # A file of one point each is a process of one occasion, as far as anybody knows.
            occasion="import" if file.is_process else f"{ordinal}:{file.name}",
            process_run=process,
        )


def _refuse_rejected(files: Sequence[FileOf], kept: int) -> None:
    """Refuse files of which more cannot be read than can."""
    rejected = [f"{file.name}: {text}" for file in files for text in file.found.rejected]
    if kept and len(rejected) <= kept:
        return
    shown = rejected[:MAX_LISTED]
    if len(rejected) > MAX_LISTED:
        shown.append(f"and {len(rejected) - MAX_LISTED} more")
    raise InputError(
        Reason.INVALID_LATENCY if rejected else Reason.EMPTY,
        "\n".join(shown or [f"{listing(f.name for f in files)} holds no measurement."]),
        remedy="Correct or remove these records." if rejected else "Give a file with results.",
    )


def _largest(trials: Sequence[Trial], axis: Axis | None) -> tuple[_Group, list[Trial]]:
    """Return the group with the most values of its axis, and its trials.

    Raises:
        InputError: No group has three values.
    """
    groups: dict[_Group, list[Trial]] = defaultdict(list)
    for each in (axis,) if axis is not None else _AXES:
        for trial in trials:
            key = _group_of(trial, each)
            if key is not None:
                groups[key].append(trial)

    def rank(key: _Group) -> tuple[int, int]:
        good = [trial for trial in groups[key] if trial.status == "ok"]
        return len({axes.value(trial.cell, key.axis) for trial in good}), len(good)

    best = max(groups, key=rank, default=None)
    if best is None or rank(best)[0] < LEAST_VALUES:
        most = "none" if best is None else f"{rank(best)[0]} at most, on {best.axis}"
        raise InputError(
            Reason.TOO_FEW_BUDGETS,
            f"No quantity takes {LEAST_VALUES} values where all the rest agrees ({most}).",
            remedy="Give all files of one sweep together, or name --axis "
            f"({listing(_AXES)}) and lengths that the files lack.",
        )
    return best, groups[best]


def _group_of(trial: Trial, axis: Axis) -> _Group | None:
    """Return the group of a trial on an axis; ``None`` where it does not stand on it."""
    if axes.value(trial.cell, axis) is None:
        return None
    phase = trial.phase
    if axis == "prompt":
        if trial.status == "ok" and trial.ttft_s is None:
            return None
        phase = "prefill"
    elif phase == "prefill" and axis == "budget":
        return None
    cell = replace(trial.cell, **{axes.LAWS[axis].field: None})
    settings: Mapping[str, str] = (trial.env or {}).get("settings", {})
    return _Group(axis, phase, trial.series, cell, tuple(sorted(settings.items())))


def _left_out(trials: Sequence[Trial], chosen: Sequence[Trial], group: _Group) -> Iterator[str]:
    """Yield, for each other sweep, how much of it was left out and how it differs."""
    kept = {trial.trial_id for trial in chosen}
    others = Counter(_differences(t, group) for t in trials if t.trial_id not in kept)
    for what, times in others.most_common(MAX_LISTED):
        yield f"{count(times, 'measurement')} of another sweep left out: {what}"
    rest = len(others) - MAX_LISTED
    if rest > 0:
        yield f"{count(rest, 'other sweep')} left out"


def _differences(trial: Trial, group: _Group) -> str:
    """Return in what a trial differs from a sweep."""
    unimportant = {axes.LAWS[group.axis].field}
    parts: list[str] = []
    if trial.phase != group.phase:
        # What such measurements sweep themselves makes no difference to this sweep.
        parts.append(f"{trial.phase} instead of {group.phase}")
        unimportant |= {"budget", "prompt_tokens"}
    for mine, theirs in ((trial.series, group.series), (trial.cell, group.cell)):
        for name in mine.__struct_fields__:
            value = getattr(mine, name)
            if name in unimportant or value is None or value == getattr(theirs, name):
                continue
            parts.append(f"{_WORDS.get(name, name)} {value}")
    known = dict(group.settings)
    settings: Mapping[str, str] = (trial.env or {}).get("settings", {})
    parts += [f"{name} {value}" for name, value in settings.items() if known.get(name) != value]
    return listing(parts) or f"no value on the axis {group.axis}"


def _file_notes(file: FileOf) -> Iterator[str]:
    """Yield what was rejected and dropped of a file."""
    rejected = file.found.rejected
    if rejected:
        shown = listing(rejected, most=3)
        yield f"{file.name}: {count(len(rejected), 'record')} rejected: {shown}"
    for why, times in sorted(file.found.dropped.items()):
        yield f"{file.name}: {count(times, 'record')} left out: {why}"


def _skipped(message: str) -> Event:
    return Event(kind="skip", at_utc=utc_now(), message=message)


def _numbered(trials: Sequence[Trial], group: _Group) -> list[Trial]:
    """Return trials numbered in time where the file tells it, with the reasons that follow.

    One pass up or down mixes time with the axis.
    """
    if any(trial.order_index is None for trial in trials):
        return list(trials)
    ordered = sorted(trials, key=lambda t: (t.occasion, t.process_run or 0, t.order_index or 0))
    visits: Counter[tuple[str, int | None]] = Counter()
    values: dict[tuple[str, int | None], list[int]] = defaultdict(list)
    found = []
    for trial in ordered:
        key = (trial.occasion, trial.process_run)
        found.append(replace(trial, order_index=visits[key]))
        visits[key] += 1
        values[key].append(axes.value(trial.cell, group.axis) or 0)
    sequences = list(values.values())
    one_way = all(seen in (sorted(seen), sorted(seen, reverse=True)) for seen in sequences)
    if not one_way or all(len(set(seen)) < 2 for seen in sequences):
        return found
    more = [Reason.FIXED_ORDER, Reason.TIME_AND_AXIS_CONFOUNDED]
    return [_with(trial, more) for trial in found]


def _with(trial: Trial, reasons: Sequence[Reason]) -> Trial:
    """Return a trial with further reasons, each once."""
    both: list[Any] = [*(trial.reasons or ()), *reasons]
    return replace(trial, reasons=list(dict.fromkeys(both)))
