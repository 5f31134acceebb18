"""What an engine, a model or a limit does not allow, refused before anything runs.

Layer: above ``plan``.
"""

from __future__ import annotations

from msgspec.structs import replace

from regimescope.engines.base import Capabilities
from regimescope.errors import CapabilityError, SpecError
from regimescope.plan import least_block
from regimescope.records import ModelFacts
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
    for axis, can in (
        ("context", capabilities.synthetic_depth),
        ("capacity", capabilities.capacity),
    ):
        if spec.axis == axis and not can:
            raise CapabilityError(
                f"Engine {spec.engine!r} cannot search the axis {axis!r}.",
                remedy="Search budget or prompt.",
            )
    if spec.isolation == "inline" and not capabilities.virtual_clock:
        raise CapabilityError(
            f"Engine {spec.engine!r} takes real time, so it must be measured in its own process.",
            remedy="Leave isolation at 'auto'.",
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
        high = DEFAULT_HIGH if room is None else max(min(DEFAULT_HIGH, room), spec.low + 1)
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
    """Return the largest value on the axis that a model can hold; ``None`` for no limit."""
    if model.positions is None or spec.axis == "capacity":
        return None
    return model.positions - _beside(spec)


def _beside(spec: ScanSpec) -> int:
    """Return the positions that a trial takes beside its value on the axis.

    The last token is produced but never read again, so it takes no position.
    """
    if spec.axis == "budget":
        return spec.prompt_tokens - 1
    return spec.budget - 1 + (spec.prompt_tokens if spec.axis == "context" else 0)


def check_positions(spec: ScanSpec, model: ModelFacts) -> None:
    """Refuse values that do not fit into the positions of the model.

    Raises:
        CapabilityError: Naming the limit and the largest value that fits.
    """
    room = most(spec, model)
    value = spec.budgets[-1] if spec.budgets else spec.high or DEFAULT_HIGH
    if room is None or value <= room:
        return
    longest = _beside(spec) + value
    name = {"budget": "budget", "prompt": "prompt", "context": "depth"}[spec.axis]
    beside = f"Prompt {spec.prompt_tokens}" if spec.axis == "budget" else f"Budget {spec.budget}"
    raise CapabilityError(
        f"{beside} and {name} {value} need {longest:,} positions, "
        f"but {spec.model} has {model.positions:,} positions.",
        remedy=(
            f"Use values of the {name} up to {room}."
            if room >= 2
            else f"Use a smaller --budget: it shares {model.positions:,} positions with the prompt."
            if spec.axis == "prompt"
            else f"Use a shorter prompt: all tokens share {model.positions:,} positions."
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
        raise SpecError(
            f"max_tokens {spec.max_tokens:,} leaves no room for one complete block.",
            remedy=f"A warm-up and {what} need {least:,} tokens.",
        )
