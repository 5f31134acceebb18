"""Facts of the machine that belong to a measurement. Layer: ``host``.

No user name, host name or home folder is told unless asked for: a run folder may be given to a
stranger.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

import regimescope

# Libraries whose version can change a result, beside the ones that the engine names.
CORE_LIBRARIES = ("numpy", "scipy", "msgspec")


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
        "logical_cores": psutil.cpu_count(logical=True),
        "physical_cores": psutil.cpu_count(logical=False),
        "usable_cores": _usable_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "swap_bytes": psutil.swap_memory().total,
    }
    if platform.system() == "Darwin":
        facts["macos"] = platform.mac_ver()[0]
    if hasattr(os, "getloadavg"):
        facts["load_average_1min"] = round(os.getloadavg()[0], 2)
    if identify:
        facts |= {"host_name": platform.node(), "user_name": Path.home().name}
    return {name: value for name, value in facts.items() if value not in (None, "")}


def without_home(value: Any) -> Any:
    """Return a text, or all texts in a list or table, with ``~`` for the home folder.

    Such a path still opens for the same user, and does not tell who that is.
    """
    if isinstance(value, str):
        home = str(Path.home())
        # A home of one character, as some containers have, would match every path.
        return re.sub(re.escape(home) + r"(?=[/\\]|$)", "~", value) if len(home) > 1 else value
    if isinstance(value, dict):
        return {name: without_home(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(without_home(item) for item in value)
    return value


def versions() -> dict[str, str]:
    """Return the versions of this package, of Python and of the core libraries."""
    found = {"regimescope": regimescope.__version__, "python": platform.python_version()}
    return found | {name: metadata.version(name) for name in CORE_LIBRARIES}


def processor_name() -> str | None:
    """Return the marketing name of the processor, or ``None`` where the system does not tell."""
    if platform.system() == "Darwin":
        answer = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
        return answer.stdout.strip() or None
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or None


def _usable_cores() -> int | None:
    """Return how many cores this process may use, which containers often limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return None
