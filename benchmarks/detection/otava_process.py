"""Apache Otava, in a virtual environment of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from types import TracebackType

VERSION = "0.8.0"
CHILD = Path(__file__).parent / "otava_child.py"
INSTALL_S = 600.0


class Otava:
    """A child process that answers with change points.

    Args:
        folder: where the environment lies, or is to be made.
    """

    def __init__(self, folder: Path) -> None:
        self._python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
        if not self._python.exists():
            venv.create(folder, with_pip=True)
        present = subprocess.run(
            [self._python, "-c", "import otava"], capture_output=True, check=False
        )
        if present.returncode:
            pip = [str(self._python), "-m", "pip", "install", "--quiet"]
            subprocess.run(
                [*pip, f"apache-otava=={VERSION}"],
                check=True,
                capture_output=True,
                timeout=INSTALL_S,
            )
        self.cpu_s = 0.0  # processor time of the child so far
        self._child = subprocess.Popen(
            [self._python, CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def cuts(self, series: list[float], p: float) -> list[int]:
        """First index after each change."""
        if self._child.stdin is None or self._child.stdout is None:
            return []
        self._child.stdin.write(json.dumps({"series": series, "p": p}) + "\n")
        self._child.stdin.flush()
        answer = json.loads(self._child.stdout.readline())
        self.cpu_s = answer["cpu_s"]
        found: list[int] = answer["cuts"]
        return found

    def __enter__(self) -> Otava:
        """Nothing to do; the child runs."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the child."""
        self._child.kill()
        self._child.wait()


def start_otava(folder: Path) -> Otava | str:
    """Start Otava, or say in a few words why it cannot run here."""
    try:
        return Otava(folder)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: Apache Otava {VERSION} could not be installed"
