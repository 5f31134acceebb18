"""Facts of the machine that belong to a measurement. Layer: ``host``.

No user name, host name or home folder is told unless asked for: a run folder may be given to a
stranger.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

import regimescope
from regimescope.chip import processor_name as processor_name

# Libraries whose version can change a result, beside the ones that the engine names.
CORE_LIBRARIES = ("numpy", "scipy", "msgspec")
# A shorter host name is a word of some sentence.
LEAST_HOST_NAME = 4
# After the home folder: not the rest of a longer name; a period may end a sentence.
_PATH_ENDS = r"(?![\w-]|\.\w)"


def host_facts(*, identify: bool = False) -> dict[str, Any]:
    """Return operating system, processor and memory; a fact that cannot be read is absent.

    Args:
        identify: Also tell host and user.
    """
    facts: dict[str, Any] = {
        "system": platform.system(),
        "release": platform.release(),
        "architecture": platform.machine(),
        "processor": processor_name(),
    }
    readings: dict[str, Callable[[], Any]] = {
        "logical_cores": lambda: psutil.cpu_count(logical=True),
        "physical_cores": lambda: psutil.cpu_count(logical=False),
        "usable_cores": _usable_cores,
        "memory_bytes": lambda: psutil.virtual_memory().total,
        "swap_bytes": lambda: psutil.swap_memory().total,
        "load_average_1min": _load_average,
    }
    facts |= {name: _read(reading) for name, reading in readings.items()}
    if platform.system() == "Darwin":
        facts["macos"] = platform.mac_ver()[0]
    if identify:
        facts |= {"host_name": platform.node(), "user_name": Path.home().name}
    return {name: value for name, value in facts.items() if value not in (None, "")}


def _read(reading: Callable[[], Any]) -> Any:
    """Return a fact; ``None`` where the system refuses it, as a sandbox or a bare container may."""
    try:
        return reading()
    except (OSError, RuntimeError, ValueError, psutil.Error):
        return None


def _load_average() -> float | None:
    """Return the load of the last minute, where the system counts it."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def without_home(value: Any) -> Any:
    """Return a text, or all texts in a list or table, with ``~`` for the home folder.

    Such a path still opens for the same user, and does not tell who that is.
    """
    if isinstance(value, str):
        for home in {str(Path.home()), os.path.realpath(Path.home())}:
            # A home of one character, as some containers have, would match every path.
            if len(home) > 1:
                value = re.sub(re.escape(home) + _PATH_ENDS, "~", value)
        return value
    if isinstance(value, dict):
        return {name: without_home(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(without_home(item) for item in value)
    return value


def without_identity(value: Any) -> Any:
    """Return a text, or all texts in a list or table, without home folder and host name.

    For what engines and the system say when they fail.
    """
    if isinstance(value, str):
        host = platform.node()
        if len(host) >= LEAST_HOST_NAME and host != "localhost":
            value = re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "<host>", value)
        return without_home(value)
    if isinstance(value, dict):
        return {name: without_identity(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(without_identity(item) for item in value)
    return value


def versions() -> dict[str, str]:
    """Return the versions of this package, of Python and of the core libraries."""
    found = {"regimescope": regimescope.__version__, "python": platform.python_version()}
    return found | {name: metadata.version(name) for name in CORE_LIBRARIES}


def _usable_cores() -> int | None:
    """Return how many cores this process may use, which containers often limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return None
