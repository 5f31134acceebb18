"""What a run folder may tell of the machine and its user."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.command import Command

from regimescope.engines.simulated import SimulatedSession
from regimescope.errors import EngineError

SCAN = ("scan", "smooth", "--engine", "simulated", "--budgets", "64,128", "--quiet", "--out", "run")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """An engine that names home folder and host when it fails."""
    home = tmp_path / "homes" / "eve"
    monkeypatch.setattr(Path, "home", lambda: home)
    monkeypatch.setattr(platform, "node", lambda: "secret-box")
    whole = SimulatedSession.generate

    def generate(self: Any, prompt_ids: Any, cell: Any, **options: Any) -> Iterator[Any]:
        if cell.budget == 64:
            raise EngineError(f"secret-box cannot read {home}/cache/model.bin")
        return whole(self, prompt_ids, cell, **options)

    monkeypatch.setattr(SimulatedSession, "generate", generate)
    return str(home)


def test_messages_of_an_engine_do_not_tell_home_and_host(
    run: Command, tmp_path: Path, failing: str
) -> None:
    run(*SCAN)
    stored = "".join(path.read_text() for path in (tmp_path / "run").iterdir())
    assert "<host> cannot read ~/cache/model.bin" in (tmp_path / "run/trials.jsonl").read_text()
    assert failing not in stored
    assert "secret-box" not in stored


def test_messages_are_kept_whole_on_request(run: Command, tmp_path: Path, failing: str) -> None:
    run(*SCAN, "--identify")
    lines = (tmp_path / "run/trials.jsonl").read_text().splitlines()
    messages = {json.loads(line).get("message") for line in lines}
    assert f"EngineError: secret-box cannot read {failing}/cache/model.bin" in messages
