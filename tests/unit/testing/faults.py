"""Where broken engines are put down together with the check that has to catch them."""

import pytest
from tests.unit.testing.sound_engine import SoundEngine, SoundSession

FAULTS = []


def fault(check, **engine_parts):
    """Register a session, or an engine, that one check has to catch.

    Parts go into the engine: ``can`` for its capabilities, or methods.
    """

    def register(kind):
        parts = dict(engine_parts)
        if issubclass(kind, SoundSession):
            parts["Session"] = kind
            engine = type(kind.__name__, (SoundEngine,), parts)
        else:
            engine = type(kind.__name__, (kind,), parts)
        FAULTS.append(pytest.param(check, engine, id=f"{check}-{kind.__name__}"))
        return kind

    return register
