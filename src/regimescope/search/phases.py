"""The adaptive plan, phase by phase. Layer: ``search``.

Source: method, section 11. Each phase says what it still wants, or that it is done; the first that
wants something is measured. What is wanted depends on finished trials alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np

from regimescope import axes
from regimescope.reasons import Reason
from regimescope.records import Expectation, Plan, Trial
from regimescope.search.confirming import Confirmation, Core, confirm, slowdown_of
from regimescope.search.decision import Decision, Finish, Measure, Visit
from regimescope.search.edges import Edge, edges_of
from regimescope.search.evidence import Evidence
from regimescope.search.expectation import expect_steps
from regimescope.search.known import Known, know
from regimescope.search.locating import adjacency, final_check, next_query, step_check
from regimescope.search.mixed import Mixed, mixed_stretches, mixed_tests, slow_values
from regimescope.search.screening import (
    CALIBRATION_REPEATS,
    RERUNS,
    Place,
    Screen,
    calibration_values,
    candidates,
    grid,
    read_screen,
    suspicious,
)
from regimescope.search.stepping import step_of
from regimescope.spec import DEFAULT_HIGH, MAX_BUDGET, ScanSpec
from regimescope.stats.mixture import mixture_trials, screen_repeats
from regimescope.units import count, listing, ratio

# How far a range is extended to see whether a step persists (method, section 9).
EXTENSION = 1.5
EXTENSION_VALUES = 3
# One value has no neighbor that it could be slower than.
LEAST_VALUES = 2


class Findings(NamedTuple):
    """What a search has found so far.

    Attributes:
        place: The axis.
        evidence: One row per trial.
        screen: What the screen looked like before anything was confirmed.
        confirmation: How far its candidates are confirmed; absent without any.
        edges: Both edges of each core, then that of a slowdown that stays.
        mixed: Stretches in which some processes are slow, where such were looked for.
    """

    place: Place
    evidence: Evidence
    screen: Screen
    confirmation: Confirmation | None
    edges: tuple[Edge, ...]
    mixed: tuple[Mixed, ...]


class Search:
    """Decides what to measure next. It remembers nothing but what it would compute again."""

    def __init__(self, spec: ScanSpec, *, limit: int | None = None) -> None:
        """Take up a search.

        Args:
            spec: The settings.
            limit: Largest value that can be measured; absent for no limit.
        """
        self._spec = spec
        self._low, self._high = spec.low, spec.high or DEFAULT_HIGH
        self._limit = limit
        self._place = Place(spec.axis, axes.degree(spec.axis, spec.kv_cache))
        self._screens: dict[bytes, Screen] = {}
        self._confirmations: dict[tuple[bytes, ...], Confirmation | None] = {}

    def decide(
        self, plan: Plan, trials: Sequence[Trial], skipped: Collection[int] = ()
    ) -> Decision:
        """Return what to measure next: never nothing, and nothing that keeps failing.

        Args:
            plan: The plan so far, all of it measured.
            trials: Finished trials whose block stands.
            skipped: Values that are not tried again.
        """
        known = know(self._spec, plan, trials, skipped)
        lost = False
        for phase in self._phases():
            wanted = phase(known)
            living = None if wanted is None else known.living(wanted)
            if living is not None:
                return living
            lost = lost or wanted is not None
            if known.planned["screen"] and np.unique(known.evidence.value).size < LEAST_VALUES:
                return Finish("too few values could be measured", Reason.BACKEND_FAILURES)
        return self._finish(known)._replace(reason=Reason.BACKEND_FAILURES if lost else None)

    def findings(self, plan: Plan, trials: Sequence[Trial]) -> Findings:
        """Return what finished trials show, for those who judge them; no further ones will come.

        Args:
            plan: The plan, trials that are missing included.
            trials: Finished trials whose block stands, at least two values of which have a latency.
        """
        known = know(self._spec, plan, trials, ())
        return Findings(
            place=self._place,
            evidence=known.evidence,
            screen=self._screened(known),
            confirmation=self._confirmation(known, final=True),
            edges=self._edges(known, final=True),
            mixed=self._mixed(known),
        )

    def _phases(self) -> tuple[Callable[[Known], Measure | None], ...]:
        """Return the phases in their order."""
        if self._spec.prevalence < 1:
            return (self._calibrate, self._screen, self._screen_again, self._rerun, self._count)
        return (
            self._calibrate,
            self._screen,
            self._rerun,
            self._extend,
            self._confirm,
            self._boundary,
            self._final,
            self._step_check,
            self._adjacency,
        )

    def _calibrate(self, known: Known) -> Measure | None:
        """P0: scale, speed and noise at both ends and in the middle."""
        if known.planned["calibrate"]:
            return None
        visits = CALIBRATION_REPEATS * calibration_values(self._low, self._high)
        return Measure(
            "calibrate",
            f"calibration: {CALIBRATION_REPEATS} trials each at the ends and in the middle",
            (tuple(Visit(value) for value in visits),),
        )

    def _screen(self, known: Known) -> Measure | None:
        """P1: a grid so fine that no slow interval of the width asked for is missed."""
        if known.planned["screen"]:
            return None
        random = np.random.default_rng((self._spec.seed, 1))
        values = grid(self._low, self._high, self._spec.min_width, random)
        wanted = sorted(set(values) - set(calibration_values(self._low, self._high)))
        visits = self._probes(wanted, known)
        return Measure(
            "screen",
            f"screen: {count(len(values), 'value')} at most {self._spec.min_width} apart",
            (visits,),
            goes_on=True,
        )

    def _screen_again(self, known: Known) -> Measure | None:
        """P1 in further processes, where a process is slow only sometimes."""
        wanted = screen_repeats(self._spec.prevalence) - known.planned["screen"]
        if wanted <= 0:
            return None
        seen = known.evidence.of("calibrate", "screen")
        visits = self._probes(np.unique(seen.value).tolist(), known)
        return Measure(
            "screen", f"screen in {count(wanted, 'further process run')}", wanted * (visits,)
        )

    def _rerun(self, known: Known) -> Measure | None:
        """P2: whatever looks slow, again in other processes."""
        if known.planned["rerun"]:
            return None
        look = suspicious if self._spec.prevalence >= 1 else slow_values
        values = look(known.evidence.of("calibrate", "screen"), self._place)
        if not values:
            return None
        return Measure(
            "rerun",
            f"second look: {count(len(values), 'value')} above the expectation",
            RERUNS * (self._probes(values, known),),
        )

    def _extend(self, known: Known) -> Measure | None:
        """Widen the range where a slow stretch reaches its end: does it persist or recover?"""
        tried = [value for stage, value in known.asked if stage == "extend"]
        screen = self._screened(known)
        slow_ends = {(p.start == 0, p.end == screen.value.size) for p in screen.result.intervals}
        below = any(left for left, _ in slow_ends) and min(tried, default=self._low) >= self._low
        above = any(right for _, right in slow_ends) and max(tried, default=0) <= self._high
        values = [*(self._below() if below else ()), *(self._above() if above else ())]
        if not values:
            return None
        return Measure(
            "extend",
            f"slow at the end of the range: {listing(values)} as well",
            RERUNS * (self._probes(values, known),),
        )

    def _below(self) -> list[int]:
        """Return values below the range."""
        least = 2 if self._spec.axis == "budget" else 1
        found = np.linspace(max(least, self._low / EXTENSION**2), self._low, EXTENSION_VALUES + 1)
        return sorted({int(v) for v in found[:-1]} - {self._low})

    def _above(self) -> list[int]:
        """Return values above the range, as far as the model allows."""
        most = min(int(self._high * EXTENSION), MAX_BUDGET)
        most = most if self._limit is None else min(most, self._limit)
        found = np.linspace(self._high, most, EXTENSION_VALUES + 1)[1:]
        return sorted({int(v) for v in found} - {self._high}) if most > self._high else []

    def _confirm(self, known: Known) -> Measure | None:
        """P3: fresh processes, the candidates interleaved with the normal values beside them."""
        found = self._confirmation(known)
        if found is None or not found.wanted_blocks:
            return None
        block = tuple(Visit(value) for value in found.values)
        return Measure("confirm", found.message, found.wanted_blocks * (block,))

    def _count(self, known: Known) -> Measure | None:
        """P3 where a process is slow only sometimes: fresh processes, one trial of each value."""
        stretches = self._mixed(known)
        if not stretches or known.planned["confirm"]:
            return None
        values = sorted({v for s in stretches if s.testable for v in (s.value, *s.controls)})
        if not values:
            return None
        wanted = mixture_trials(self._spec.prevalence)
        return Measure(
            "confirm",
            f"counting slow processes: {wanted} fresh ones at {listing(values)}",
            wanted * (tuple(Visit(v) for v in values),),
        )

    def _mixed(self, known: Known) -> tuple[Mixed, ...]:
        """Return the stretches in which some processes are slow."""
        if self._spec.prevalence >= 1:
            return ()
        rows = known.evidence.of("calibrate", "screen", "rerun")
        return mixed_stretches(rows, self._place)

    def _boundary(self, known: Known) -> Measure | None:
        """P4: each edge to one token, one query at a time."""
        return next_query(known, self._edges(known), lambda values: self._probes(values, known))

    def _final(self, known: Known) -> Measure | None:
        """P5: full length on both sides of each edge, in fresh processes."""
        return final_check(known, self._edges(known), certify=self._spec.certify)

    def _step_check(self, known: Known) -> Measure | None:
        """The final check of a slowdown that stays, which nothing has confirmed before."""
        return step_check(known, self._edges(known))

    def _adjacency(self, known: Known) -> Measure | None:
        """P6: what lies between the tested values, at random: is there a second change?"""
        return adjacency(known, self._edges(known), seed=self._spec.seed)

    def _probes(self, values: Sequence[int], known: Known) -> tuple[Visit, ...]:
        """Return visits that may be ended once they have proved slow."""
        expectation = self._expectation(known)
        return tuple(Visit(int(value), expectation) for value in values)

    def _expectation(self, known: Known) -> Expectation | None:
        """Return what a step takes, from the calibration; only decoding has steps to watch."""
        if axes.LAWS[self._spec.axis].prefill:
            return None
        return expect_steps([t for t in known.trials if t.stage == "calibrate"])

    def _screened(self, known: Known) -> Screen:
        """Return what everything but the confirmation looks like."""
        rows = known.evidence.of("calibrate", "screen", "rerun", "extend")
        key = _fingerprint(rows)
        if key not in self._screens:
            # A slowdown stays if it stays beyond the upper end; looking below says nothing of that.
            extended = bool((rows.of("extend").value > self._high).any())
            self._screens[key] = read_screen(rows, self._place, extended=extended)
        return self._screens[key]

    def _confirmation(self, known: Known, *, final: bool = False) -> Confirmation | None:
        """Return how far the candidates are confirmed; ``None`` without any."""
        screen = self._screened(known)
        found = candidates(screen)
        if not found or self._spec.prevalence < 1:
            return None
        rows = known.evidence.of("calibrate", "screen", "rerun", "extend", "confirm")
        key = (_fingerprint(rows), repr((known.confirming, final)).encode())
        if key not in self._confirmations:
            self._confirmations[key] = confirm(
                found,
                screen,
                rows,
                self._place,
                blocks=known.confirming,
                final=final,
            )
        return self._confirmations[key]

    def _edges(self, known: Known, *, final: bool = False) -> tuple[Edge, ...]:
        """Return the edges of everything confirmed so far, and of a slowdown that stays."""
        if self._spec.prevalence < 1:
            return ()  # labels of processes that are slow only sometimes locate no edge
        screen, confirmation = self._screened(known), self._confirmation(known, final=final)
        rows = known.evidence.of("boundary", "final", "adjacency")
        found: tuple[Edge, ...] = ()
        if confirmation is not None and confirmation.cores:
            found = edges_of(confirmation.cores, confirmation.curve, rows, self._place)
        lasting = self._lasting(known)
        if lasting is not None and screen.result.baseline is not None:
            found += edges_of([lasting], screen.result.baseline, rows, self._place)
        return found

    def _lasting(self, known: Known) -> Core | None:
        """Return a slowdown that stays although the range was extended."""
        rows = known.evidence.of("calibrate", "screen", "rerun", "extend")
        return step_of(self._screened(known), rows, self._place)

    def _finish(self, known: Known) -> Finish:
        """Say what came of it."""
        confirmation = self._confirmation(known)
        onsets = [edge for edge in self._edges(known) if edge.side == "onset"]
        if onsets:
            names = listing(
                f"{ratio(slowdown_of(edge.core))} from {edge.boundary.estimate}" for edge in onsets
            )
            return Finish(f"{count(len(onsets), 'slow interval')} located: {names}")
        if confirmation is not None:
            return Finish(confirmation.message)
        stretches = self._mixed(known)
        if stretches:
            tests = mixed_tests(stretches, known.evidence.of("confirm"), self._place)
            passed = sum(test is not None and test.accepted for test in tests)
            return Finish(f"counts of slow processes: {passed} of {len(tests)} places passed")
        return Finish("no slow interval was found")


def _fingerprint(rows: Evidence) -> bytes:
    """Return what tells apart the rows that something was computed from."""
    return rows.value.tobytes() + rows.log_s.tobytes()
