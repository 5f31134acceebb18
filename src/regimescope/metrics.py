"""Derived quantities of one trial: one home and one formula each. Layer: above records.

Every function returns ``None`` where the quantity has no value, never zero or NaN.
"""

from __future__ import annotations

from regimescope.records import Trial

# Prefill yields the first output token, so that it takes no decode step.
PREFILL_TOKENS = 1


def decode_steps(output_tokens: int) -> int:
    """Return the number of timed decode steps: output tokens minus the one of prefill."""
    return max(output_tokens - PREFILL_TOKENS, 0)


def decoded_tokens(trial: Trial) -> int:
    """Return the tokens that a trial cost: repetitions of a warm-up and bursts before it too."""
    counters = trial.counters or {}
    generations = counters.get("warm_up_generations", 1.0)
    return round((trial.output_tokens or 0) * generations + counters.get("burst_tokens", 0.0))


def decode_s(ttft_s: float, e2e_s: float) -> float:
    """Return the seconds after the first token: end to end minus TTFT."""
    return e2e_s - ttft_s


def tpot_s(ttft_s: float, e2e_s: float, output_tokens: int) -> float | None:
    """Return seconds per output token after the first: ``(e2e - ttft) / (n - 1)``.

    Returns:
        ``None`` for fewer than two output tokens.
    """
    if output_tokens < 2:
        return None
    return (e2e_s - ttft_s) / (output_tokens - 1)


def prefill_share(ttft_s: float, e2e_s: float) -> float | None:
    """Return the share of the end-to-end time spent before the first token, 0 to 1."""
    return ttft_s / e2e_s if e2e_s > 0 else None


def kv_bytes_per_token(
    layers: int, kv_heads: int, head_dim: int, bytes_per_element: int, batch: int = 1
) -> int:
    """Return bytes of K and V that one position holds over all layers.

    Formula: ``2 * layers * kv_heads * head_dim * bytes * batch`` (method, section 1.1).
    """
    return 2 * layers * kv_heads * head_dim * bytes_per_element * batch
