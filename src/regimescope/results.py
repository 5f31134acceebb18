"""What is concluded, and the JSON object that every command prints. Layer: beside ``records``.

Conclusions are recomputed from records, never stored as truth (design, section 5).
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

import msgspec

from regimescope.reasons import Reason

SCHEMA_VERSION = 1

# Far below what any timer resolves, and far above what logarithms lose.
SIGNIFICANT_DIGITS = 12

Origin = Literal["search", "plan", "import"]
Behavior = Literal["smooth", "higher", "lower"]


class Verdict(str, Enum):
    """The closed set of shapes that a sweep can have (method, section 9)."""

    CLEAN = "CLEAN"
    STEP = "STEP"
    SPIKE = "SPIKE"
    SAWTOOTH = "SAWTOOTH"
    RAMP = "RAMP"
    BIMODAL = "BIMODAL"
    DRIFT = "DRIFT"
    INCONCLUSIVE = "INCONCLUSIVE"


class Grade(str, Enum):
    """How strong the evidence is (method, section 9). Only A and B make a SPIKE a regime."""

    A = "A"
    B = "B"
    C = "C"


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every conclusion: immutable, keys that do not apply are absent."""


class Estimate(Result, frozen=True, kw_only=True):
    """A number with its interval and the size of the sample behind it.

    Attributes:
        value: The estimate.
        low: Lower end of the 95 % interval.
        high: Upper end of the 95 % interval.
        n: Observations behind it.
    """

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None


class Range(Result, frozen=True, kw_only=True):
    """A median with the extremes of the sample: a description, not an interval for the truth.

    Attributes:
        value: The median.
        low: The least value.
        high: The largest value.
        n: Size of the sample.
    """

    value: float
    low: float
    high: float
    n: int


class Prefix(Result, frozen=True, kw_only=True):
    """Whether equal steps take equal time in slow and in normal generations (method, 1.2).

    Attributes:
        consistent: The steps that a slow budget shares with a larger normal one are no slower.
        ratio: Step time of the slow generations over that of the normal ones on shared steps.
        total_ratio: Total of the slow generations over the sum of as many steps of longer normal
            ones; about 1 where the budget only sets the number of steps.
        p_value: Exact two-sided rank test over processes.
        n: Slow and normal processes compared; fewer than 6 on a side decide nothing.
    """

    consistent: bool
    ratio: float
    total_ratio: float | None = None
    p_value: float
    n: tuple[int, int]


class Noise(Result, frozen=True, kw_only=True):
    """What disturbs the measurement, each as a ratio or a standard deviation of log seconds.

    Attributes:
        within: Scatter of repeats in one process.
        between: Scatter between processes, repeat noise removed.
        drift: Change over a process run, last over first trial.
        warm_up: First generation of a process over later ones of the same budget.
        observer: Total time with a stamp at every token over that without.
        vetoed: Blocks dropped because the machine changed its speed.
        veto_shift: The largest factor by which it did so during one of them.
    """

    within: float | None = None
    between: float | None = None
    drift: Estimate | None = None
    warm_up: Estimate | None = None
    observer: Estimate | None = None
    vetoed: int | None = None
    veto_shift: float | None = None


class Regime(Result, frozen=True, kw_only=True):
    """One interval of the swept axis and what it is (a SPIKE of grade C is a candidate).

    Attributes:
        verdict: The class of the interval; ``class`` in JSON.
        onset: Last value before the slow interval and first one in it; absent if it is not seen.
        recovery: Last slow value and first normal one after it; absent if it is not seen.
        slowdown: Observed over expected latency at the same value.
        peak: Largest such ratio of a single value.
        ratio_to_reference: Latency at the first slow value over that at the last normal one before
            it, as published reports compute it. Not comparable between different steps.
        share: Share of processes that are slow inside, where not all of them are.
        period: Steps from one slow one to the next, where single steps recur.
        lost_s: Seconds above the expectation, summed over one trial at every measured slow value.
        follows: What the slowness follows, where the steps of the trials tell: ``budget`` (or the
            state it brings about), or ``context_length``.
        prefix: The comparison of shared steps behind it.
        grade: Strength of the evidence.
        reasons: Reason codes that limit the claim.
    """

    verdict: Verdict = msgspec.field(name="class")
    grade: Grade
    onset: tuple[int, int] | None = None
    recovery: tuple[int, int] | None = None
    slowdown: Estimate | None = None
    peak: Estimate | None = None
    ratio_to_reference: float | None = None
    share: Estimate | None = None
    period: int | None = None
    lost_s: float | None = None
    follows: str | None = None
    prefix: Prefix | None = None
    reasons: tuple[Reason, ...] = ()


class Certificate(Result, frozen=True, kw_only=True):
    """How much slower a value is than some larger one, which no increasing curve can explain.

    Attributes:
        value: Largest ratio of a median to the least median at any larger value.
        at: The value of the axis where it occurs.
        over: The larger, faster value it is compared with.
    """

    value: float
    at: int
    over: int


class Point(Result, frozen=True, kw_only=True):
    """One value of the swept axis.

    In a search a trial that was ended early, having proved slow, stands for what it would have
    come to.

    Attributes:
        x: Value of the swept axis.
        latency_s: Median over its trials of the latency, what their blocks have in common removed.
        low_s: Fastest trial as measured.
        high_s: Slowest trial as measured.
        n: Trials behind it.
        expected_s: The baseline at this value.
        slowdown: Observed over expected.
    """

    x: int
    latency_s: float
    low_s: float
    high_s: float
    n: int
    expected_s: float | None = None
    slowdown: float | None = None


class Baseline(Result, frozen=True, kw_only=True):
    """The expected curve, fitted jointly with the slow intervals.

    Attributes:
        degree: Degree of the polynomial in decode steps.
        coefficients: Seconds per power of ``steps / max_steps``, lowest first.
        spread: Robust standard deviation of log latency around the curve.
        phase: What the latencies time: ``decode``, ``prefill`` or ``mixed``.
        points: The measured values with their expectation.
    """

    degree: int | None = None
    coefficients: tuple[float, ...] = ()
    spread: float | None = None
    phase: str = "decode"
    points: tuple[Point, ...] = ()


class Counts(Result, frozen=True, kw_only=True, omit_defaults=False):
    """Trials by fate: measured ones, failed ones, and those left out with a reason."""

    trials: int
    failed: int
    dropped: int


class Guarantee(Result, frozen=True, kw_only=True):
    """What a search promises, and on what conditions (method, section 11).

    Attributes:
        low: First value searched.
        high: Last value searched.
        width: A slow interval at least this wide is met by the screen.
        slowdown: Least slowdown that counts as one.
        prevalence: Least share of processes that are slow inside it.
        false_regimes: Largest probability that any regime of a sweep is false.
        edge_error: Largest probability that an edge lies outside its interval.
        tokens: Tokens decoded, warm-ups included.
        looked: Least and largest value measured, where the search left its range to see whether a
            slow interval ends beyond it.
        processes: Process runs that the trials come from; one of them shows no process lottery.
        final_processes: Fresh process runs of the final check; absent where it was not made.
        withdrawn: Why the promise does not hold, if it does not.
    """

    low: int
    high: int
    width: int
    slowdown: float
    prevalence: float
    false_regimes: float
    edge_error: float
    tokens: int
    looked: tuple[int, int] | None = None
    processes: int | None = None
    final_processes: int | None = None
    withdrawn: tuple[Reason, ...] = ()


class Phases(Result, frozen=True, kw_only=True):
    """Where the time of a generation goes.

    Attributes:
        prefill_share: Share of end-to-end time before the first token, over all trials.
        ttft_s: Median TTFT with its range.
        tpot_s: Median TPOT with its range.
        by_value: Share of prefill at each value of the axis, as ``(x, share)``.
    """

    prefill_share: float | None = None
    ttft_s: Range | None = None
    tpot_s: Range | None = None
    by_value: tuple[tuple[int, float], ...] = ()


class Modes(Result, frozen=True, kw_only=True):
    """Two levels of whole processes, which no mean or median describes (method, 8.4).

    Attributes:
        fast_s: Median latency of the fast processes.
        slow_s: Median latency of the slow ones.
        ratio: Slow over fast.
        slow_share: Share of the processes that are slow, with Wilson's interval.
    """

    fast_s: float
    slow_s: float
    ratio: float
    slow_share: Estimate


class MemoryReading(Result, frozen=True, kw_only=True):
    """One kind of memory in one slow interval.

    Attributes:
        kind: Name of the reading, as in ``memory_bytes`` of a trial.
        onset: Onset of that interval.
        recovery: Its recovery.
        behavior: ``higher`` or ``lower`` if every reading inside is off the line through those
            outside by 5 % or more on that side, else ``smooth``.
        ratio: Reading inside over that line.
    """

    kind: str
    behavior: Behavior
    ratio: Range
    onset: tuple[int, int] | None = None
    recovery: tuple[int, int] | None = None


class Conclusion(Result, frozen=True, kw_only=True):
    """The verdict on one sweep: the JSON object of design, section 2.

    Attributes:
        schema_version: Version of this object.
        run: Name of the run.
        axis: The swept axis.
        origin: Who chose what was measured: a search, a fixed plan of ours, or somebody else, whose
            measurements were imported. It decides what can be done about a limit.
        verdict: The primary class.
        grade: Strength of the evidence for it.
        reasons: Reason codes.
        regimes: Intervals of every class, ascending.
        certificate: The curve-free evidence.
        baseline: The expected curve and the points.
        counts: Trials by fate.
        phases: Where the time goes.
        noise: What disturbs the measurement.
        positions: Slow intervals of context length, found in the steps themselves.
        memory: How each kind of memory behaves in each slow interval with two edges.
        modes: Both levels of processes, where they have two and each point is a process.
        guarantee: What the search promises; absent for fixed plans and imports.
        apart: Verdicts on other series of the run, such as the other arm; never pooled.
    """

    schema_version: int = msgspec.field(default=SCHEMA_VERSION)
    run: str
    axis: str
    origin: Origin | None = None
    verdict: Verdict
    grade: Grade
    counts: Counts
    reasons: tuple[Reason, ...] = ()
    regimes: tuple[Regime, ...] = ()
    certificate: Certificate | None = None
    baseline: Baseline | None = None
    phases: Phases | None = None
    noise: Noise | None = None
    positions: tuple[Regime, ...] = ()
    memory: tuple[MemoryReading, ...] = ()
    modes: Modes | None = None
    guarantee: Guarantee | None = None
    apart: tuple[Conclusion, ...] = ()


def rounded(conclusion: Conclusion) -> Conclusion:
    """Return a conclusion with every number to twelve significant digits.

    Numbers that went through a logarithm and back differ from what was measured in the sixteenth
    digit, so that a median could exceed the largest value that it is the median of.
    """
    table = _rounded(msgspec.to_builtins(conclusion))
    return msgspec.convert(table, Conclusion)


def _rounded(value: Any) -> Any:
    """Return a value of builtin types with every float in it rounded."""
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    return value


def to_json(conclusion: Conclusion) -> bytes:
    """Return the object of design section 2 as JSON, indented by two spaces, newline at the end."""
    table: dict[str, Any] = msgspec.to_builtins(conclusion, str_keys=True)
    # Scripts rely on these keys, so that an empty list is said rather than left out.
    ordered = {"schema_version": conclusion.schema_version, "run": conclusion.run}
    ordered |= {key: value for key, value in table.items() if key not in ordered}
    ordered.setdefault("reasons", [])
    ordered.setdefault("regimes", [])
    return msgspec.json.format(msgspec.json.encode(ordered), indent=2) + b"\n"
