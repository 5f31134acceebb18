"""Counters around and during the trials of one process. Layer: ``measure``.

A reading takes time. Around a trial that is outside of everything timed. During a trial it happens
between two steps, after the token exists and before the next step begins; its seconds are taken out
of all later time stamps and written down, and it only happens where it is cheap beside the steps.
"""

from __future__ import annotations

from statistics import median
from typing import Any, NamedTuple

from regimescope.engines.base import Session
from regimescope.host.counters import COST_READINGS, HostCounters, Values, changes
from regimescope.records import Trial
from regimescope.units import NS_PER_S, seconds, share

# A reading may cost this share of the steps between two readings. Its seconds are not timed, but
# it leaves caches and clocks a little different, so it must stay small all the same.
MOST_SHARE = 0.005
# A table of more rows would make a trial of 2**20 tokens several megabytes longer.
MOST_SAMPLES = 512
_COUNT = "_count"
OFF = "sampling_off_cost_s"

Table = dict[str, list[float]]


class Readings(NamedTuple):
    """What the counters of one trial came to.

    Attributes:
        counters: Growth of totals during the trial, and levels after it.
        memory_bytes: The engine's memory after it.
        samples: A row for each reading, the first before the trial; absent without sampling.
    """

    counters: Values
    memory_bytes: dict[str, int] | None
    samples: Table | None


class Sampler:
    """Reads the cheap counters every so many steps of one trial."""

    def __init__(self, session: Session, host: HostCounters, every: int) -> None:
        """Read once, before the trial."""
        self._session, self._host, self._every = session, host, every
        self._rows: list[Values] = []
        self.due = 0
        self.sample()

    def sample(self) -> int:
        """Read, and return the nanoseconds that it took."""
        now_ns = self._session.clock.now_ns
        start_ns = now_ns()
        row = _engine_values(self._session) | self._host.read(cheap=True)
        took_ns = now_ns() - start_ns
        self._rows.append({"step": float(self.due), "cost_s": took_ns / NS_PER_S} | row)
        self.due += self._every
        return took_ns

    def table(self) -> Table:
        """Return the rows as columns; totals count from the first row.

        A counter that some reading lacked has no column.
        """
        first = self._rows[0]
        rows = [changes(first, row) for row in self._rows]
        names = [name for name in first if all(name in row for row in rows)]
        return {name: [row[name] for row in rows] for name in names}


class TrialCounters:
    """The counters of one measured process."""

    def __init__(self, session: Session, host: HostCounters, every: int) -> None:
        """Measure what a reading between two steps costs.

        Args:
            session: The loaded model.
            host: The counters of the machine.
            every: Steps between two readings of a trial; 0 for none.
        """
        self._session, self._host, self._every = session, host, every
        self._step_s: float | None = None
        self._before: Values = {}
        self._sampler: Sampler | None = None
        self.cost_s = self._measure_cost()

    @property
    def samples(self) -> bool:
        """Whether readings during a trial are wanted and cheap enough; not before a first trial."""
        if not self._every or self._step_s is None:
            return False
        return self.cost_s <= MOST_SHARE * self._every * self._step_s

    def facts(self) -> dict[str, Any]:
        """Return what is read, what one reading costs, and what is absent with its reason."""
        return {
            "sample_every": self._every,
            "sample_cost_s": self.cost_s,
            "read": self._host.given(),
            "absent": self._host.absent,
        }

    def begin(self, budget: int) -> Sampler | None:
        """Read before a trial, and return what reads during it, if anything may."""
        self._before = self._read()
        self._sampler = None
        if self.samples:
            every = max(self._every, -(-budget // MOST_SAMPLES))
            self._sampler = Sampler(self._session, self._host, every)
        return self._sampler

    def finish(self, step_s: float | None) -> Readings:
        """Read after a trial.

        Args:
            step_s: Median step of the trial, which decides whether the next one is sampled.
        """
        after = self._read()
        if step_s is not None:
            self._step_s = step_s
        found = changes(self._before, after)
        table = self._sampler.table() if self._sampler is not None else None
        return Readings(found | self._decision(), memory_of(self._session), table)

    def _decision(self) -> Values:
        """Say with each trial what a reading costs where sampling is wanted and not done."""
        if self._every and self._sampler is None:
            return {OFF: self.cost_s}
        return {}

    def _read(self) -> Values:
        """Return all counters of the machine, and the counts of the engine."""
        counts = {
            name: value
            for name, value in _engine_values(self._session).items()
            if name.endswith(_COUNT)
        }
        return counts | self._host.read()

    def _measure_cost(self) -> float:
        """Return the median seconds of a reading between two steps."""
        clock = self._session.clock
        times = []
        for _ in range(COST_READINGS):
            start_ns = clock.now_ns()
            _engine_values(self._session)
            self._host.read(cheap=True)
            times.append(clock.now_ns() - start_ns)
        return median(times) / NS_PER_S


def why_off(trial: Trial) -> str | None:
    """Return why counters were not read during a trial; ``None`` if they were or nobody asked.

    The first trial of a process is never sampled, since how long its steps take is not known yet.
    """
    cost_s = (trial.counters or {}).get(OFF)
    if cost_s is None or not trial.order_index:
        return None
    return (
        f"counters are read around trials only: a reading between steps takes {seconds(cost_s)}, "
        f"more than {share(MOST_SHARE)} of the steps between two"
    )


def memory_of(session: Session) -> dict[str, int] | None:
    """Return the engine's memory by kind, without its counts; nothing where it tells none."""
    found = {name: v for name, v in session.counters().items() if not name.endswith(_COUNT)}
    return found or None


def _engine_values(session: Session) -> Values:
    """Return what the engine tells, with a unit in every name."""
    return {
        name if name.endswith(_COUNT) else f"{name}_bytes": float(value)
        for name, value in session.counters().items()
    }
