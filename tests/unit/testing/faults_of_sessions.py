"""Engines that break off, count wrongly, tell the wrong time or do not end."""

from msgspec.structs import replace
from tests.unit.testing.faults import fault
from tests.unit.testing.sound_engine import EVERYTHING, SoundEngine, SoundSession

from regimescope.engines.base import Generation, Step
from regimescope.errors import EngineError


@fault("abandoned-generation")
class StaysBusy(SoundSession):
    busy = False

    def steps(self, *asked):
        if self.busy:
            raise EngineError("busy")
        self.busy = True
        yield from super().steps(*asked)
        self.busy = False


@fault("abandoned-generation")
class NoWayToStop(SoundSession):
    def generate(self, *asked, **how):
        return iter(list(super().generate(*asked, **how)))


class TakesNonsense(SoundSession):
    def check(self, prompt_ids, cell, depth): ...

    def tokens(self, prompt_ids, cell, depth):
        return super().tokens(prompt_ids, replace(cell, budget=max(cell.budget, 1)), depth)


fault("failing-request")(TakesNonsense)


@fault("failing-request")
class BreaksForGood(SoundSession):
    broken = False

    def check(self, *asked):
        if self.broken:
            raise EngineError("device lost")
        try:
            super().check(*asked)
        except EngineError:
            self.broken = True
            raise


@fault("failing-request")
class ForeignError(SoundSession):
    def check(self, *asked):
        try:
            super().check(*asked)
        except EngineError as error:
            raise RuntimeError("index out of range") from error


def counting(name, values):
    """Return a session with one counter that reads these values one after the other."""

    class Counts(SoundSession):
        def __init__(self, *parts):
            super().__init__(*parts)
            self.values = list(values) * 50

        def counters(self):
            return {name: self.values.pop(0)}

    return Counts


for name, values in (
    ("used", [-1]),
    ("used", [1.5]),
    ("used", [True]),
    ("Peak Memory", [1]),
    ("used_bytes", [1]),
    ("steps_count", [2, 1]),
):
    fault("counters")(counting(name, values))


@fault("wait")
class WaitsOnce(SoundSession):
    waited = False

    def steps(self, *asked):
        self.wait = self.wait_once
        yield from super().steps(*asked)

    def wait_once(self):
        if self.queued_ns == 0:
            raise EngineError("nothing to wait for")
        SoundSession.wait(self)


class YieldsEarly(SoundSession):
    """Hands out a step while the device still works on its token."""

    def steps(self, prompt_ids, cell, depth, stamped):
        self.rows = [[] for _ in range(cell.batch or 1)]
        tokens = self.tokens(prompt_ids, cell, depth)
        for token in tokens:
            for row in self.rows:
                row.append(token)
            self.clock.at_ns += STEP_OF_HOST_NS
            self.queued_ns += 1_000_000
            yield Step()


STEP_OF_HOST_NS = 1_000
fault("synchronization")(YieldsEarly)


@fault("clock")
class GoesBack(SoundSession):
    def wait(self):
        self.clock.at_ns -= 2 * self.queued_ns
        self.queued_ns = 0


@fault("clock")
class StandsStill(SoundSession):
    def wait(self):
        self.queued_ns = 0


@fault("clock")
class CountsInFloats(SoundSession):
    def __init__(self, *parts):
        super().__init__(*parts)
        self.clock.at_ns = 0.0


@fault("clock", can=replace(EVERYTHING, virtual_clock=True))
class MovesByItself(SoundSession):
    def counters(self):
        self.clock.at_ns += 1
        return {}


@fault("clock", can=replace(EVERYTHING, virtual_clock=True))
class SleepsLonger(SoundSession):
    def __init__(self, *parts):
        super().__init__(*parts)
        sleep = self.clock.sleep
        self.clock.sleep = lambda duration_s: sleep(1.1 * duration_s)


@fault("last-generation")
class TellsATable(SoundSession):
    def last_generation(self):
        return {"cached_tokens": 0}


@fault("last-generation")
class CachedBelowZero(SoundSession):
    def last_generation(self):
        return Generation(cached_tokens=-1)


@fault("last-generation")
class ReadsWords(SoundSession):
    def last_generation(self):
        return Generation(readings={"server_s": "fast"})


@fault("close")
class ClosesOnce(SoundSession):
    closed = False

    def close(self):
        if self.closed:
            raise EngineError("closed already")
        self.closed = True


@fault("close")
class OpensOnce(SoundEngine):
    opened = 0

    def open(self, request):
        self.opened += 1
        if self.opened > 1:
            raise EngineError("the device is taken")
        return super().open(request)
