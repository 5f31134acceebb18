"""What is no single measurement: mixed series, and one trial under two names. Layer: ``analysis``.

Source: method, section 15.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from regimescope import axes
from regimescope.errors import InputError
from regimescope.reasons import Reason
from regimescope.records import Cell, Series, Trial
from regimescope.spec import Axis
from regimescope.units import listing


def refuse_duplicate_ids(trials: Sequence[Trial]) -> None:
    """Refuse two trials under one id: one of them would be counted twice."""
    twice = [name for name, times in Counter(t.trial_id for t in trials).items() if times > 1]
    if twice:
        raise InputError(
            Reason.DUPLICATE_TRIAL_ID,
            f"Trial ids that stand more than once: {listing(twice)}.",
            remedy="Remove the copies.",
            trial_ids=twice,
        )


def refuse_mixed_series(trials: Sequence[Trial], axis: Axis) -> None:
    """Refuse to pool what was measured under different conditions, and say where each stands.

    Raises:
        InputError: The trials are of several series.
    """
    swept = {axes.LAWS[axis].field: None} if axis in axes.LAWS else {}
    occasions: dict[tuple[Series, Cell], set[str]] = defaultdict(set)
    for trial in trials:
        occasions[trial.series, replace(trial.cell, **swept)].add(trial.occasion)
    if len(occasions) < 2:
        return
    differences = []
    for part, names in ((0, Series.__struct_fields__), (1, Cell.__struct_fields__)):
        for name in names:
            places: dict[object, set[str]] = defaultdict(set)
            for key, where in occasions.items():
                places[getattr(key[part], name)] |= where
            if len(places) > 1:
                differences.append(_difference(name, places))
    raise InputError(
        Reason.MIXED_SERIES,
        "The trials must not be pooled into one curve; "
        f"they differ in {'; in '.join(differences)}.",
        remedy="Analyze each series by itself.",
    )


def _difference(name: str, places: dict[object, set[str]]) -> str:
    """Return what differs, its values, and the occasions of each where they tell them apart."""
    whole = set().union(*places.values())
    words = [
        f"{'unknown' if value is None else value}"
        + (f" in {listing(sorted(where), most=3)}" if where != whole else "")
        for value, where in sorted(places.items(), key=_unknown_last)
    ]
    return f"{name.replace('_', ' ')} ({listing(words)})"


def _unknown_last(item: tuple[object, set[str]]) -> tuple[bool, str]:
    """Return what to sort values by: as text, an unknown one after all others."""
    return item[0] is None, str(item[0])
