"""What the server counts, for Prometheus. Layer: ``serve``."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Decades in thirds: one step of a small model takes a millisecond, a slow regime seconds.
SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
ROUTES = frozenset({"/v1/completions", "/v1/chat/completions", "/v1/models", "/health", "/metrics"})

# A registry of our own: the default one would add facts about this process and its host.
REGISTRY = CollectorRegistry()
REQUESTS = Counter(
    "regimescope_requests", "Requests answered.", ("route", "status"), registry=REGISTRY
)
PROMPT_TOKENS = Counter("regimescope_prompt_tokens", "Prompt tokens read.", registry=REGISTRY)
OUTPUT_TOKENS = Counter("regimescope_output_tokens", "Tokens produced.", registry=REGISTRY)
WAITING = Gauge("regimescope_requests_in_hand", "Requests waiting or decoded.", registry=REGISTRY)
TTFT = Histogram(
    "regimescope_ttft_seconds",
    "Prefill beside the model, without waiting and transport.",
    buckets=SECONDS,
    registry=REGISTRY,
)
TPOT = Histogram(
    "regimescope_tpot_seconds",
    "Decode seconds per token beside the model.",
    buckets=SECONDS,
    registry=REGISTRY,
)


def route_of(path: str) -> str:
    """Return the label of a path; what clients invent is one label, so that labels stay few."""
    return path if path in ROUTES else "other"


def count_end(end: dict[str, float]) -> None:
    """Count one finished request from the worker's last message."""
    PROMPT_TOKENS.inc(end["prompt_tokens"])
    OUTPUT_TOKENS.inc(end["completion_tokens"])
    TTFT.observe(end["prompt_ms"] / 1e3)
    if end["completion_tokens"] > 1:
        TPOT.observe(end["predicted_ms"] / 1e3 / (end["completion_tokens"] - 1))


def exposition() -> bytes:
    """Return everything counted, in Prometheus' text form."""
    return bytes(generate_latest(REGISTRY))
