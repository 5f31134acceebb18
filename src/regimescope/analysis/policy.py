"""What a CI job allows: a policy, and whether a run keeps to it. Layer: ``analysis``."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from regimescope.analysis.compare import Comparison
from regimescope.errors import SpecError
from regimescope.results import Conclusion, Estimate, Grade, Regime, Result, Verdict
from regimescope.units import listing, ratio

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Outcome = Literal["met", "broken", "inconclusive"]
_Factor = Annotated[float, msgspec.Meta(gt=1.0, le=1000.0)]

# Slow without an end is as bad for a user as slow with one.
LASTING = (Verdict.SPIKE, Verdict.STEP)
# A policy is a page of text; a larger file is another one.
MAX_BYTES = 100_000


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits that a run must keep to; one that is absent is not asked for.

    Attributes:
        slowdown: Largest slowdown of a regime that may stay; above 1.
        new_regimes: Whether regimes that the baseline run does not have may appear.
        growth: Largest factor by which a regime of the baseline run may have grown; above 1.
        tpot_change: Largest factor by which the normal speed may have become slower; above 1.
        grade: Evidence that a regime needs to break the policy; one with less leaves it open.
    """

    slowdown: _Factor | None = 1.25
    new_regimes: bool = False
    growth: _Factor | None = 1.25
    tpot_change: _Factor | None = 1.1
    grade: Grade = Grade.B


class Finding(Result, frozen=True, kw_only=True):
    """One rule of a policy and what a run makes of it.

    Attributes:
        rule: Name of the rule, a field of the policy or ``verdict``.
        outcome: What became of it.
        message: One sentence for people.
    """

    rule: str
    outcome: Outcome
    message: str


class PolicyResult(Result, frozen=True, kw_only=True):
    """Whether a run keeps to a policy.

    Attributes:
        run: Name of the run.
        outcome: ``broken`` if a rule is, else ``inconclusive`` if one is, else ``met``.
        findings: Every rule that was asked for, the worst first.
        baseline: Name of the run that it was compared with.
    """

    run: str
    outcome: Outcome
    findings: tuple[Finding, ...]
    baseline: str | None = None


def read_policy(path: Path) -> Policy:
    """Read a policy: TOML with the fields of ``Policy`` at the top.

    ``slowdown = false`` and its like take a limit away.

    Raises:
        SpecError: The file is missing, damaged, or holds an unknown key or an impossible value.
    """
    remedy = f"Known keys: {listing(Policy.__struct_fields__)}."
    try:
        if path.stat().st_size > MAX_BYTES:
            raise SpecError(f"{path} is too large for a policy.", remedy=remedy)
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}.", remedy=remedy) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SpecError(f"{path} is no TOML: {error}.", remedy=remedy) from None
    for key in table:
        if key not in Policy.__struct_fields__:
            near = difflib.get_close_matches(key, Policy.__struct_fields__, 1)
            meant = f" Did you mean {near[0]}?" if near else ""
            raise SpecError(f"{path}: unknown key {key!r}.{meant}", remedy=remedy)
    limits = ("slowdown", "growth", "tpot_change")
    table = {k: None if k in limits and v is False else v for k, v in table.items()}
    try:
        return msgspec.convert(table, Policy)
    except msgspec.ValidationError as error:
        raise SpecError(f"{path}: {error}.", remedy=remedy) from None


def check(
    conclusion: Conclusion, policy: Policy, comparison: Comparison | None = None
) -> PolicyResult:
    """Return whether a run keeps to a policy.

    Args:
        conclusion: The verdict on the run.
        policy: The limits.
        comparison: The run against its baseline; without it rules about changes are not asked.
    """
    findings = [*_of_verdict(conclusion), *_of_slowdowns(conclusion, policy)]
    if comparison is not None:
        findings += [*_of_changes(comparison, policy), *_of_speed(comparison, policy)]
    order = ("broken", "inconclusive", "met")
    ordered = sorted(findings, key=lambda finding: order.index(finding.outcome))
    return PolicyResult(
        run=conclusion.run,
        outcome=ordered[0].outcome,
        findings=tuple(ordered),
        baseline=None if comparison is None else comparison.before,
    )


def _of_verdict(conclusion: Conclusion) -> Iterator[Finding]:
    """Ask for a verdict at all."""
    none = conclusion.verdict in (Verdict.INCONCLUSIVE, Verdict.DRIFT)
    reasons = listing([reason.value for reason in conclusion.reasons[:3]])
    why = f" ({reasons})" if none and reasons else ""
    yield Finding(
        rule="verdict",
        outcome="inconclusive" if none else "met",
        message=f"the verdict is {conclusion.verdict.value}{why}",
    )


def _of_slowdowns(conclusion: Conclusion, policy: Policy) -> Iterator[Finding]:
    """Ask every regime to stay below the limit."""
    if policy.slowdown is None:
        return
    over = [
        regime
        for regime in conclusion.regimes
        if regime.verdict in LASTING and _exceeds(regime.slowdown, policy.slowdown)
    ]
    for regime in over:
        much = "" if regime.slowdown is None else f", {_words(regime.slowdown)}"
        yield Finding(
            rule="slowdown",
            outcome=_by_grade(regime.grade, policy),
            message=f"{place(regime, conclusion.axis)}{much}, is over the limit of "
            f"{ratio(policy.slowdown)}{_weak(regime.grade, policy)}",
        )
    if not over:
        limit = ratio(policy.slowdown)
        yield Finding(rule="slowdown", outcome="met", message=f"nothing is slower than {limit}")


def _of_changes(comparison: Comparison, policy: Policy) -> Iterator[Finding]:
    """Ask for no regime that is new, and for none that grew too much."""
    if not policy.new_regimes:
        yield from _of_new(comparison, policy)
    if policy.growth is None:
        return
    grown = [c for c in comparison.regimes if "grew" in c.changes and c.growth is not None]
    over = [c for c in grown if c.growth is not None and c.growth.value > policy.growth]
    for change in over:
        if change.after is not None and change.growth is not None:
            yield Finding(
                rule="growth",
                outcome=_by_grade(change.grade, policy),
                message=f"{place(change.after, comparison.axis)} grew {_words(change.growth)}"
                f"{_weak(change.grade, policy)}",
            )
    if not over:
        limit = ratio(policy.growth)
        yield Finding(rule="growth", outcome="met", message=f"no regime grew more than {limit}")


def _of_new(comparison: Comparison, policy: Policy) -> Iterator[Finding]:
    """Ask for no regime that the baseline run was seen not to have."""
    found: list[Finding] = []
    for change in comparison.regimes:
        if change.after is None:
            continue
        where = place(change.after, comparison.axis)
        if "appeared" in change.changes:
            outcome = _by_grade(change.grade, policy)
            message = f"{where} is new: {change.why}{_weak(change.grade, policy)}"
            found.append(Finding(rule="new_regimes", outcome=outcome, message=message))
        elif "cannot tell" in change.changes:
            message = f"whether {where} is new cannot be told: {change.why}"
            found.append(Finding(rule="new_regimes", outcome="inconclusive", message=message))
    yield from found or [Finding(rule="new_regimes", outcome="met", message="no regime is new")]


def _of_speed(comparison: Comparison, policy: Policy) -> Iterator[Finding]:
    """Ask for a normal speed that is not much slower."""
    if policy.tpot_change is None:
        return
    found, limit = comparison.baseline.ratio, policy.tpot_change
    if found is None:
        outcome: Outcome = "inconclusive"
        message = f"the normal speed cannot be compared: {comparison.baseline.why}"
    else:
        over = found.value > limit
        surely = found.low is not None and found.low > 1
        outcome = "met" if not over else "broken" if surely else "inconclusive"
        verb = "is over" if over else "keeps to"
        message = f"normal latency changed {_words(found)}, which {verb} the limit {ratio(limit)}"
        if found.low is None:
            message += f"; {comparison.baseline.why}"
    yield Finding(rule="tpot_change", outcome=outcome, message=message)


def place(regime: Regime, axis: str) -> str:
    """Return where a slow interval is, as `budgets 512 to 639`."""
    low = "the start" if regime.onset is None else str(regime.onset[1])
    high = "the end" if regime.recovery is None else str(regime.recovery[0])
    return f"{regime.verdict.value} at {axis} {low} to {high}"


def _exceeds(slowdown: Estimate | None, limit: float) -> bool:
    """Return whether a slowdown is over a limit; an unknown one is not below it."""
    return slowdown is None or slowdown.value > limit


def _by_grade(grade: Grade, policy: Policy) -> Outcome:
    """Return what evidence of a grade does to a rule; A is the strongest."""
    return "broken" if grade.value <= policy.grade.value else "inconclusive"


def _weak(grade: Grade, policy: Policy) -> str:
    """Return what is missing where evidence does not suffice."""
    if grade.value <= policy.grade.value:
        return ""
    return f", but only of grade {grade.value}; {policy.grade.value} is needed"


def _words(estimate: Estimate) -> str:
    """Return a ratio with its interval."""
    if estimate.low is None or estimate.high is None:
        return ratio(estimate.value)
    return f"{ratio(estimate.value)} ({ratio(estimate.low)} to {ratio(estimate.high)})"
