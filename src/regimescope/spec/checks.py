"""Values of a spec that cannot be measured, refused before anything is started. Layer: ``spec``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from regimescope.errors import SpecError
from regimescope.spec.budgets import LEAST, MAX_BUDGET, ascent_error, check_budgets
from regimescope.spec.scan_spec import (
    DEFAULT_HIGH,
    Axis,
    Isolation,
    KvCache,
    Mode,
    Order,
    ScanSpec,
)
from regimescope.units import listing

SEARCHED_AXES: tuple[Axis, ...] = ("budget", "context", "prompt", "capacity")
# The other axes are met in imports only.
CHOICES: dict[str, tuple[str, ...]] = {
    "axis": SEARCHED_AXES,
    "isolation": get_args(Isolation),
    "kv_cache": get_args(KvCache),
    "mode": get_args(Mode),
    "order": get_args(Order),
}


def check_choices(table: Mapping[str, Any]) -> None:
    """Refuse a setting that is not one of its choices."""
    for name, choices in CHOICES.items():
        if table.get(name, choices[0]) not in choices:
            raise SpecError(
                f"{option(name)} {table[name]!r} is not known.",
                remedy=f"Choose one of: {listing(choices)}.",
            )


def option(name: str) -> str:
    """Return a key of a spec as the option that sets it."""
    return f"--{name.replace('_', '-')}"


def check_spec(spec: ScanSpec) -> None:
    """Refuse a spec whose values are out of range or contradict each other.

    Raises:
        SpecError: Naming the key and the bound.
    """
    check_choices({name: getattr(spec, name) for name in CHOICES})
    _check_arms(spec)
    for key, low, high in (
        ("low", 0, MAX_BUDGET),
        ("high", 2, MAX_BUDGET),
        ("min_width", 1, MAX_BUDGET),
        ("prevalence", 0.05, 1),
        ("budget", 2, MAX_BUDGET),
        ("prompt_tokens", 1, MAX_BUDGET),
        ("depth", 0, MAX_BUDGET),
        ("capacity", 2, MAX_BUDGET),
        ("batch", 1, 4096),
        ("processes", 1, 1000),
        ("repeats", 1, 1000),
        ("seed", 0, 2**32 - 1),
        ("warm_up_s", 0, 3600),
        ("trial_timeout_s", 1, 7 * 86400),
        ("sentinel_every", 0, 1000),
        ("counters_every", 0, MAX_BUDGET),
        ("max_seconds", 1, 30 * 86400),
        ("max_tokens", 1, 10**12),
    ):
        value = getattr(spec, key)
        if value is not None and not low <= value <= high:
            raise SpecError(
                f"{_RANGE.get(key) or option(key)} is {value:,}, outside {low:,} to {high:,}.",
                remedy="Choose a value within these bounds.",
            )
    _check_swept(spec)
    check_budget(spec.axis, None if spec.budget == ScanSpec().budget else spec.budget)
    if spec.budgets:
        _check_fixed(spec)
    else:
        _check_search(spec)


def check_budget(axis: Axis, budget: int | None) -> None:
    """Refuse a budget for every trial, if one is given, where the budget itself is swept."""
    if axis == "budget" and budget is not None:
        raise SpecError(
            "--budget needs another axis; on budget it is what is swept.",
            remedy="Give --range or --budgets, or another --axis.",
        )


def _check_swept(spec: ScanSpec) -> None:
    """Refuse a fixed value of what is swept."""
    for axis, name, value in (
        ("context", "depth", spec.depth),
        ("capacity", "capacity", spec.capacity),
    ):
        if spec.axis == axis and value is not None:
            raise SpecError(
                f"{option(name)} needs another axis; on {axis} it is what is swept.",
                remedy="Give --range, or another --axis.",
            )


def check_beside_resume(names: Iterable[str]) -> None:
    """Refuse settings, named by their keys, that a resumed run could not honor."""
    given = [name.upper() if name == "model" else option(name) for name in sorted(names)]
    if given:
        raise SpecError(
            "--resume goes on with the run's own spec; "
            f"{listing(given)} cannot be given beside it.",
            remedy="Leave them out, or start a new scan with --out.",
        )


def check_fixed_only(names: Sequence[str]) -> None:
    """Refuse settings of a fixed plan, named by their keys, in a search."""
    if names:
        raise SpecError(
            f"{listing(map(option, names))} needs a fixed plan; a search decides on it by itself.",
            remedy="Give --budgets as well, for example --budgets 64:768:64.",
        )


def _check_arms(spec: ScanSpec) -> None:
    """Refuse arms that are empty, named twice, or not planned by name."""
    if not spec.arms or len(set(spec.arms)) < len(spec.arms) or "observer" in spec.arms:
        raise SpecError(
            f"arms {listing(spec.arms)} is not a list of different arms.",
            remedy="Name warm, fresh or both.",
        )


def _check_fixed(spec: ScanSpec) -> None:
    """Refuse what a fixed plan cannot honor; ``budgets`` are the values on the axis."""
    check_budgets(spec.budgets, where="budgets", axis=spec.axis)
    if spec.axis != "budget" and spec.mode == "nested":
        raise SpecError(
            f"--mode nested reads budgets from one generation; the axis is {spec.axis}.",
            remedy="Leave out --mode nested.",
        )
    default = ScanSpec()
    given = [option(n) for n in _SEARCH_ONLY if getattr(spec, n) != getattr(default, n)]
    if (spec.low, spec.high) != (default.low, default.high):
        given.append("--range")
    if given:
        raise SpecError(
            f"{listing(given)} needs a search; --budgets measures a fixed plan.",
            remedy="Leave out one or the other.",
        )


# Settings of a search; a fixed plan would pass over them.
_SEARCH_ONLY = ("min_width", "prevalence", "certify")


# Settings of a fixed plan; a search decides on them by itself.
_FIXED_ONLY = ("arms", "mode", "order", "processes", "repeats", "observer")
# Fewer values have no shape (method, section 15).
LEAST_VALUES = 6
_RANGE = {"low": "the start of --range", "high": "the end of --range"}


def _check_search(spec: ScanSpec) -> None:
    """Refuse what an adaptive search cannot honor."""
    default = ScanSpec()
    check_fixed_only([n for n in _FIXED_ONLY if getattr(spec, n) != getattr(default, n)])
    least, high = LEAST.get(spec.axis, 1), DEFAULT_HIGH if spec.high is None else spec.high
    if spec.low < least:
        raise SpecError(
            f"--range {spec.low}:{high}: the axis {spec.axis} is searched from {least} upwards.",
            remedy=f"Write --range {least}:{max(high, least + 1)}.",
        )
    if spec.high is not None and spec.high <= spec.low:
        raise ascent_error(spec.low, spec.high)
    _check_span(spec.low, high, None if spec.min_width == default.min_width else spec.min_width)


def _check_span(low: int, high: int, min_width: int | None) -> None:
    """Refuse a range without room for a verdict, or for the slow interval that is looked for."""
    if high - low + 1 < LEAST_VALUES:
        raise SpecError(
            f"--range {low}:{high} holds {high - low + 1} values; a verdict needs {LEAST_VALUES}.",
            remedy=f"Write --range {low}:{low + LEAST_VALUES - 1}, or a wider one.",
        )
    if min_width is not None and min_width > high - low:
        raise SpecError(
            f"A slow interval of --min-width {min_width} does not fit into --range {low}:{high}.",
            remedy=f"Give --min-width {high - low} or less, or a wider --range.",
        )
