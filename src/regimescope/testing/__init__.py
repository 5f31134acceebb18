"""What others need to test against this package."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regimescope.testing.conformance import (
        CHECK_NAMES,
        CheckResult,
        NotConforming,
        assert_engine,
        check_engine,
    )

__all__ = ["CHECK_NAMES", "CheckResult", "NotConforming", "assert_engine", "check_engine"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for; synthetic curves need no engine."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("regimescope.testing.conformance"), name)
