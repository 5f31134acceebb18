"""What the processor of this machine calls itself. Layer: bottom."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
# A system that takes longer to tell a name is in no state to be measured.
LONGEST_ANSWER_S = 10.0


def processor_name() -> str | None:
    """Return the marketing name of the processor, or ``None`` where the system does not tell."""
    found = _from_sysctl() if platform.system() == "Darwin" else _from_cpuinfo()
    return found or platform.processor() or None


def _from_sysctl() -> str:
    """Return the name that macOS gives; nothing if it gives none."""
    try:
        answer = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"],
            capture_output=True,
            text=True,
            timeout=LONGEST_ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()


def _from_cpuinfo() -> str:
    """Return the name that Linux gives; nothing if it gives none, as on most Arm machines."""
    try:
        text = CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() == "model name":
            return value.strip()
    return ""
