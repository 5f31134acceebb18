"""What disturbed a measurement, in sentences for terminal and page. Layer: report."""

from __future__ import annotations

from regimescope.report.wording import span
from regimescope.results import Conclusion, Estimate, Regime
from regimescope.units import count, ratio, share

_BEHAVIORS = {"smooth": "on it", "higher": "above it", "lower": "below it"}
_FOLLOWS = {
    "budget": "the budget or the state it brings about",
    "context_length": "the context length",
}


def noise_sentences(conclusion: Conclusion) -> list[str]:
    """Return what is known of spread, drift, warm-up, observer and vetoes, one sentence each."""
    noise = conclusion.noise
    if noise is None:
        return []
    sentences = []
    if noise.within is not None and noise.between is not None:
        spread = f"{share(noise.within)} within a process, {share(noise.between)} between processes"
        sentences.append(f"spread: {spread}")
    changes = (
        ("drift over a process run", noise.drift),
        ("first generation against later ones", noise.warm_up),
        ("stamping every token against not", noise.observer),
    )
    sentences += [f"{name}: {_change(change)}" for name, change in changes if change is not None]
    if noise.vetoed:
        sentences.append(_vetoes(noise.vetoed, noise.veto_shift))
    return sentences


def cause_sentences(conclusion: Conclusion) -> list[str]:
    """Return what each slow interval follows, and what the steps show, where they tell."""
    steps = [_of_steps(regime) for regime in conclusion.positions]
    return steps + [
        f"the slowness at {span(regime)} follows {_FOLLOWS[regime.follows]}{_shared(regime)}"
        for regime in conclusion.regimes
        if regime.follows in _FOLLOWS
    ]


def memory_sentences(conclusion: Conclusion) -> list[str]:
    """Return how memory behaves in each slow interval, one sentence each.

    What runs smoothly through an interval cannot explain it; what was not recorded may.
    """
    intervals = dict.fromkeys((one.onset, one.recovery) for one in conclusion.memory)
    sentences = []
    for onset, recovery in intervals:
        readings = [m for m in conclusion.memory if (m.onset, m.recovery) == (onset, recovery)]
        first, last = (onset or (0, 0))[1], (recovery or (0, 0))[0]
        words = [
            f"{one.kind.replace('_', ' ')} {_BEHAVIORS[one.behavior]} ({ratio(one.ratio.value)})"
            for one in readings
        ]
        sentences.append(
            f"memory at {first} to {last} against the line through the values around: "
            f"{', '.join(words)}; other kinds were not recorded"
        )
    return sentences


def _of_steps(regime: Regime) -> str:
    """Say where on the axis of context lengths steps are slow."""
    much = "" if regime.slowdown is None else f" ({ratio(regime.slowdown.value)})"
    if regime.period is not None:
        return f"one step in every {regime.period} is slower than the others of its cycle{much}"
    return f"steps at context lengths {span(regime)} are slow{much}"


def _shared(regime: Regime) -> str:
    """Return the comparison of shared steps in brackets, if there is one."""
    if regime.prefix is None:
        return ""
    slow, normal = regime.prefix.n
    return (
        f" (steps shared with longer normal generations take {ratio(regime.prefix.ratio)} as long"
        f"{_total(regime.prefix.total_ratio)}, "
        f"p = {regime.prefix.p_value:.2g}, {slow} against {normal} processes)"
    )


def _vetoes(blocks: int, shift: float | None) -> str:
    """Return how many blocks were dropped, and how far the machine moved during the worst."""
    size = "" if shift is None else f": a repeated small trial took {ratio(shift)} its earlier time"
    return f"{count(blocks, 'block')} dropped because the machine changed its speed{size}"


def _change(change: Estimate) -> str:
    """Return a ratio with its interval and the number behind it."""
    parts = [] if change.low is None else [f"{ratio(change.low)} to {ratio(change.high or 0.0)}"]
    if change.n is not None:
        parts.append(f"n = {change.n:,}")
    return f"{ratio(change.value)}" + (f" ({', '.join(parts)})" if parts else "")


def _total(found: float | None) -> str:
    """Return the comparison of totals with sums of traces, if there is one."""
    return "" if found is None else f", totals {ratio(found)} the sum of as many of their steps"
