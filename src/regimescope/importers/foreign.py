"""What importers of other tools' files give and are given. Layer: ``importers``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from regimescope.errors import SpecError, UserError
from regimescope.importers.content import Content, whole
from regimescope.reasons import Reason
from regimescope.records import Cell, Phase, Series, Trial
from regimescope.spec import MAX_BUDGET
from regimescope.units import listing

# What a file may lack and the user may tell, by option or by groups of a pattern.
LENGTHS = ("budget", "prompt_tokens", "batch", "depth", "capacity")


class Hints(NamedTuple):
    """What the user tells of files that do not say it themselves.

    Attributes:
        lengths: Values by name, see ``LENGTHS``.
        pattern: A pattern for names of files, with groups named so.
    """

    lengths: Mapping[str, int] = {}
    pattern: str | None = None

    def of(self, name: str) -> dict[str, int]:
        """Return the lengths that hold for a file.

        Raises:
            UserError: The pattern is none, does not fit the name, or has a group of another name;
                or a length is out of range.
        """
        if self.pattern is None:
            return _checked(self.lengths)
        try:
            found = re.search(self.pattern, name)
        except re.error as error:
            raise UserError(
                f"--pattern {self.pattern!r} is no regular expression: {error}.",
                remedy="Write for example --pattern 'out(?P<budget>[0-9]+)'.",
            ) from error
        groups = found.groupdict() if found else {}
        read = {key: whole(text) for key, text in groups.items()}
        values = {key: value for key, value in read.items() if value is not None}
        if not values or values.keys() - set(LENGTHS):
            raise UserError(
                f"--pattern {self.pattern!r} finds no length in {name}.",
                remedy=f"Name its groups after: {listing(LENGTHS)}.",
            )
        return _checked(dict(self.lengths) | values)


def cell_of(*lengths: Mapping[str, int | None]) -> Cell:
    """Return a cell with lengths; of two sources the later one counts where it knows a value."""
    known = {name: v for table in lengths for name, v in table.items() if v is not None}
    return Cell(
        budget=known.get("budget"),
        prompt_tokens=known.get("prompt_tokens"),
        batch=known.get("batch"),
        depth=known.get("depth"),
        capacity=known.get("capacity"),
    )


def _checked(lengths: Mapping[str, int]) -> dict[str, int]:
    """Return lengths that are possible.

    Raises:
        SpecError: A name is unknown or a value out of range.
    """
    for name, value in lengths.items():
        least = 0 if name == "depth" else 1
        if name not in LENGTHS or not least <= value <= MAX_BUDGET:
            raise SpecError(
                f"{name} = {value} is no length of a file.",
                remedy=f"Known: {listing(LENGTHS)}, from {least} to {MAX_BUDGET:,}.",
            )
    return dict(lengths)


class Found(NamedTuple):
    """What one file holds.

    Attributes:
        trials: Its measurements; ids, occasion and process are filled in later.
        rejected: ``place: key: what`` of each record that cannot be a measurement.
        dropped: How many records were left out for another reason, by the reason in words.
    """

    trials: list[Trial]
    rejected: list[str]
    dropped: Counter[str]


class Format(NamedTuple):
    """A file format of another tool.

    Attributes:
        name: What it is called in messages and in the header of a run.
        fits: Whether a content is of this format.
        read: Reads one.
        file_is_process: Each file, or each part of one that says so, was a process of its own.
    """

    name: str
    fits: Callable[[Content], bool]
    read: Callable[[Content, Hints], Found]
    file_is_process: bool = False


class Place(NamedTuple):
    """Where a measurement stands: its key, and its ordinal among the repeats of its point."""

    key: str
    repeat: int = 0
    process: int | None = None


def trial(place: Place, series: Series, cell: Cell, phase: Phase, **values: Any) -> Trial:
    """Return a record; absent values may be given as ``None``."""
    reasons = list(dict.fromkeys(values.pop("reasons", ()))) or None
    values.setdefault("status", "ok")
    return Trial(
        trial_id=f"{place.key}.{place.repeat}",
        occasion="",
        series=series,
        cell=cell,
        warmup=False,
        phase=phase,
        process_run=place.process,
        repeat=place.repeat,
        reasons=reasons,
        **values,
    )


def settings(**values: Any) -> dict[str, Any]:
    """Return the part of ``env`` that must agree before measurements are one sweep."""
    return {"settings": {name: str(v) for name, v in values.items() if v not in (None, "")}}


def gaps(
    times: Sequence[float] | None, tokens: int | None
) -> tuple[list[float] | None, list[Reason]]:
    """Return gaps between tokens, and why they are none: chunks of a stream are no tokens."""
    if times is None or tokens is None or not times:
        return None, []
    if len(times) != tokens - 1:
        return None, [Reason.CHUNKED_STREAM]
    return list(times), []
