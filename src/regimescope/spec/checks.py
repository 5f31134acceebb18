"""Values of a spec that cannot be measured, refused before anything is started. Layer: ``spec``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from regimescope.errors import SpecError
from regimescope.spec.budgets import MAX_BUDGET, check_budgets
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

CHOICES: dict[str, tuple[str, ...]] = {
    "axis": get_args(Axis),
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
                f"--{name.replace('_', '-')} {table[name]!r} is not known.",
                remedy=f"Choose one of: {listing(choices)}.",
            )


def check_spec(spec: ScanSpec) -> None:
    """Refuse a spec whose values are out of range or contradict each other.

    Raises:
        SpecError: Naming the key and the bound.
    """
    check_choices({name: getattr(spec, name) for name in CHOICES})
    _check_arms(spec)
    for key, low, high in (
        ("low", 1, MAX_BUDGET),
        ("high", 2, MAX_BUDGET),
        ("min_width", 1, MAX_BUDGET),
        ("prevalence", 0.05, 1),
        ("budget", 2, MAX_BUDGET),
        ("prompt_tokens", 1, MAX_BUDGET),
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
                f"{key} is {value:,}, outside {low:,} to {high:,}.",
                remedy=f"Choose {key} within the range.",
            )
    if spec.budgets:
        _check_fixed(spec)
    else:
        _check_search(spec)


def _check_arms(spec: ScanSpec) -> None:
    """Refuse arms that are empty, named twice, or not planned by name."""
    if not spec.arms or len(set(spec.arms)) < len(spec.arms) or "observer" in spec.arms:
        raise SpecError(
            f"arms {listing(spec.arms)} is not a list of different arms.",
            remedy="Name warm, fresh or both.",
        )


def _check_fixed(spec: ScanSpec) -> None:
    """Refuse a fixed plan of anything but budgets."""
    check_budgets(spec.budgets, where="budgets")
    if spec.axis != "budget":
        raise SpecError(
            f"A list of budgets cannot sweep the axis {spec.axis!r}.",
            remedy="Leave out --budgets and give --range.",
        )
    default = ScanSpec()
    given = [f"--{n}" for n in _SEARCH_ONLY if getattr(spec, n) != getattr(default, n)]
    if (spec.low, spec.high) != (default.low, default.high):
        given.append("--range")
    if given:
        raise SpecError(
            f"{listing(given).replace('_', '-')} needs a search; --budgets measures a fixed plan.",
            remedy="Leave out one or the other.",
        )


# Settings of a search; a fixed plan would pass over them.
_SEARCH_ONLY = ("min_width", "prevalence", "certify")


# Settings of a fixed plan; a search decides on them by itself.
_FIXED_ONLY = ("arms", "mode", "order", "processes", "repeats", "observer")
SEARCHED_AXES: tuple[Axis, ...] = ("budget", "context", "prompt", "capacity")


def _check_search(spec: ScanSpec) -> None:
    """Refuse what an adaptive search cannot honor."""
    given = [name for name in _FIXED_ONLY if getattr(spec, name) != getattr(ScanSpec(), name)]
    if given:
        raise SpecError(
            f"{listing(f'--{name}' for name in given)} needs a fixed plan; "
            "a search decides on it by itself.",
            remedy="Give --budgets as well, for example --budgets 64:768:64.",
        )
    if spec.axis not in SEARCHED_AXES:
        raise SpecError(
            f"The axis {spec.axis!r} cannot be searched.",
            remedy=f"Choose one of: {listing(SEARCHED_AXES)}.",
        )
    least = 2 if spec.axis == "budget" else 1
    if spec.low < least or (spec.high is not None and spec.high <= spec.low):
        raise SpecError(
            f"The range from {spec.low:,} to {spec.high or DEFAULT_HIGH:,} cannot be searched.",
            remedy=f"Let it ascend from {least} or more, for example --range 64:1024.",
        )
