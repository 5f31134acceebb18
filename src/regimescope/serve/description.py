"""The server's own OpenAPI description, made true. Layer: ``serve``.

FastAPI describes its own answers to invalid requests, which are not those given here, and knows
nothing of the gate before it.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

_REFUSALS = {
    "400": "The request is malformed, or the model cannot do what it asks.",
    "401": "The bearer token is absent or wrong.",
    "408": "The body did not arrive in time.",
    "413": "The body is too long.",
    "429": "Too many requests are waiting.",
    "500": "The engine failed.",
    "503": "The model is not loaded.",
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "code": {"type": "integer"},
            },
        }
    },
}
_STREAMED = ("/v1/completions", "/v1/chat/completions")
_UNTYPED = ("/", "/health")  # LitServe answers them with a word and no type


def describe(app: FastAPI) -> None:
    """Let an application describe what it really answers."""
    described = app.openapi

    def openapi() -> dict[str, Any]:
        schema = described()
        for path, methods in schema["paths"].items():
            for operation in methods.values():
                _mend(path, operation)
        schema.setdefault("components", {})["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"}
        }
        schema["security"] = [{"bearer": []}]
        return schema

    app.openapi = openapi  # type: ignore[method-assign]


def _mend(path: str, operation: dict[str, Any]) -> None:
    """Replace the answers of one operation."""
    answers = operation["responses"]
    answers.pop("422", None)
    if path == "/metrics":
        answers["200"]["content"] = {"text/plain": {"schema": {"type": "string"}}}
    if path in _UNTYPED:
        answers["200"].pop("content", None)
    if path in _STREAMED:
        answers["200"]["content"] = {
            "application/json": {"schema": {"type": "object", "required": ["choices", "usage"]}},
            "text/event-stream": {},
        }
    content = {"application/json": {"schema": _ERROR}}
    for status, meaning in _REFUSALS.items():
        answers[status] = {"description": meaning, "content": content}
    if path == "/health":
        answers["503"] = {"description": "The model is not loaded yet."}
        operation["security"] = []
