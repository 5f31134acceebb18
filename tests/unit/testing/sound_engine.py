"""An engine that keeps every rule of the contract, on a clock of its own, to be broken by tests."""

from collections import deque

import msgspec

from regimescope.engines.base import Capabilities, EngineRequest, Generation, Step
from regimescope.errors import CapabilityError, EngineError, SpecError
from regimescope.records import ModelFacts

VOCABULARY, POSITIONS, STEP_NS = 101, 64, 1_000_000
WEIGHT_BYTES = 32_000_000
REQUEST = EngineRequest(model="sound", device="host", dtype="float32", seed=5)
EVERYTHING = Capabilities(
    devices=("host",),
    dtypes=("float32", "float16"),
    kv_cache=("on", "off"),
    synthetic_depth=True,
    capacity=True,
    cache_kinds=("growing", "fixed"),
    batch=True,
    unstamped=True,
)
LITTLE = Capabilities(devices=("host",), dtypes=("float32",))


class Options(msgspec.Struct, forbid_unknown_fields=True):
    cache: str = "growing"


class Clock:
    def __init__(self):
        self.at_ns = 0

    def now_ns(self):
        return self.at_ns

    def sleep(self, duration_s):
        self.at_ns += round(duration_s * 1e9)


class SoundSession:
    """Decodes by a recurrence over integers; work for the device is done when it is waited for."""

    def __init__(self, engine, request, options):
        self.engine, self.options = engine, options
        self.seed, self.dtype = request.seed, request.dtype
        self.clock = Clock()
        self.queued_ns = 0
        self.depth = 0
        self.done_count = 0
        self.rows = []

    def facts(self):
        return self.engine.facts(self.dtype)

    def fill(self, depth, cell=None):
        if depth >= POSITIONS:
            raise CapabilityError("That is too deep.", remedy="Use less depth.")
        self.depth = depth

    def generate(self, prompt_ids, cell, *, stamped=True):
        depth, self.depth = self.depth, 0
        self.check(list(prompt_ids), cell, depth)
        return self.steps(list(prompt_ids), cell, depth, stamped)

    def steps(self, prompt_ids, cell, depth, stamped):
        self.rows = [[] for _ in range(cell.batch or 1)]
        tokens = deque(self.tokens(prompt_ids, cell, depth))
        self.take(tokens)
        self.wait()
        yield Step()
        while stamped and tokens:
            self.take(tokens)
            self.wait()
            yield Step()
        if tokens:
            left = len(tokens)
            while tokens:
                self.take(tokens)
            self.wait()
            yield Step(tokens=left)

    def take(self, tokens):
        token = tokens.popleft()
        for row in self.rows:
            row.append(token)
        self.queued_ns += STEP_NS
        self.done_count += 1

    def tokens(self, prompt_ids, cell, depth):
        state, tokens = self.seed + 7 * depth, []
        for token in prompt_ids:
            state = (state * 31 + token + 1) % 10_007
        for _ in range(cell.budget):
            tokens.append(state % VOCABULARY)
            state = (state * 31 + tokens[-1] + 1) % 10_007
        return tokens

    def check(self, prompt_ids, cell, depth):
        can = self.engine.capabilities()
        if not prompt_ids or not cell.budget:
            raise EngineError("nothing to do")
        if not 0 <= min(prompt_ids) <= max(prompt_ids) < VOCABULARY:
            raise EngineError("no such token")
        need = depth + len(prompt_ids) + cell.budget - 1
        for refused in (
            need > POSITIONS,
            cell.capacity is not None and (not can.capacity or self.options.cache != "fixed"),
            cell.capacity is not None and need > cell.capacity,
            (cell.batch or 1) > 1 and not can.batch,
            cell.depth and not can.synthetic_depth,
            cell.kv_cache not in can.kv_cache,
        ):
            if refused:
                raise CapabilityError("That cannot be done.", remedy="Ask for less.")

    def output_ids(self):
        return self.rows

    def wait(self):
        self.clock.at_ns += self.queued_ns
        self.queued_ns = 0

    def counters(self):
        return {"host_allocated": 1024, "steps_count": self.done_count}

    def last_generation(self):
        return Generation(cached_tokens=0, readings={"server_s": 0.5})

    def close(self):
        self.rows = []


class SoundEngine:
    name = "sound"
    Options = Options
    Session = SoundSession
    can = EVERYTHING

    def capabilities(self):
        return self.can

    def facts(self, dtype):
        return ModelFacts(
            device="host",
            dtype=dtype,
            weights="random",
            vocabulary=VOCABULARY,
            positions=POSITIONS,
            weight_bytes=WEIGHT_BYTES,
        )

    def inspect(self, request):
        self.options(request)
        return self.facts(request.dtype)

    def options(self, request):
        for name, asked, known in (
            ("model", request.model, ("sound",)),
            ("device", request.device, ("host",)),
            ("dtype", request.dtype, self.can.dtypes),
            ("cache", request.options.get("cache", "growing"), ("growing", "fixed")),
        ):
            if asked not in known:
                raise SpecError(f"There is no {name} {asked!r}.", remedy=f"Known: {known}.")
        try:
            return msgspec.convert(request.options, Options)
        except msgspec.ValidationError as error:
            raise SpecError(str(error), remedy="Known: cache.") from error

    def open(self, request):
        return self.Session(self, request, self.options(request))
