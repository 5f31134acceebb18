"""The name of the processor, and systems that do not tell it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from regimescope import chip


def test_linux_tells_it_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Fast One @ 3 GHz\n")
    monkeypatch.setattr(chip, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(chip.platform, "system", lambda: "Linux")
    assert chip.processor_name() == "Fast One @ 3 GHz"


@pytest.mark.parametrize("content", [None, "processor: 0\n"])
def test_linux_without_a_name_falls_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "cpuinfo").write_text(content)
    monkeypatch.setattr(chip, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(chip.platform, "system", lambda: "Linux")
    monkeypatch.setattr(chip.platform, "processor", lambda: "")
    assert chip.processor_name() is None


@pytest.mark.parametrize(
    "error", [FileNotFoundError(2, "gone"), subprocess.TimeoutExpired("sysctl", 10)]
)
def test_macos_that_does_not_answer_falls_back(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(chip.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(chip.platform, "processor", lambda: "arm")
    monkeypatch.setattr(chip.subprocess, "run", fail)
    assert chip.processor_name() == "arm"
