"""What the server answers, in the OpenAI form. Layer: ``serve``."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Reply(NamedTuple):
    """What all parts of one answer share.

    Attributes:
        id: Made for this request.
        model: Name that the server was started with.
        chat: Whether it answers a chat.
        created: Unix time in seconds, as the form has it.
    """

    id: str
    model: str
    chat: bool
    created: int


def chunk(reply: Reply, token: dict[str, Any]) -> str:
    """Return one event of a stream, with one token."""
    choice: dict[str, Any] = {"index": 0, "finish_reason": None, "token_ids": [token["token"]]}
    if reply.chat:
        choice["delta"] = {"content": token["text"]}
    else:
        choice["text"] = token["text"]
    return _event(_head(reply, stream=True) | {"choices": [choice]})


def ending(reply: Reply, end: dict[str, Any], *, usage: bool) -> str:
    """Return the last events of a stream."""
    empty: dict[str, Any] = {"delta": {}} if reply.chat else {"text": ""}
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length"} | empty
    events = _event(_head(reply, stream=True) | {"choices": [choice], "timings": timings(end)})
    if usage:
        events += _event(_head(reply, stream=True) | {"choices": [], "usage": counts(end)})
    return events + "data: [DONE]\n\n"


def whole(reply: Reply, tokens: list[dict[str, Any]], end: dict[str, Any]) -> dict[str, Any]:
    """Return an answer that is not streamed."""
    text = "".join(token["text"] for token in tokens)
    choice: dict[str, Any] = {
        "index": 0,
        "finish_reason": "length",
        "token_ids": [token["token"] for token in tokens],
    }
    choice |= {"message": {"role": "assistant", "content": text}} if reply.chat else {"text": text}
    return _head(reply, stream=False) | {
        "choices": [choice],
        "usage": counts(end),
        "timings": timings(end),
    }


def counts(end: dict[str, Any]) -> dict[str, Any]:
    """Return the usage; no prompt is ever served from a cache."""
    prompt, output = end["prompt_tokens"], end["completion_tokens"]
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def timings(end: dict[str, Any]) -> dict[str, Any]:
    """Return the times taken beside the model, in milliseconds and under llama.cpp's names."""
    return {
        "prompt_n": end["prompt_tokens"],
        "prompt_ms": end["prompt_ms"],
        "predicted_n": end["completion_tokens"],
        "predicted_ms": end["predicted_ms"],
        "cache_n": 0,
    }


def error_body(message: str, status: int, kind: str | None = None) -> dict[str, Any]:
    """Return an error in the OpenAI form."""
    kinds = {401: "authentication_error", 429: "rate_limit_error"}
    named = kind or kinds.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": named, "param": None, "code": status}}


def error_event(message: str, status: int) -> str:
    """Return an error in the middle of a stream, after which the stream ends."""
    return _event(error_body(message, status))


def _head(reply: Reply, *, stream: bool) -> dict[str, Any]:
    """Return what every part of an answer begins with."""
    kind = (
        ("chat.completion.chunk" if stream else "chat.completion")
        if reply.chat
        else ("text_completion")
    )
    return {"id": reply.id, "object": kind, "created": reply.created, "model": reply.model}


def _event(body: dict[str, Any]) -> str:
    """Return one server-sent event."""
    return f"data: {json.dumps(body, separators=(',', ':'))}\n\n"
