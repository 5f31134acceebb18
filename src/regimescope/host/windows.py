"""Counters of Windows, through psutil. Layer: ``host``."""

from __future__ import annotations

import psutil

from regimescope.host import catalogue
from regimescope.host.counters import Reader, Values

_PROCESS_NAMES = {
    "rss": "process_resident_bytes",
    "private": "process_commit_bytes",
    "num_page_faults": "process_faults_count",
}


def readers() -> tuple[Reader, ...]:
    """Return a reader for every source of Windows."""
    return (
        Reader(catalogue.WINDOWS_PROCESS, _process),
        Reader(catalogue.WINDOWS_SWAP, lambda: {"swap_used_bytes": psutil.swap_memory().used}),
    )


def _process() -> Values:
    """Read what Windows tells of this process; other systems tell less."""
    found = psutil.Process().memory_info()._asdict()
    return {name: float(found[key]) for key, name in _PROCESS_NAMES.items() if key in found}
