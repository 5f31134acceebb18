"""How far candidates are confirmed on fresh trials. Layer: ``search``.

Source: method, section 5, P3 of section 11. The statistics are in ``stats.confirm``; here stands
which trials they get, what is still to be measured, and whether the shape is a spike even so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from regimescope import axes
from regimescope.search.evidence import Evidence, FloatArray
from regimescope.search.joining import join
from regimescope.search.screening import Candidate, Place, Screen, read_screen
from regimescope.stats import confirm as statistics
from regimescope.stats.boundary import LabelErrors, label_errors
from regimescope.stats.curve import Curve, predict_log
from regimescope.units import count, listing


class Core(NamedTuple):
    """A run of neighboring values that passed, and the brackets of its edges.

    Attributes:
        values: The values that passed, ascending.
        log_slowdown: Log slowdown at each of them, what the controls share removed, shape (K,).
        controls: Fresh trials at the normal values beside it.
        onset: Last value not slow and first slow one.
        recovery: Last slow value and first one not slow; absent for a slowdown that stays.
        errors: How often a trial bears the wrong label.
        delta: Median log slowdown; half of it tells slow from normal.
        bounded_below: Whether the slowdown is at least this: half the trials of a value timed out.
    """

    values: tuple[int, ...]
    log_slowdown: FloatArray
    controls: int
    onset: tuple[int, int]
    recovery: tuple[int, int] | None
    errors: LabelErrors
    delta: float
    bounded_below: bool = False


class Confirmation(NamedTuple):
    """The state of all candidates of a search.

    Attributes:
        candidates: Those with a normal value on both sides, ascending.
        values: What is measured in each further block.
        wanted_blocks: Blocks to measure before looking again; 0 when decided.
        state: What the tests say.
        refit: The shape of everything so far, fresh trials included; its curve is the expectation.
        cores: What passed and is a spike by shape as well.
    """

    candidates: tuple[Candidate, ...]
    values: tuple[int, ...]
    wanted_blocks: int
    state: statistics.Confirmation
    refit: Screen
    cores: tuple[Core, ...]

    @property
    def curve(self) -> Curve:
        """The expected latency."""
        return _curve(self.refit)

    @property
    def message(self) -> str:
        """What is measured next, or what came of it, for people."""
        if self.wanted_blocks:
            return (
                f"confirmation: {count(self.wanted_blocks, 'fresh process run')} at "
                f"{listing(self.values)}, after {count(self.state.blocks, 'block')}"
            )
        passed = sum(budget.state == "accepted" for budget in self.state.budgets)
        return f"confirmation: {passed} of {count(len(self.state.budgets), 'value')} passed"


def confirm(
    candidates: Sequence[Candidate],
    screen: Screen,
    evidence: Evidence,
    place: Place,
    *,
    blocks: Sequence[int],
    final: bool = False,
) -> Confirmation | None:
    """Return how far candidates are confirmed; ``None`` where none can be.

    Args:
        candidates: Stretches that look slow.
        screen: The screen that found them; its curve at the normal values is the reference.
        evidence: All trials; those of the confirmation decide, all of them show the shape.
        place: The axis.
        blocks: Finished blocks of the confirmation, ascending; no other counts.
        final: Whether no further block will come.
    """
    testable = tuple(c for c in candidates if c.left is not None and c.right is not None)
    if not testable or screen.result.baseline is None:
        return None
    tested = [_tested(c, screen.result.baseline, place) for c in testable]
    rows = evidence.of("confirm")
    rows = rows.where(np.isin(rows.block, blocks))
    state = statistics.confirm(tested, _ranked(rows, place), blocks=blocks, final=final)
    wanted = 0 if state.next_look is None else state.next_look - state.blocks
    refit = screen
    cores: tuple[Core, ...] = ()
    if state.cores:
        refit = read_screen(evidence, place, extended=screen.extended)
        spikes = [core for core in state.cores if _is_spike(core, refit, place)]
        cores = tuple(
            _core(core, tested[core.candidate], rows, refit, place)
            for core in (join(spikes, tested, _timed(rows, place), _curve(refit)) if spikes else ())
        )
    values = tuple(axes.values_at(state.wanted, place.axis).tolist())
    return Confirmation(testable, values, wanted, state, refit, cores)


def _curve(screen: Screen) -> Curve:
    """Return the expected latency of a screen that has one."""
    if screen.result.baseline is None:
        raise ValueError("the screen has no curve")
    return screen.result.baseline


def _tested(candidate: Candidate, curve: Curve, place: Place) -> statistics.Candidate:
    """Return a candidate as the test takes it: in steps, with the curve at its flanks."""
    flanks = axes.curve_steps([candidate.left or 0, candidate.right or 0], place.axis)
    left, right = predict_log(curve, flanks).tolist()
    steps = axes.curve_steps(candidate.values, place.axis)
    return statistics.Candidate(
        steps=tuple(steps.tolist()),
        flanks=(float(flanks[0]), float(flanks[1])),
        log_expected=(left, right),
    )


def _ranked(rows: Evidence, place: Place) -> statistics.FreshTrials:
    """Return the trials of the confirmation for a test of ranks."""
    return statistics.FreshTrials(axes.curve_steps(rows.value, place.axis), rows.ranked, rows.block)


def _timed(rows: Evidence, place: Place) -> statistics.FreshTrials:
    """Return the trials of the confirmation for a slowdown; what timed out took this or more."""
    return statistics.FreshTrials(axes.curve_steps(rows.value, place.axis), rows.log_s, rows.block)


def _is_spike(core: statistics.Core, refit: Screen, place: Place) -> bool:
    """Return whether the shape of all data still has a spike where the core is."""
    if refit.result.shape != "SPIKE" or refit.result.baseline is None:
        return False
    values = axes.values_at(core.steps, place.axis)
    return any(
        part.shape == "SPIKE"
        and refit.value[part.start] <= values[-1]
        and values[0] <= refit.value[part.end - 1]
        for part in refit.result.intervals
    )


def _core(
    core: statistics.Core,
    tested: statistics.Candidate,
    rows: Evidence,
    refit: Screen,
    place: Place,
) -> Core:
    """Return a core with its slowdown and the errors of its labels."""
    curve = _curve(refit)
    # The curve of all data holds at the controls as well, or it would shift the slowdown.
    left, right = predict_log(curve, np.asarray(tested.flanks)).tolist()
    reference = tested._replace(log_expected=(left, right))
    expected = predict_log(curve, np.asarray(core.steps))
    reading = statistics.core_reading(core, reference, _timed(rows, place), expected)
    values = _values(core.steps, place)
    return Core(
        values=values,
        log_slowdown=reading.log_slowdown,
        controls=reading.control_excess.size,
        onset=_ends(core.onset, place),
        recovery=_ends(core.recovery, place),
        errors=label_errors(reading.control_excess, reading.core_excess, reading.delta),
        delta=reading.delta,
        bounded_below=_is_bounded_below(rows.where(np.isin(rows.value, values))),
    )


def _is_bounded_below(rows: Evidence) -> bool:
    """Return whether half of the trials of some value timed out, so that its median is a bound."""
    return any(2 * rows.timed_out[rows.value == v].mean() >= 1 for v in np.unique(rows.value))


def _values(steps: Sequence[float], place: Place) -> tuple[int, ...]:
    """Return steps as values."""
    return tuple(axes.values_at(steps, place.axis).tolist())


def _ends(steps: tuple[float, float], place: Place) -> tuple[int, int]:
    """Return a bracket as values."""
    low, high = _values(steps, place)
    return low, high


def slowdown_of(core: Core) -> float:
    """Return the slowdown of a core as a ratio."""
    return math.exp(core.delta)
