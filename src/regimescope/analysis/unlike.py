"""What differs between two runs: what forbids a comparison, and what may explain it.

Layer: ``analysis``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from regimescope import axes
from regimescope.analysis.sweep import primary_series, select
from regimescope.errors import InputError
from regimescope.reasons import Reason
from regimescope.records import Cell, Run, Trial
from regimescope.units import listing

# What decides a latency and was chosen for the run; everything else may be what is compared.
FIXED_SERIES = ("arm", "mode")
# Facts of the model and the machine that are worth naming beside a change.
_SETTINGS = ("threads", "attention", "cache", "compile", "server")


def refuse_unlike(before: Run, after: Run, *, besides: tuple[str, ...] = ()) -> None:
    """Refuse two runs whose latencies are not those of the same request.

    Args:
        before: A run.
        after: Another one.
        besides: Settings that may differ, because they are what is compared.

    Raises:
        InputError: Naming every setting that differs, with both values.
    """
    unlike: list[tuple[str, str, str]] = []
    if before.header.axis != after.header.axis:
        unlike.append(("axis", before.header.axis, after.header.axis))
    else:
        old, new = _fixed(before), _fixed(after)
        unlike += [
            (name, old[name], new[name])
            for name in old
            if name not in besides and old[name] and new[name] and old[name] != new[name]
        ]
    if unlike:
        named = [f"{name.replace('_', ' ')} ({a} against {b})" for name, a, b in unlike]
        raise InputError(
            Reason.MIXED_SERIES,
            f"{before.header.run} and {after.header.run} measured different things: "
            f"{listing(named, most=20)}.",
            remedy="To see what the KV cache buys, add --kv-cache."
            if [name for name, *_ in unlike] == ["kv_cache"]
            else "Compare runs of the same axis and the same fixed settings.",
        )


def differences(before: Run, after: Run) -> dict[str, tuple[str, str]]:
    """Return what else differs: engine, its options, model, device, versions, machine.

    What only one run knows is no difference, except for an option that only one was given.
    """
    old, new = _circumstances(before), _circumstances(after)
    found = {
        name: (old[name], new[name])
        for name in old
        if name in new and old[name] and new[name] and old[name] != new[name]
    }
    given = _options(before), _options(after)
    for name in dict.fromkeys([*given[0], *given[1]]):
        pair = (given[0].get(name, "not given"), given[1].get(name, "not given"))
        if pair[0] != pair[1]:
            found[f"option {name}"] = pair
    return found


def _options(run: Run) -> dict[str, str]:
    """Return the options that the engine was given, as text."""
    spec = run.header.spec
    return {} if spec is None else {name: str(v) for name, v in spec.engine_options.items()}


def _fixed(run: Run) -> dict[str, str]:
    """Return the settings that must agree, as text; empty where the run does not know one."""
    trials = _measured(run)
    swept = axes.LAWS[run.header.axis].field if run.header.axis in axes.LAWS else ""
    found = {name: _values(getattr(t.series, name) for t in trials) for name in FIXED_SERIES}
    found |= {
        name: _values(getattr(t.cell, name) for t in trials)
        for name in Cell.__struct_fields__
        if name != swept
    }
    return found | {"phase": _values(t.phase for t in trials)}


def _measured(run: Run) -> tuple[Trial, ...]:
    """Return the trials that the verdict rests on, or all where none does."""
    return select(primary_series(run)).trials or run.trials


def _values(values: Iterable[Any]) -> str:
    """Return distinct values as text; nothing where one is unknown."""
    found = set(values)
    return "" if None in found else listing(sorted(map(str, found)))


def _circumstances(run: Run) -> dict[str, str]:
    """Return what a reader would want to know of how a run came about."""
    header, trials = run.header, _measured(run)
    known = {
        name: _values(getattr(t.series, name) for t in trials)
        for name in ("engine", "model", "dtype", "device")
    }
    known |= {name: str(version) for name, version in header.versions.items()}
    if header.model is not None:
        known["device name"] = header.model.description or ""
        known |= {
            name: str(header.model.settings[name])
            for name in _SETTINGS
            if name in header.model.settings
        }
    host = header.host or {}
    known |= {
        name: str(host[name]) for name in ("processor", "system", "machine") if host.get(name)
    }
    return known
