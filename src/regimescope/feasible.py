"""What an engine, a model or a limit does not allow, refused before anything runs.

Layer: above ``plan``.
"""

from __future__ import annotations

from msgspec.structs import replace

from regimescope import axes
from regimescope.engines.base import Capabilities
from regimescope.errors import CapabilityError, SpecError
from regimescope.plan import base_cell, least_block
from regimescope.records import Cell, ModelFacts
from regimescope.search.screening import LEAST_GRID
from regimescope.spec import DEFAULT_HIGH, ScanSpec
from regimescope.stats.mixture import screen_repeats
from regimescope.units import listing

# A plan as published: every 16 tokens, 3 warm-ups and 5 runs of each (arXiv 2605.08913).
PUBLISHED_STEP, PUBLISHED_RUNS = 16, 8
# A search with one slow interval takes about three times its screen; ten leave room for several,
# also on a range so short that the published plan would be cheap.
SCREENS_ALLOWED = 10
# The published study took over two hours; a search that is not done in twice that will not be.
MAX_SEARCH_S = 4 * 3600.0


def check_capabilities(spec: ScanSpec, capabilities: Capabilities) -> None:
    """Refuse what an engine cannot do, before it is started.

    Raises:
        CapabilityError: Naming the setting and what the engine offers.
    """
    for setting, wanted, offered in (
        ("kv_cache", spec.kv_cache, capabilities.kv_cache),
        ("mode", spec.mode, capabilities.modes),
    ):
        if wanted not in offered:
            raise CapabilityError(
                f"Engine {spec.engine!r} cannot do {setting} {wanted!r}.",
                remedy=f"It offers {setting}: {listing(offered)}.",
            )
    if spec.batch > 1 and not capabilities.batch:
        raise CapabilityError(
            f"Engine {spec.engine!r} decodes one sequence at a time; batch {spec.batch} is asked.",
            remedy="Use batch 1.",
        )
    if spec.observer and not capabilities.unstamped:
        raise CapabilityError(
            f"Engine {spec.engine!r} always synchronizes at every token, so that the observer "
            "effect cannot be measured.",
            remedy="Leave out --observer.",
        )
    check_reserved(spec, capabilities)
    if spec.isolation == "inline" and not capabilities.virtual_clock:
        raise CapabilityError(
            f"Engine {spec.engine!r} takes real time, so it must be measured in its own process.",
            remedy="Leave isolation at 'auto'.",
        )


def check_reserved(spec: ScanSpec, capabilities: Capabilities) -> None:
    """Refuse to fill or to reserve KV positions where that cannot be done.

    Raises:
        CapabilityError: Naming the option and the remedy.
    """
    for axis, option, value, can in (
        ("context", "--depth", spec.depth, capabilities.synthetic_depth),
        ("capacity", "--capacity", spec.capacity, capabilities.capacity),
    ):
        if spec.axis == axis and not can:
            raise CapabilityError(
                f"Engine {spec.engine!r} cannot search the axis {axis!r}.",
                remedy="Search budget or prompt.",
            )
        if value is not None and not can:
            raise CapabilityError(
                f"Engine {spec.engine!r} cannot do {option} {value}.",
                remedy=f"Leave out {option}.",
            )
        if spec.kv_cache == "off" and (spec.axis == axis or value is not None):
            raise CapabilityError(
                f"Without a KV cache there is no {option[2:]} to set.",
                remedy="Leave out --kv-cache off, or search budget or prompt.",
            )


def resolved_search(spec: ScanSpec, model: ModelFacts) -> ScanSpec:
    """Return a search with its range and its maximum filled in; a fixed plan as it is.

    Without a wish the range ends at 1024 or where the model does, the tokens at what a grid of 16
    with 3 warm-ups and 5 runs of every value would take, as published studies measure, and the
    time at four hours. A prevalence below one takes as many times the tokens as it takes screens.
    """
    if spec.budgets:
        return spec
    high = spec.high
    if high is None:
        room = most(spec, model)
        high = (
            DEFAULT_HIGH
            if room is None
            else max(min(DEFAULT_HIGH, room), spec.low + LEAST_GRID - 1)
        )
    # A short range has no place for an interval of the usual width; it is looked at all the same.
    spec = replace(spec, min_width=min(spec.min_width, high - spec.low))
    values = range(spec.low, high + 1, PUBLISHED_STEP)
    repeats = screen_repeats(spec.prevalence)
    tokens = (
        PUBLISHED_RUNS * repeats * sum(v if spec.axis == "budget" else spec.budget for v in values)
    )
    return replace(
        spec,
        high=high,
        max_tokens=spec.max_tokens
        or max(tokens, SCREENS_ALLOWED * repeats * least_block(replace(spec, high=high))),
        max_seconds=spec.max_seconds or MAX_SEARCH_S,
    )


def most(spec: ScanSpec, model: ModelFacts) -> int | None:
    """Return the largest value on the axis that fits; ``None`` for no limit.

    What limits it are the positions of the model and a fixed capacity.
    """
    capacity = None if spec.capacity is None else spec.capacity - _kept(model)
    limits = [n for n in (model.positions, capacity) if n is not None]
    if not limits or spec.axis == "capacity":
        return None
    return min(limits) - _beside(spec)


def largest_cell(spec: ScanSpec) -> Cell:
    """Return the largest generation that a spec may ask for; a model can hold no more of it."""
    high = spec.budgets[-1] if spec.budgets else spec.high or DEFAULT_HIGH
    return axes.at(base_cell(spec), spec.axis, high)


def _kept(model: ModelFacts) -> int:
    """Return the positions of a capacity that the last token takes although nobody reads it.

    Engines that ask for one say so as ``last_token_kept`` among the settings of the model; the
    positions of their models leave it out already.
    """
    return int(bool(model.settings and model.settings.get("last_token_kept")))


def _beside(spec: ScanSpec) -> int:
    """Return the positions that a trial takes beside its value on the axis.

    The last token is produced but never read again, so it takes no position.
    """
    taken = {
        "budget": 0 if spec.axis == "budget" else spec.budget,
        "prompt": 0 if spec.axis == "prompt" else spec.prompt_tokens,
        "context": spec.depth or 0,
    }
    return sum(taken.values()) - 1


def check_positions(spec: ScanSpec, model: ModelFacts) -> None:
    """Refuse values that do not fit into the positions of the model or into the capacity.

    Raises:
        CapabilityError: Naming the limit and the largest value that fits.
    """
    check_cache(spec, model)
    if spec.axis == "capacity":
        _check_capacities(spec, _kept(model))
    room = most(spec, model)
    value = spec.budgets[-1] if spec.budgets else spec.high or DEFAULT_HIGH
    if room is None or value <= room:
        return
    longest = _beside(spec) + value + (0 if spec.capacity is None else _kept(model))
    name = _NAMES[spec.axis]
    beside = [f"Depth {spec.depth}"] if spec.depth else []
    beside += [f"prompt {spec.prompt_tokens}"] if spec.axis != "prompt" else []
    beside += [f"budget {spec.budget}"] if spec.axis != "budget" else []
    what = f"{', '.join(beside)} and {name} {value}"
    if spec.capacity is not None and (model.positions or longest) >= spec.capacity:
        holder = f"--capacity is {spec.capacity:,}"
    else:
        holder = f"{spec.model} has {model.positions:,} positions"
    raise CapabilityError(
        f"{what[0].upper()}{what[1:]} need {longest:,} positions, but {holder}.",
        remedy=(
            f"Use values of the {name} up to {room}."
            if room >= 2
            else f"Use a smaller --budget: {holder}, which it shares with the prompt."
            if spec.axis == "prompt"
            else f"Use a shorter prompt{_less(spec)}: {holder}, which all tokens share."
        ),
    )


# How messages name the value on an axis.
_NAMES = {"budget": "budget", "prompt": "prompt", "context": "depth"}


def _less(spec: ScanSpec) -> str:
    """Return what else than the prompt could be smaller or larger."""
    less = ", less --depth" if spec.depth else ""
    return f"{less} or a larger --capacity" if spec.capacity is not None else less


def check_cache(spec: ScanSpec, model: ModelFacts) -> None:
    """Refuse settings that the kind of cache which the engine was told to use rules out.

    Engines that can choose name it as ``cache`` among the settings of the model.

    Raises:
        CapabilityError: Naming the kind and the remedy.
    """
    kind = model.settings.get("cache") if model.settings else None
    if kind is None:
        return
    if kind != "static" and (spec.axis == "capacity" or spec.capacity is not None):
        raise CapabilityError(
            f"The KV cache is {kind} and grows, so that its capacity cannot be chosen.",
            remedy="Add --engine-option cache=static.",
        )
    if kind != "dynamic" and spec.kv_cache == "off":
        raise CapabilityError(
            f"--kv-cache off leaves no place for a {kind} cache.",
            remedy=f"Leave out --engine-option cache={kind}, or --kv-cache off.",
        )


def _check_capacities(spec: ScanSpec, kept: int) -> None:
    """Refuse a range of capacities whose smallest cannot hold a trial."""
    need, low = _beside(spec) + kept, spec.budgets[0] if spec.budgets else spec.low
    if low >= need:
        return
    high = spec.high or DEFAULT_HIGH
    raise CapabilityError(
        f"A capacity of {low:,} cannot hold prompt {spec.prompt_tokens} and budget "
        f"{spec.budget}, which need {need:,} positions.",
        remedy=(
            f"Leave out capacities below {need}, or use a shorter prompt."
            if spec.budgets
            else f"Use --range {need}:{max(high, 2 * need)}, or a shorter prompt."
        ),
    )


def check_limits(spec: ScanSpec) -> None:
    """Refuse a limit that leaves no room for one complete block.

    Raises:
        SpecError: Naming the least limit that works.
    """
    least = least_block(spec)
    if spec.max_tokens is not None and spec.max_tokens < least:
        what = "one visit to every budget" if spec.budgets else "the first screen"
        narrower = "fewer --budgets" if spec.budgets else "a narrower --range"
        raise SpecError(
            f"--max-tokens {spec.max_tokens} leaves no room for a warm-up and {what}.",
            remedy=f"Give --max-tokens {least} or more, or {narrower}.",
        )
