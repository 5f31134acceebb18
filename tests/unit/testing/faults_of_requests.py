"""Engines that say what is not so, or take what they should refuse."""

from msgspec.structs import replace
from tests.unit.testing.faults import fault
from tests.unit.testing.sound_engine import EVERYTHING, WEIGHT_BYTES, SoundEngine, SoundSession

from regimescope.errors import UserError


@fault("members")
class Nameless(SoundEngine):
    name = ""


@fault("members")
class WithoutCounters(SoundSession):
    counters = None


@fault("members")
class WithoutSleep(SoundSession):
    def __init__(self, *parts):
        super().__init__(*parts)
        self.clock.sleep = None


@fault("capabilities", can=replace(EVERYTHING, devices=()))
class OnNoDevice(SoundEngine): ...


@fault("capabilities", can=replace(EVERYTHING, dtypes=("float32", "float32")))
class NamesTwice(SoundEngine): ...


@fault("capabilities", can=replace(EVERYTHING, kv_cache=("sometimes",)))
class UnheardOfSetting(SoundEngine): ...


@fault("capabilities", can=replace(EVERYTHING, batch="yes"))
class WrongType(SoundEngine): ...


@fault("capabilities", can=replace(EVERYTHING, cache_kinds=("fixed", "fixed")))
class KindTwice(SoundEngine): ...


@fault("capabilities")
class Wavers(SoundEngine):
    def __init__(self):
        self.calls = 0

    def capabilities(self):
        self.calls += 1
        return replace(self.can, batch=self.calls % 2 == 0)


@fault("facts")
class LoadsAnother(SoundSession):
    def facts(self):
        return replace(super().facts(), weight_bytes=WEIGHT_BYTES + 1)


@fault("facts")
class LeavesAuto(SoundEngine):
    def facts(self, dtype):
        return replace(super().facts(dtype), device="auto")


@fault("facts")
class OtherDtype(SoundEngine):
    def facts(self, dtype):
        return replace(super().facts(dtype), dtype="int4")


@fault("facts")
class NoPositions(SoundEngine):
    def facts(self, dtype):
        return replace(super().facts(dtype), positions=0)


@fault("facts")
class CannotBeStored(SoundEngine):
    def facts(self, dtype):
        return replace(super().facts(dtype), settings={"handle": object()})


@fault("inspect-loads-nothing")
class LoadsToInspect(SoundEngine):
    def inspect(self, request):
        self.weights = bytearray(WEIGHT_BYTES)
        return super().inspect(request)


def takes_anything(name, known):
    """Return an engine that passes over one unknown name."""

    class Careless(SoundEngine):
        def options(self, request):
            return super().options(replace(request, **{name: known}))

    return Careless


fault("unknown-model")(takes_anything("model", "sound"))
fault("unknown-device")(takes_anything("device", "host"))
fault("unknown-dtype")(takes_anything("dtype", "float32"))
fault("unknown-option")(takes_anything("options", {}))


@fault("unknown-model")
class NoRemedy(SoundEngine):
    def options(self, request):
        if request.model != "sound":
            raise UserError("There is no such model.")
        return super().options(request)


@fault("unknown-device")
class OwnError(SoundEngine):
    def options(self, request):
        if request.device != "host":
            raise ValueError("bad device")
        return super().options(request)


@fault("unknown-dtype")
class NoticesWhenLoading(SoundEngine):
    def inspect(self, request):
        return self.facts(request.dtype)
