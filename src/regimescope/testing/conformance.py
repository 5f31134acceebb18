"""The conformance suite: whether an engine keeps the contract of ``engines.base``.

Layer: ``testing``. For the engines of this package and for those of others. What an engine claims
in its capabilities decides which checks apply; the others are listed with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from regimescope.engines.base import Engine, EngineRequest
from regimescope.errors import SpecError
from regimescope.testing import conformance_generation as generation
from regimescope.testing import conformance_requests as requests
from regimescope.testing import conformance_session as session
from regimescope.testing.conformance_subject import BrokenRuleError, NotApplicable, Subject
from regimescope.units import listing

# In the order in which an author meets them: what is said, what is decoded, how it behaves.
CHECKS: dict[str, Callable[[Subject], None]] = {
    "members": requests.members,
    "capabilities": requests.capabilities,
    "facts": requests.facts,
    "inspect-loads-nothing": requests.inspect_loads_nothing,
    "unknown-model": requests.unknown_model,
    "unknown-device": requests.unknown_device,
    "unknown-dtype": requests.unknown_dtype,
    "unknown-option": requests.unknown_option,
    "exact-budget": generation.exact_budget,
    "unstamped": generation.unstamped,
    "same-tokens": generation.same_tokens,
    "prompt-matters": generation.prompt_matters,
    "prompt-lengths": generation.prompt_lengths,
    "beyond-positions": generation.beyond_positions,
    "kv-cache": generation.kv_cache,
    "cache-changes-no-token": generation.cache_changes_no_token,
    "cache-kinds": generation.cache_kinds,
    "batch": generation.batch,
    "depth": generation.depth,
    "fill-is-claimed": session.fill_without_claim,
    "capacity": generation.capacity,
    "abandoned-generation": session.abandoned_generation,
    "failing-request": session.failing_request,
    "counters": session.counters,
    "wait": session.waiting,
    "synchronization": session.synchronization,
    "clock": session.clock,
    "last-generation": session.last_generation,
    "close": session.closing,
}
CHECK_NAMES = tuple(CHECKS)


class CheckResult(NamedTuple):
    """What one check came to.

    Attributes:
        name: Name of the check.
        passed: Whether no rule was seen to be broken; also where the check does not apply.
        detail: What is wrong, or why the check does not apply; otherwise empty.
        applicable: Whether the check says anything about this engine.
    """

    name: str
    passed: bool
    detail: str = ""
    applicable: bool = True


class NotConforming(AssertionError):
    """An engine breaks rules of the contract; ``results`` holds every check that failed."""

    def __init__(self, engine: str, results: Iterable[CheckResult]) -> None:
        """Put the failed checks into the message, one a line."""
        self.results = tuple(results)
        lines = [f"  {result.name}: {result.detail}" for result in self.results]
        super().__init__("\n".join([f"Engine {engine!r} breaks the contract:", *lines]))


def check_engine(
    engine: Engine, request: EngineRequest, *, only: Iterable[str] = CHECK_NAMES
) -> list[CheckResult]:
    """Run the checks and return a result for each, in their order.

    Args:
        engine: The engine, as its entry point makes it.
        request: A model that it can load, best a small one; it is loaded a few times.
        only: Names of the checks to run, all by default.

    Raises:
        SpecError: There is no check of such a name.
    """
    wanted = tuple(only)
    unknown = [name for name in wanted if name not in CHECKS]
    if unknown:
        raise SpecError(
            f"There is no check {listing(unknown)}.",
            remedy=f"Known: {listing(CHECK_NAMES, most=len(CHECK_NAMES))}.",
        )
    subject = Subject(engine, request)
    try:
        return [_result(name, subject) for name in CHECK_NAMES if name in wanted]
    finally:
        subject.close()


def assert_engine(
    engine: Engine, request: EngineRequest, *, only: Iterable[str] = CHECK_NAMES
) -> list[CheckResult]:
    """Run the checks like ``check_engine`` and return the results if all passed.

    For a test of one engine, with ``pytest.mark.parametrize("name", CHECK_NAMES)`` and
    ``only=[name]`` for a test of each check.

    Raises:
        NotConforming: Checks failed; the message names all of them.
    """
    results = check_engine(engine, request, only=only)
    failed = [result for result in results if not result.passed]
    if failed:
        raise NotConforming(str(getattr(engine, "name", engine)), failed)
    return results


def _result(name: str, subject: Subject) -> CheckResult:
    """Run one check; a failed one leaves no session to the next."""
    try:
        CHECKS[name](subject)
    except NotApplicable as reason:
        return CheckResult(name, passed=True, detail=str(reason), applicable=False)
    except BrokenRuleError as broken:
        result = CheckResult(name, passed=False, detail=str(broken))
    except Exception as error:  # noqa: BLE001 - code that is not ours; told, not hidden
        result = CheckResult(name, passed=False, detail=f"{type(error).__name__}: {error}")
    else:
        return CheckResult(name, passed=True)
    _close(subject)
    return result


def _close(subject: Subject) -> None:
    """Let go of a session that may be broken."""
    try:
        subject.close()
    except Exception:  # noqa: BLE001 - the check has told already what is broken
        return
