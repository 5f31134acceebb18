"""Engines that decode something else than what was asked for."""

import random

from msgspec.structs import replace
from tests.unit.testing.faults import fault
from tests.unit.testing.sound_engine import (
    EVERYTHING,
    LITTLE,
    POSITIONS,
    SoundEngine,
    SoundSession,
)

from regimescope.engines.base import Step
from regimescope.errors import CapabilityError, EngineError


@fault("exact-budget")
class OneTooFew(SoundSession):
    def tokens(self, *asked):
        return super().tokens(*asked)[:-1] or [1]


@fault("exact-budget")
class OneTooMany(SoundSession):
    def tokens(self, *asked):
        return [*super().tokens(*asked), 1]


@fault("exact-budget")
class EmptySteps(SoundSession):
    def steps(self, *asked):
        for step in super().steps(*asked):
            yield step
            yield Step(tokens=0)


@fault("exact-budget")
class FirstTwoTogether(SoundSession):
    def steps(self, *asked):
        steps = list(super().steps(*asked))
        yield from steps if len(steps) < 2 else [Step(tokens=2), *steps[2:]]


@fault("unstamped")
class AlwaysStamps(SoundSession):
    def steps(self, prompt_ids, cell, depth, stamped):
        return super().steps(prompt_ids, cell, depth, True)


@fault("unstamped")
class DecodesDifferently(SoundSession):
    def steps(self, prompt_ids, cell, depth, stamped):
        return super().steps(prompt_ids if stamped else [3], cell, depth, stamped)


@fault("same-tokens")
class Remembers(SoundSession):
    def tokens(self, *asked):
        self.seed += 1
        return super().tokens(*asked)


@fault("same-tokens")
class OwnSeed(SoundSession):
    def __init__(self, *parts):
        super().__init__(*parts)
        self.seed = random.SystemRandom().randrange(10**9)


@fault("same-tokens")
class OutsideTheVocabulary(SoundSession):
    def output_ids(self):
        return [[token + 10**6 for token in row] for row in self.rows]


@fault("prompt-matters")
class IgnoresThePrompt(SoundSession):
    def tokens(self, prompt_ids, *rest):
        return super().tokens([1], *rest)


@fault("prompt-lengths")
class ShortPromptsOnly(SoundSession):
    def check(self, prompt_ids, *rest):
        if len(prompt_ids) > 20:
            raise CapabilityError("That is too long.", remedy="Use a shorter prompt.")
        super().check(prompt_ids, *rest)


class Boundless(SoundSession):
    def check(self, prompt_ids, cell, depth):
        super().check(prompt_ids[:1], replace(cell, budget=min(cell.budget, 1)), 0)


fault("beyond-positions")(Boundless)


@fault("beyond-positions")
class NoticesLate(Boundless):
    def steps(self, *asked):
        for number, step in enumerate(super().steps(*asked)):
            if number >= POSITIONS:
                raise CapabilityError("No room is left.", remedy="Use a smaller budget.")
            yield step


@fault("beyond-positions")
class FailsInsteadOfRefusing(SoundSession):
    def check(self, *asked):
        try:
            super().check(*asked)
        except CapabilityError as error:
            raise EngineError("index out of range") from error


@fault("kv-cache")
class CannotDoWithout(SoundSession):
    def check(self, prompt_ids, cell, depth):
        if cell.kv_cache == "off":
            raise CapabilityError("The cache is always on.", remedy="Leave it on.")
        super().check(prompt_ids, cell, depth)


class Obliging(SoundSession):
    """Does as if it had done what it cannot do."""

    def check(self, prompt_ids, cell, depth):
        super().check(prompt_ids, replace(cell, kv_cache="on", batch=1, depth=0, capacity=None), 0)


for claim in ("kv-cache", "batch", "depth", "capacity"):
    fault(claim, can=LITTLE)(Obliging)


@fault("cache-changes-no-token")
class AnotherCacheOtherTokens(SoundSession):
    def tokens(self, prompt_ids, cell, depth):
        return super().tokens(prompt_ids, cell, depth + (cell.kv_cache == "off"))


@fault("cache-kinds")
class AnyKind(SoundEngine):
    def options(self, request):
        return super().options(replace(request, options={}))


@fault("cache-kinds")
class NoKindWorks(SoundEngine):
    def options(self, request):
        if "cache" in request.options:
            raise CapabilityError("Not here.", remedy="Leave out cache.")
        return super().options(request)


@fault("batch")
class OneRow(SoundSession):
    def output_ids(self):
        return self.rows[:1]


@fault("depth")
class CannotFill(SoundSession):
    fill = None


@fault("depth")
class FillStays(SoundSession):
    def steps(self, prompt_ids, cell, depth, stamped):
        self.depth = depth
        return super().steps(prompt_ids, cell, depth, stamped)


@fault("depth")
class CannotTakeAway(SoundSession):
    def fill(self, depth, cell=None):
        super().fill(depth or self.depth, cell)


@fault("depth")
class FillsEverything(SoundSession):
    def fill(self, depth, cell=None):
        super().fill(min(depth, POSITIONS // 2), cell)


@fault("fill-is-claimed", can=replace(EVERYTHING, synthetic_depth=False))
class HidesWhatItCan(SoundSession): ...


@fault("capacity")
class NeverAllocates(SoundSession):
    def check(self, prompt_ids, cell, depth):
        if cell.capacity:
            raise CapabilityError("The cache grows.", remedy="Leave it out.")
        super().check(prompt_ids, cell, depth)


@fault("capacity")
class IgnoresTheCapacity(SoundSession):
    def check(self, prompt_ids, cell, depth):
        super().check(prompt_ids, replace(cell, capacity=None), depth)
