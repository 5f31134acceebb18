"""regimescope: find, confirm and locate slow execution regimes of autoregressive decoding.

The public names are resolved when they are first used, so that importing the package loads
neither an engine nor a numerical library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regimescope.api import (
        analyze,
        check,
        compare,
        export,
        kv_ablation,
        load_run,
        resume,
        scan,
    )
    from regimescope.records import Run, Trial
    from regimescope.results import Conclusion, Grade, Regime, Verdict
    from regimescope.spec import ScanSpec
    from regimescope.store.columns import gap_columns, trial_columns

__version__ = "0.1.0"

_HOMES = {
    "analyze": "regimescope.api",
    "check": "regimescope.api",
    "compare": "regimescope.api",
    "export": "regimescope.api",
    "kv_ablation": "regimescope.api",
    "load_run": "regimescope.api",
    "resume": "regimescope.api",
    "scan": "regimescope.api",
    "Run": "regimescope.records",
    "Trial": "regimescope.records",
    "Conclusion": "regimescope.results",
    "Grade": "regimescope.results",
    "Regime": "regimescope.results",
    "Verdict": "regimescope.results",
    "ScanSpec": "regimescope.spec",
    "gap_columns": "regimescope.store.columns",
    "trial_columns": "regimescope.store.columns",
}

__all__ = [
    "Conclusion",
    "Grade",
    "Regime",
    "Run",
    "ScanSpec",
    "Trial",
    "Verdict",
    "__version__",
    "analyze",
    "check",
    "compare",
    "export",
    "gap_columns",
    "kv_ablation",
    "load_run",
    "resume",
    "scan",
    "trial_columns",
]


def __getattr__(name: str) -> Any:
    """Import the home of a public name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
