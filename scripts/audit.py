"""Ask a vulnerability service about every pinned dependency, and say plainly if none answers.

    python scripts/audit.py [--strict]

pip-audit reports success when its service knows none of the packages, as behind a mirror that has
only the files. Here that counts as unanswered: it is said, and with ``--strict`` it is a failure.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

CONSTRAINTS = Path(__file__).parent.parent / "constraints.txt"
# The service answers within a second or is not there.
TIMEOUT_S = 10
COMMAND = [
    *(sys.executable, "-m", "pip_audit", "--requirement", str(CONSTRAINTS)),
    # Every version is pinned, so nothing has to be resolved or installed.
    *("--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off"),
    *("--timeout", str(TIMEOUT_S)),
]


def main() -> None:
    """Run pip-audit and judge what it says."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--strict", action="store_true")
    strict = options.parse_args().strict
    done = subprocess.run(COMMAND, capture_output=True, text=True, check=False)
    dependencies = parse(done.stdout)
    answered = [d for d in dependencies if "skip_reason" not in d]
    vulnerable = [d for d in answered if d.get("vulns")]
    for dependency in vulnerable:
        names = ", ".join(vulnerability["id"] for vulnerability in dependency["vulns"])
        print(f"{dependency['name']} {dependency['version']}: {names}")
    if not answered:
        print("NOT AUDITED: no vulnerability service could be reached, or it knows no package.")
    else:
        print(f"{len(answered)} of {len(dependencies)} audited, {len(vulnerable)} vulnerable.")
    unanswered = len(answered) < len(dependencies) or not dependencies
    sys.exit(1 if vulnerable or (strict and unanswered) else 0)


def parse(output: str) -> list[dict[str, Any]]:
    """Return the dependencies in a report of pip-audit; none where there is no report."""
    try:
        dependencies: list[dict[str, Any]] = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return []
    return dependencies


if __name__ == "__main__":
    main()
