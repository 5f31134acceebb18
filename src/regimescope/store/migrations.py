"""From each schema version to the next: one pure step, plain values in, plain values out.

Layer: ``store``. Folders of every version load for ever, so a step is never changed once it is
released, and a recorded folder of each version stands in ``tests/formats``. A run that is taken up
again gets a header of the present version above lines of an older one, so each step has to leave
alone what is of its target version already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Table = dict[str, Any]


class Step(NamedTuple):
    """How the header, a trial and an event of one version become those of the next."""

    header: Callable[[Table], Table]
    trial: Callable[[Table], Table]
    event: Callable[[Table], Table]


def _header_from_1(table: Table) -> Table:
    """Version 2 only adds: stages and expectations of planned trials, a range in the spec."""
    return table | {"schema_version": 2}


def _line_from_1(table: Table) -> Table:
    """Version 2 only adds: the stage, the projection and the memory samples of a trial."""
    return table


# By the version a step starts from.
STEPS: dict[int, Step] = {1: Step(_header_from_1, _line_from_1, _line_from_1)}


def migrate_header(table: Table, version: int) -> Table:
    """Return a header of a version as one of the present version.

    Args:
        table: The content of ``run.json``.
        version: Its schema version, from 1 to the present one.
    """
    for start in range(version, 1 + max(STEPS)):
        table = STEPS[start].header(table)
    return table


def migrate_trial(table: Table, version: int) -> Table:
    """Return a trial of a version as one of the present version; see ``migrate_header``."""
    for start in range(version, 1 + max(STEPS)):
        table = STEPS[start].trial(table)
    return table


def migrate_event(table: Table, version: int) -> Table:
    """Return an event of a version as one of the present version; see ``migrate_header``."""
    for start in range(version, 1 + max(STEPS)):
        table = STEPS[start].event(table)
    return table
