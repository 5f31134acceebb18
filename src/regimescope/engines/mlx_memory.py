"""Memory of MLX: what is live, what is cached, what was most. Layer: ``engines``.

The calls stand at the top level since mlx#1982 of March 2025, in ``mlx.core.metal`` before.
"""

from __future__ import annotations

from typing import Any

from regimescope.errors import MissingDependencyError

# Our names and those of MLX (mechanisms, section 4).
_CALLS = {
    "device_active": "get_active_memory",
    "device_cached": "get_cache_memory",
    "device_peak": "get_peak_memory",
}


def memory_readings() -> dict[str, int]:
    """Return memory in bytes by kind; a call that this release lacks is absent.

    ``device_active``: live arrays. ``device_cached``: freed buffers that are kept for reuse.
    ``device_peak``: most that was live since the process began.

    Raises:
        MissingDependencyError: MLX is not installed.
    """
    try:
        import mlx.core as mx
    except ImportError as error:
        raise MissingDependencyError(
            "The counters of MLX need mlx, which is not installed.",
            remedy="Install it: pip install 'regimescope[mlx]'",
        ) from error
    found = {name: _call(mx, call) for name, call in _CALLS.items()}
    return {name: int(call()) for name, call in found.items() if call is not None}


def _call(mx: Any, name: str) -> Any:
    """Return a call of MLX from where this release has it; ``None`` if nowhere."""
    older = getattr(mx, "metal", None)
    return getattr(mx, name, None) or getattr(older, name, None)
