"""The exception tree. Layer: bottom.

::

    RegimescopeError
    |-- UserError                    the user can mend it; exit status 2
    |   |-- InputError               data that cannot be a measurement (carries a reason code)
    |   |-- SpecError                an argument or a spec key is unusable
    |   |-- CapabilityError          the engine, model or device cannot do what is asked
    |   |-- MissingDependencyError   an optional library is not installed
    |   `-- RunFolderError           a run folder exists, is damaged, newer, or not writable
    `-- MeasurementError             something failed while measuring; exit status 1
        |-- EngineError              the engine failed inside one trial
        `-- WorkerError              the measured child died, hung or wrote garbage
            `-- WorkerTimeout        the child gave no answer in time and was ended
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from regimescope.reasons import Reason


class DeathCause(str, Enum):
    """How a measured process was lost. The value is what events store under ``cause``."""

    DEVICE_MEMORY = "device_memory"  # the device had none left
    HOST_MEMORY = "host_memory"  # the process was refused more, and said so
    KERNEL_KILLER = "kernel_killer"  # the kernel ended it for want of memory
    SIGNAL = "signal"  # ended by a signal of another origin
    IMPORT_FAILURE = "import_failure"  # a library could not be loaded
    EXIT = "exit"  # ended by itself with a status
    GARBAGE = "garbage"  # wrote something else than the answer
    OVERSIZED = "oversized_message"  # wrote a line without end
    NO_HEARTBEAT = "no_heartbeat"  # alive, overdue, and deaf to a ping
    HANG = "hang"  # alive and answering, but its trial never ended
    ENGINE_FAILURE = "engine_failure"  # alive; the engine failed outside of a generation


class RegimescopeError(Exception):
    """Base of every error that this package raises on purpose."""


class UserError(RegimescopeError):
    """An error the user can mend. The message names the input, ``remedy`` what to do."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        """Keep the message and the remedy apart, so that each interface can lay them out."""
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        """Return the message followed by the remedy."""
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message


class InputError(UserError):
    """Data that cannot be a measurement, named by a reason code (method, section 15)."""

    def __init__(
        self, reason: Reason, message: str, *, remedy: str = "", trial_ids: Sequence[str] = ()
    ) -> None:
        """Keep the reason code and the ids of the trials concerned."""
        super().__init__(message, remedy=remedy)
        self.reason = reason
        self.trial_ids = tuple(trial_ids)


class SpecError(UserError):
    """An argument or a key of a spec is unknown, contradictory or out of range."""


class CapabilityError(UserError):
    """The engine, the model or the device cannot do what is asked."""


class MissingDependencyError(UserError):
    """An optional library is needed and not installed; the remedy is the install line."""


class RunFolderError(UserError):
    """A run folder exists already, cannot be written or read, or has a newer schema."""


class MeasurementError(RegimescopeError):
    """Something failed while measuring; it is recorded and the scan goes on where it can."""


class EngineError(MeasurementError):
    """The engine failed inside one trial; ``reason`` is the code of a failure that has one."""

    def __init__(self, message: str, *, reason: Reason | None = None) -> None:
        """Keep the reason code, where one applies."""
        super().__init__(message)
        self.reason = reason


class WorkerError(MeasurementError):
    """The measured child process died, hung, or answered with something else than a message."""

    def __init__(self, message: str, *, cause: DeathCause = DeathCause.ENGINE_FAILURE) -> None:
        """Keep how the process was lost."""
        super().__init__(message)
        self.cause = cause


class WorkerTimeout(WorkerError):
    """The measured child process gave no answer within the time allowed and was ended."""
