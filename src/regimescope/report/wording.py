"""The conclusion in sentences, shared by terminal, page and job summary. Layer: report.

Only a SPIKE of grade A or B is called a regime; one of grade C is a candidate (design, section 2).
Edges are pairs (a, b]: the last value on one side and the first on the other, so a sentence
claims slowness only for values between the inner ends of both pairs.
"""

from __future__ import annotations

from typing import NamedTuple

from regimescope.reasons import Reason, meaning
from regimescope.report.escaping import plain
from regimescope.results import Conclusion, Estimate, Grade, Modes, Point, Regime, Verdict
from regimescope.units import count, ratio, seconds, share

# Method, section 3: the least of several noisy medians is biased low, so a certificate up to this
# ratio says nothing and is not mentioned.
_LEAST_CERTIFICATE = 1.1


class Words(NamedTuple):
    """How values of an axis are called: one of them, several of them."""

    one: str
    many: str


_AXES = {
    "budget": Words("budget", "budgets"),
    "context": Words("context length", "context lengths"),
    "context_length": Words("context length", "context lengths"),
    "prompt": Words("prompt length", "prompt lengths"),
    "capacity": Words("capacity", "capacities"),
    "batch": Words("batch size", "batch sizes"),
    "time": Words("trial", "trials"),
    "position": Words("position", "positions"),
}

_LATENCIES = {
    "decode": "decode time",
    "prefill": "time to first token",
    "mixed": "latency",
    "kernel": "kernel time",
}

GRADE_MEANINGS = {
    Grade.A: "confirmed on fresh data in six processes or more, and by the test without a curve",
    Grade.B: "confirmed or replicated, but not by every check that grade A asks for",
    Grade.C: "not confirmed on fresh data: a hint, no finding",
}


def axis_words(axis: str) -> Words:
    """Return how values of an axis are called; an unknown axis is called by its own name."""
    return _AXES.get(axis, Words(plain(axis), f"values of {plain(axis)}"))


def latency_word(conclusion: Conclusion) -> str:
    """Return what the latencies of the curve time, such as ``decode time``.

    Along the context length the response is the time of a step (method, section 2).
    """
    phase = conclusion.baseline.phase if conclusion.baseline else "mixed"
    if phase == "decode" and conclusion.axis in ("context", "context_length"):
        return "step time"
    return _LATENCIES.get(phase, "latency")


def points_of(conclusion: Conclusion) -> tuple[Point, ...]:
    """Return the measured points, empty where the conclusion has none."""
    return conclusion.baseline.points if conclusion.baseline else ()


def headline(conclusion: Conclusion) -> str:
    """Return the verdict in one sentence: class, grade, where, how much, which edges."""
    verdict = conclusion.verdict
    if verdict is Verdict.CLEAN:
        body = _clean(conclusion)
    elif verdict is Verdict.INCONCLUSIVE:
        body = _inconclusive(conclusion)
    elif verdict is Verdict.DRIFT:
        body = "the machine changed its speed while measuring, so no value can be blamed"
    else:
        body = _interval_sentence(conclusion)
    return f"{_title(conclusion)} (grade {conclusion.grade.value}): {body}."


def _title(conclusion: Conclusion) -> str:
    """Return the class, for a SPIKE with the word its evidence allows."""
    if conclusion.verdict is not Verdict.SPIKE:
        return f"{conclusion.verdict.value}"
    kinds = [regime_kind(regime) for regime in primary_regimes(conclusion)]
    word = "candidate" if conclusion.grade is Grade.C else "regime"
    kind = kinds[0] if kinds else f"SPIKE {word}"
    return f"{kind}s" if kinds.count(kind) > 1 else kind


def regime_kind(regime: Regime) -> str:
    """Return the class of one interval, for a SPIKE with the word its evidence allows."""
    if regime.verdict is not Verdict.SPIKE:
        return f"{regime.verdict.value}"
    return "SPIKE candidate" if regime.grade is Grade.C else "SPIKE regime"


def primary_regimes(conclusion: Conclusion) -> list[Regime]:
    """Return the intervals of the primary class, the best proven first, then the slowest."""

    def weight(regime: Regime) -> tuple[str, float]:
        return regime.grade.value, -(regime.slowdown.value if regime.slowdown else 0.0)

    same = [regime for regime in conclusion.regimes if regime.verdict is conclusion.verdict]
    return sorted(same, key=weight)


def _clean(conclusion: Conclusion) -> str:
    """Say that nothing was found, and in what range nothing was found."""
    points = points_of(conclusion)
    if not points:
        return "no slow interval was found"
    names = axis_words(conclusion.axis)
    if len(points) == 1:
        return f"no slow interval at the one {names.one} measured, {points[0].x}"
    return f"no slow interval in {len(points)} {names.many} from {points[0].x} to {points[-1].x}"


def _inconclusive(conclusion: Conclusion) -> str:
    """Say why there is no verdict: the first reason in full, the number of the others."""
    if not conclusion.reasons:
        return "these measurements do not allow a verdict"
    first, *others = conclusion.reasons
    more = f"; {count(len(others), 'further limit')} below" if others else ""
    return f"no verdict is possible ({reason_text(first, conclusion)}{more})"


def reason_text(reason: Reason, conclusion: Conclusion) -> str:
    """Return what a reason code means for a conclusion, in the words of its axis."""
    words = axis_words(conclusion.axis)
    return meaning(reason, one=words.one, many=words.many, origin=conclusion.origin)


def _modes_sentence(modes: Modes) -> str:
    """Describe two levels of processes, which no single number summarizes."""
    share = modes.slow_share
    return (
        f"processes settle at {seconds(modes.fast_s)} or at {seconds(modes.slow_s)}, "
        f"{ratio(modes.ratio)} apart; {round(share.value * (share.n or 0))} of {share.n} are slow"
    )


def _interval_sentence(conclusion: Conclusion) -> str:
    """Describe the weightiest interval of the primary class and count the others."""
    regimes = primary_regimes(conclusion)
    names, latency = axis_words(conclusion.axis), latency_word(conclusion)
    if conclusion.modes is not None:
        return _modes_sentence(conclusion.modes)
    if not regimes:
        return f"the {latency} departs from the expected curve, without an interval to name"
    first = regimes[0]
    if first.period is not None:
        much = f", {ratio(first.slowdown.value)}" if first.slowdown else ""
        basis = (
            f" over {count(first.slowdown.n, 'cycle')}"
            if first.slowdown and first.slowdown.n
            else ""
        )
        return (
            f"one step in every {first.period} is slower than the others of its cycle{much}{basis}"
        )
    where = f"{names.many} {span(first)}" if span(first) else f"all {names.many}"
    body = f"{where} {_behavior(first, latency)}; {edges(first, conclusion)}"
    return f"{body}{_others(regimes)}"


def _others(regimes: list[Regime]) -> str:
    """Count the intervals after the first by kind, candidates apart from regimes."""
    kinds = [regime_kind(regime) for regime in regimes[1:]]
    counted = [f"{kinds.count(kind)} more {kind}" for kind in dict.fromkeys(kinds)]
    plural = [text if text.startswith("1 ") else f"{text}s" for text in counted]
    return f", and {' and '.join(plural)}" if plural else ""


def _behavior(regime: Regime, latency: str) -> str:
    """Say what the latency does inside an interval."""
    much = ratio(regime.slowdown.value) if regime.slowdown else None
    basis = f" ({estimate_basis(regime.slowdown)})" if estimate_basis(regime.slowdown) else ""
    average = f", on average {much} the expected{basis}" if much else ""
    if regime.verdict is Verdict.RAMP:
        return f"rise ever further above the expected {latency}{average}"
    if regime.verdict is Verdict.SAWTOOTH:
        return f"show a {latency} that rises and falls back periodically{average}"
    if regime.verdict is Verdict.BIMODAL:
        return f"have {_of_processes(regime.share, latency)}{average}"
    return f"take {much or 'longer than'} the expected {latency}{basis}"


def _of_processes(slow: Estimate | None, latency: str) -> str:
    """Say in how many processes the latency is slow; all of those seen are not some of them."""
    if slow is None:
        return f"a slow {latency} in some processes, a normal one in others"
    if slow.value >= 1:
        seen = "" if slow.n is None else f" {slow.n}"
        low = "" if slow.low is None else f" ({share(slow.low)} or more of all)"
        return f"a slow {latency} in every one of{seen} processes{low}"
    return (
        f"a slow {latency} in some processes ({share(slow.value)} of them), a normal one in others"
    )


def span(regime: Regime) -> str:
    """Return the values known to lie inside an interval: ``512 to 639``, ``from 512 on``.

    Both ends are inclusive and are the inner ends of the edges; empty if neither edge is seen.
    """
    first = regime.onset[1] if regime.onset else None
    last = regime.recovery[0] if regime.recovery else None
    if first is not None and last is not None:
        return f"{first} to {last}" if first < last else f"{first}"
    if first is not None:
        return f"from {first} on"
    return f"up to {last}" if last is not None else ""


def edges(regime: Regime, conclusion: Conclusion) -> str:
    """Return both edges in words, including one that the sweep does not reach."""
    points = points_of(conclusion)
    if regime.onset:
        onset = f"onset {edge_text(regime.onset)}"
    else:
        onset = f"no onset seen down to {points[0].x}" if points else "no onset seen"
    if regime.recovery:
        recovery = f"recovery {edge_text(regime.recovery)}"
    else:
        recovery = f"no recovery seen up to {points[-1].x}" if points else "no recovery seen"
    searched = conclusion.guarantee
    coarse = searched is not None and searched.prevalence < 1 and (regime.onset or regime.recovery)
    return f"{onset}, {recovery}{' (edges not refined)' if coarse else ''}"


def edge_text(edge: tuple[int, int]) -> str:
    """Return where an edge lies: ``at 512`` if exact, else the half-open ``in (496, 512]``."""
    below, above = edge
    return f"at {above}" if above - below == 1 else f"in ({below}, {above}]"


def estimate_basis(estimate: Estimate | None) -> str:
    """Return the interval of a ratio and the observations behind it, as far as known."""
    parts = []
    if estimate and estimate.low is not None and estimate.high is not None:
        parts.append(f"95 % interval {ratio(estimate.low)} to {ratio(estimate.high)}")
    if estimate and estimate.n is not None:
        parts.append(f"n = {estimate.n}")
    return ", ".join(parts)


def certificate_sentence(conclusion: Conclusion) -> str | None:
    """Return the evidence that needs no curve, or ``None`` where it shows nothing."""
    certificate = conclusion.certificate
    if certificate is None or certificate.value <= _LEAST_CERTIFICATE:
        return None
    name = axis_words(conclusion.axis).one
    return (
        f"Without any curve: {name} {certificate.at} takes {ratio(certificate.value)} "
        f"the {latency_word(conclusion)} of the larger {name} {certificate.over}."
    )
