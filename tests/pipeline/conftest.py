"""The command line, run in this process."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from tests.pipeline.command import Command, Done

from regimescope.cli import main


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> Command:
    """Run the command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    def invoke(*arguments: str, expect: int = 0) -> Done:
        monkeypatch.setattr(sys, "argv", ["regimescope", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfdbinary.readouterr()
        done = Done(out.decode(), err.decode())
        assert (ended.value.code or 0) == expect, done.stderr
        return done

    return invoke
