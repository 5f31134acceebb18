"""Runs against each other, and against a policy."""

from __future__ import annotations

from pathlib import Path

from regimescope.analysis.compare import Comparison, Judged
from regimescope.analysis.compare import compare as compare_two
from regimescope.analysis.kv_ablation import KvAblation
from regimescope.analysis.kv_ablation import kv_ablation as ablate
from regimescope.analysis.policy import Policy, PolicyResult, read_policy
from regimescope.analysis.policy import check as check_policy
from regimescope.analysis.regimes import conclude
from regimescope.api.judging import load
from regimescope.errors import UserError
from regimescope.records import Run


def compare(
    before: Run | str | Path, after: Run | str | Path, *more: Run | str | Path
) -> tuple[Comparison, ...]:
    """Compare runs with the first of them.

    Args:
        before: The reference: a run, a run folder, or a file of measurements.
        after: The run that is compared with it.
        more: Further runs, each compared with the reference.

    Raises:
        UserError: A source cannot be read, or must not be compared with the reference.
    """
    reference = _judged(before)
    return tuple(compare_two(reference, _judged(source)) for source in (after, *more))


def kv_ablation(cached: Run | str | Path, uncached: Run | str | Path) -> KvAblation:
    """Say what the KV cache buys at each value of the axis.

    Args:
        cached: A run with the cache, as for ``compare``.
        uncached: A run of the same plan with ``--kv-cache off``.

    Raises:
        UserError: A source cannot be read, or they differ in more than the cache.
    """
    return ablate(_judged(cached), _judged(uncached))


def check(
    run: Run | str | Path,
    *,
    baseline: Run | str | Path | None = None,
    policy: Policy | str | Path | None = None,
) -> PolicyResult:
    """Return whether a run keeps to a policy.

    Args:
        run: A run, a run folder, or a file of measurements.
        baseline: The run that it must not be worse than.
        policy: Limits, or the path of a TOML file with them; by default those of ``Policy``.

    Raises:
        UserError: A source or the policy cannot be read, or the runs must not be compared.
    """
    limits = policy if isinstance(policy, Policy) else _policy(policy)
    judged = _judged(run)
    against = None if baseline is None else compare_two(_judged(baseline), judged)
    return check_policy(judged.conclusion, limits, against)


def _judged(source: Run | str | Path) -> Judged:
    """Return a run with its verdict."""
    run = source if isinstance(source, Run) else load(source)
    return Judged(run, conclude(run))


def _policy(path: str | Path | None) -> Policy:
    """Return the policy of a file, or the default one."""
    if path is None:
        return Policy()
    if not Path(path).exists():
        raise UserError(f"There is no policy {path}.", remedy="Name a TOML file, or leave it out.")
    return read_policy(Path(path))
