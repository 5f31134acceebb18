"""Run the conformance suite on an engine that is installed here, and print every check.

    python scripts/check_engine.py ENGINE MODEL [--device auto] [--dtype float32] [--option A=B]

Ends with status 1 if a check fails.
"""

from __future__ import annotations

import argparse
import sys

from regimescope.engines.base import EngineRequest
from regimescope.engines.registry import get_engine
from regimescope.testing import CheckResult, check_engine


def main() -> int:
    """Run the checks and return the exit status."""
    asked = _arguments().parse_args()
    request = EngineRequest(
        model=asked.model,
        device=asked.device,
        dtype=asked.dtype,
        seed=asked.seed,
        options=dict(option.split("=", 1) for option in asked.option),
    )
    results = check_engine(get_engine(asked.engine), request)
    for result in results:
        print(f"{_state(result):14}  {result.name:24}  {result.detail}".rstrip())
    failed = sum(not result.passed for result in results)
    applied = sum(result.applicable for result in results)
    print(f"{applied} of {len(results)} checks apply, {failed} failed")
    return 1 if failed else 0


def _state(result: CheckResult) -> str:
    """Return what a check came to, as a word."""
    if not result.applicable:
        return "does not apply"
    return "passed" if result.passed else "FAILED"


def _arguments() -> argparse.ArgumentParser:
    """Return the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine")
    parser.add_argument("model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    return parser


if __name__ == "__main__":
    sys.exit(main())
