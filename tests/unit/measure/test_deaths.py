"""How a process was lost is told from its status, its last words and the kernel's counters."""

from __future__ import annotations

from pathlib import Path

import pytest

from regimescope.errors import DeathCause, EngineError
from regimescope.measure import deaths


@pytest.mark.parametrize(
    ("status", "lines", "killed", "cause", "says"),
    [
        (-9, [], True, DeathCause.KERNEL_KILLER, "want of memory meanwhile"),
        (-9, [], False, DeathCause.SIGNAL, "SIGKILL"),
        (-11, ["Fatal Python error"], True, DeathCause.SIGNAL, "SIGSEGV: Fatal Python error"),
        (
            -6,
            ["terminate called", "what():  std::bad_alloc"],
            False,
            DeathCause.HOST_MEMORY,
            "ABRT",
        ),
        (-6, ["an assertion"], False, DeathCause.SIGNAL, "SIGABRT"),
        (-250, [], False, DeathCause.SIGNAL, "signal 250"),
        (1, ["x", "MemoryError", " "], False, DeathCause.HOST_MEMORY, "status 1: MemoryError"),
        (1, ["torch.OutOfMemoryError: CUDA out of memory."], False, DeathCause.DEVICE_MEMORY, ""),
        (1, ["ModuleNotFoundError: No module named 'x'"], False, DeathCause.IMPORT_FAILURE, "rei"),
        (127, ["x: error while loading shared libraries"], False, DeathCause.IMPORT_FAILURE, ""),
        (3, [], False, DeathCause.EXIT, "status 3"),
        (0, ["out of memory, but all is well"], False, DeathCause.EXIT, "status 0"),
    ],
)
def test_a_process_that_is_gone(
    status: int, lines: list[str], killed: bool, cause: DeathCause, says: str
) -> None:
    death = deaths.of_process(status, lines, killed)
    assert death.cause is cause
    assert says in death.message


class OutOfMemoryError(RuntimeError):
    """Named like the one of torch."""


def test_an_error_of_a_living_process_is_told_from_its_chain() -> None:
    wrapped = EngineError("loading failed")
    wrapped.__cause__ = OutOfMemoryError("no more")
    assert deaths.of_error(wrapped) is DeathCause.DEVICE_MEMORY
    wrapped.__cause__ = MemoryError()
    assert deaths.of_error(wrapped) is DeathCause.HOST_MEMORY
    wrapped.__cause__ = None
    assert deaths.of_error(wrapped) is DeathCause.ENGINE_FAILURE
    metal = RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)")
    assert deaths.of_error(metal) is DeathCause.DEVICE_MEMORY


def test_counters_of_the_kernel_are_read_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, vmstat = tmp_path / "memory.events", tmp_path / "vmstat"
    monkeypatch.setattr(deaths, "_memory_events", lambda: events)
    monkeypatch.setattr(deaths, "_VMSTAT", vmstat)
    assert deaths.kernel_kills() == 0
    events.write_text("low 0\noom 7\noom_kill 2\noom_group_kill 0\n")
    vmstat.write_text("nr_free_pages 100\noom_kill 3\n")
    assert deaths.kernel_kills() == 5
    vmstat.write_text("oom_kill garbage\n")
    assert deaths.kernel_kills() == 2
