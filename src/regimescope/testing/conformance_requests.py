"""Checks of what an engine says before it decodes: members, capabilities, facts, refusals.

Layer: ``testing``.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any, get_args

import msgspec
import psutil
from msgspec.structs import replace

from regimescope.engines.base import Capabilities, EngineRequest
from regimescope.errors import UserError
from regimescope.records import ModelFacts
from regimescope.spec import KvCache, Mode
from regimescope.testing.conformance_subject import (
    BrokenRuleError,
    Subject,
    apply_if,
    demand,
    has_remedy,
)

# A name that no model, device or element type has, and no hub identifier may have.
UNKNOWN = "no..such..name"
# Below this, weights disappear in what an interpreter allocates anyway.
LEAST_VISIBLE_BYTES = 16_000_000
# Facts that a configuration already holds, so that loading cannot change them.
AGREED = (
    "device",
    "dtype",
    "weights",
    "positions",
    "vocabulary",
    "layers",
    "kv_heads",
    "head_dim",
    "weight_bytes",
)


def members(subject: Subject) -> None:
    """Both protocols are there: names and methods."""
    engine: Any = subject.engine
    name = getattr(engine, "name", None)
    demand(isinstance(name, str) and bool(name), "the engine has no name")
    _has_methods("the engine", engine, "capabilities", "inspect", "open")
    session: Any = subject.session
    _has_methods("the session", session, "facts", "generate", "counters", "close")
    clock = getattr(session, "clock", None)
    demand(clock is not None, "the session has no clock")
    _has_methods("the clock", clock, "now_ns", "sleep")


def capabilities(subject: Subject) -> None:
    """The capabilities are well formed, and the same whenever they are asked for."""
    found: Any = subject.engine.capabilities()
    demand(isinstance(found, Capabilities), f"capabilities() gives a {type(found).__name__}")
    try:
        msgspec.convert(msgspec.to_builtins(found), Capabilities)
    except msgspec.ValidationError as error:
        raise BrokenRuleError(f"a capability has a wrong type: {error}") from error
    for field, known in (
        ("devices", None),
        ("dtypes", None),
        ("kv_cache", get_args(KvCache)),
        ("modes", get_args(Mode)),
    ):
        names = getattr(found, field)
        demand(bool(names) and all(names), f"{field} names nothing")
        demand(len(set(names)) == len(names), f"{field} names something twice")
        demand(known is None or set(names) <= set(known), f"{field} names what nobody knows")
    kinds = found.cache_kinds
    demand(len(set(kinds)) == len(kinds) and all(kinds), "cache_kinds names something twice")
    demand(found == subject.engine.capabilities(), "capabilities change between two calls")


def facts(subject: Subject) -> None:
    """What ``inspect`` says is well formed, and is what ``open`` then loads."""
    said: Any = subject.engine.inspect(subject.request)
    demand(isinstance(said, ModelFacts), f"inspect() gives a {type(said).__name__}")
    try:
        msgspec.convert(msgspec.to_builtins(said), ModelFacts)
        msgspec.json.encode(said)
    except (TypeError, msgspec.ValidationError) as error:
        raise BrokenRuleError(f"a fact cannot be stored: {error}") from error
    offered = subject.capabilities
    kind = said.device.partition(":")[0]
    demand(kind in offered.devices, f"device {said.device!r} is none of the capabilities")
    demand(said.dtype in offered.dtypes, f"dtype {said.dtype!r} is none of the capabilities")
    demand(said.vocabulary >= 2, f"a vocabulary of {said.vocabulary} is none")
    demand(said.positions is None or said.positions >= 1, f"{said.positions} positions are none")
    loaded = subject.facts
    for name in AGREED:
        before, after = getattr(said, name), getattr(loaded, name)
        demand(before == after, f"inspect says {name} {before!r}, the session {after!r}")


def inspect_loads_nothing(subject: Subject) -> None:
    """``inspect`` does not put the weights into memory."""
    weights = subject.engine.inspect(subject.request).weight_bytes
    apply_if(weights is not None, "the engine does not know the size of the weights")
    needed = weights or 0
    apply_if(needed >= LEAST_VISIBLE_BYTES, f"weights of {needed:,} bytes are too few to be seen")
    # Another seed, so that nothing kept from the first call can serve.
    again = replace(subject.request, seed=subject.request.seed + 1)
    process = psutil.Process()
    resident = process.memory_info().rss
    tracemalloc.start()
    try:
        subject.engine.inspect(again)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    grown = max(process.memory_info().rss - resident, peak)
    demand(
        grown < needed // 2, f"inspect took {grown:,} bytes of memory; the weights have {needed:,}"
    )


def unknown_model(subject: Subject) -> None:
    """An unknown model is refused with a remedy."""
    _refuses_request(subject, "an unknown model", replace(subject.request, model=UNKNOWN))


def unknown_device(subject: Subject) -> None:
    """An unknown device is refused with a remedy."""
    _refuses_request(subject, "an unknown device", replace(subject.request, device=UNKNOWN))


def unknown_dtype(subject: Subject) -> None:
    """An unknown element type is refused with a remedy."""
    _refuses_request(subject, "an unknown dtype", replace(subject.request, dtype=UNKNOWN))


def unknown_option(subject: Subject) -> None:
    """An unknown option is refused with a remedy, never passed over."""
    options = {**subject.request.options, "no_such_option": 1}
    _refuses_request(subject, "an unknown option", replace(subject.request, options=options))


def _has_methods(owner: str, thing: Any, *methods: str) -> None:
    """Demand methods by name."""
    for method in methods:
        demand(callable(getattr(thing, method, None)), f"{owner} has no method {method}")


def _refuses_request(subject: Subject, what: str, request: EngineRequest) -> None:
    """Demand that a request is refused, by ``inspect`` as by ``open``."""
    calls: tuple[tuple[str, Callable[[EngineRequest], Any]], ...] = (
        ("inspect", subject.engine.inspect),
        ("open", _open_and_close(subject)),
    )
    for name, call in calls:
        try:
            call(request)
        except UserError as error:
            has_remedy(error, what)
        else:
            raise BrokenRuleError(f"{name} does not refuse {what}")


def _open_and_close(subject: Subject) -> Callable[[EngineRequest], None]:
    """Return a call that opens a session and lets go of it."""

    def call(request: EngineRequest) -> None:
        subject.engine.open(request).close()

    return call
