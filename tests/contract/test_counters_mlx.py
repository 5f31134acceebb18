"""Memory of MLX, against the interface it documents: both places of the calls, and none."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from regimescope.engines.mlx_memory import memory_readings
from regimescope.errors import MissingDependencyError

CALLS: dict[str, Any] = {
    "get_active_memory": lambda: 3_000,
    "get_cache_memory": lambda: 500,
    "get_peak_memory": lambda: 4_000,
}


def install(monkeypatch: pytest.MonkeyPatch, **attributes: Any) -> None:
    core = ModuleType("mlx.core")
    for name, value in attributes.items():
        setattr(core, name, value)
    package = ModuleType("mlx")
    package.core = core  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlx", package)
    monkeypatch.setitem(sys.modules, "mlx.core", core)


EXPECTED = {"device_active": 3_000, "device_cached": 500, "device_peak": 4_000}


def test_the_calls_of_current_releases_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, **CALLS)
    assert memory_readings() == EXPECTED


def test_the_calls_of_older_releases_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, metal=SimpleNamespace(**CALLS))
    assert memory_readings() == EXPECTED


def test_a_call_that_a_release_lacks_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, get_active_memory=CALLS["get_active_memory"])
    assert memory_readings() == {"device_active": 3_000}


def test_without_mlx_the_error_names_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlx", None)
    monkeypatch.setitem(sys.modules, "mlx.core", None)
    with pytest.raises(MissingDependencyError, match="mlx"):
        memory_readings()
