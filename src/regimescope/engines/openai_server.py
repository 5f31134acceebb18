"""Which server answers, and what it tells of its model. Layer: ``engines``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from regimescope.engines.openai_client import Answer, Client, as_user_error
from regimescope.errors import CapabilityError, EngineError, SpecError
from regimescope.units import listing

# The model name that stands for whatever a server has loaded.
ANY_MODEL = "server"
# Prompts need ids that the vocabulary has. Few are smaller than Llama 2's 32,000; a server refuses
# an id that it does not have, and the option vocabulary mends it.
USUAL_VOCABULARY = 32_000
# Our own server may serve the smallest built-in architecture.
OWN_VOCABULARY = 512
# An id is a number of 32 bits at most; what lies beyond was not told in earnest.
MOST_TOKENS = 2**31 - 1


class Kind(NamedTuple):
    """What a kind of server is known to accept.

    Attributes:
        name: Name in facts.
        takes_ids: A prompt may be token ids.
        ignores_eos: It generates on past the end of a text when asked to.
        extras: Further keys of a request: no cache of prompts, and counts in every chunk.
        stream_options: Further keys of ``stream_options``.
        vocabulary: Ids that a model has at least, where the server does not tell.
    """

    name: str
    takes_ids: bool = False
    ignores_eos: bool = False
    extras: Mapping[str, Any] = {}
    stream_options: Mapping[str, Any] = {}
    vocabulary: int = USUAL_VOCABULARY


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "llama.cpp",
            takes_ids=True,
            ignores_eos=True,
            extras={"cache_prompt": False, "timings_per_token": True},
        ),
        Kind(
            "vllm",
            takes_ids=True,
            ignores_eos=True,
            extras={"return_token_ids": True},
            stream_options={"continuous_usage_stats": True},
        ),
        Kind("sglang", takes_ids=True, ignores_eos=True),
        Kind(
            "regimescope",
            takes_ids=True,
            ignores_eos=True,
            extras={"cache_prompt": False},
            vocabulary=OWN_VOCABULARY,
        ),
        Kind("mlx_lm"),
        Kind("ollama"),
        Kind("other"),
    )
}
# What servers write into the key ``owned_by`` of their list of models.
_OWNERS = {
    "llamacpp": "llama.cpp",
    "vllm": "vllm",
    "sglang": "sglang",
    "regimescope": "regimescope",
    "library": "ollama",
}


class Server(NamedTuple):
    """A server and its model.

    Attributes:
        kind: What it is known to accept.
        model: Name to send.
        version: What it says of its version; empty if nothing.
        vocabulary: Number of token ids; absent if it does not tell.
        positions: Longest context; absent if it does not tell.
        parameters: Number of parameters; absent if it does not tell.
        weight_bytes: Bytes of the weights; absent if it does not tell.
        slots: Sequences it decodes together at most; absent if it does not tell.
    """

    kind: Kind
    model: str
    version: str = ""
    vocabulary: int | None = None
    positions: int | None = None
    parameters: int | None = None
    weight_bytes: int | None = None
    slots: int | None = None

    @property
    def short_model(self) -> str:
        """The name without folders, which belong to the machine of the server."""
        is_path = self.model.startswith(("/", "~", "."))
        return PurePosixPath(self.model).name if is_path else self.model


def find_server(client: Client, model: str) -> Server:
    """Ask a server what it is and find a model on it.

    Raises:
        CapabilityError: It does not answer, or not as a server of this kind.
        SpecError: It has no such model.
    """
    try:
        answer = client.get(client.address.url + "/models")
    except EngineError as error:
        raise as_user_error(error, client.address) from None
    entries = _entries(answer)
    kind = _kind(answer, entries)
    if kind.name == "other" and not entries:
        raise CapabilityError(
            f"The server at {client.address.url} lists no models.",
            remedy="Is the base of the API right? It mostly ends in /v1.",
        )
    entry = _choose(entries, model, kind)
    return _with_own_routes(client, _server(entry, kind))


def _entries(answer: Answer) -> list[dict[str, Any]]:
    """Return the entries of a list of models that have a name."""
    found = answer.value.get("data") if isinstance(answer.value, dict) else None
    entries = found if isinstance(found, list) else []
    return [e for e in entries if isinstance(e, dict) and isinstance(e.get("id"), str)]


def _kind(answer: Answer, entries: list[dict[str, Any]]) -> Kind:
    """Recognize a server by what it calls itself."""
    if answer.server.startswith("llama.cpp"):
        return KINDS["llama.cpp"]
    for entry in entries:
        if (owner := entry.get("owned_by")) in _OWNERS:
            return KINDS[_OWNERS[owner]]
    # mlx_lm.server names no owner and is built on the HTTP server of Python. It sends an empty
    # list where no model was ever downloaded.
    unnamed = all("owned_by" not in entry for entry in entries)
    if answer.server.startswith("BaseHTTP/") and unnamed:
        return KINDS["mlx_lm"]
    return KINDS["other"]


def _choose(entries: list[dict[str, Any]], model: str, kind: Kind) -> dict[str, Any]:
    """Return the entry of the model that is wanted.

    Raises:
        SpecError: It is not there, or there are several and none was named.
    """
    if model == ANY_MODEL and kind.name == "mlx_lm":
        return {"id": "default_model"}
    if model == ANY_MODEL and len(entries) == 1:
        return entries[0]
    for entry in entries:
        if model in (entry["id"], PurePosixPath(entry["id"]).name):
            return entry
    names = listing([_shown(entry["id"]) for entry in entries])
    raise SpecError(
        "The server has several models; name one."
        if model == ANY_MODEL
        else f"The server has no model {model!r}.",
        remedy=f"It has: {names}."
        + ("" if model == ANY_MODEL else f" {ANY_MODEL!r} stands for the only one."),
    )


def _server(entry: dict[str, Any], kind: Kind) -> Server:
    """Return what an entry tells."""
    meta = entry.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    return Server(
        kind=kind,
        model=entry["id"],
        vocabulary=_number(meta.get("n_vocab")),
        positions=_number(meta.get("n_ctx")) or _number(entry.get("max_model_len")),
        parameters=_number(meta.get("n_params"), most=2**60),
        weight_bytes=_number(meta.get("size"), most=2**60),
    )


def _with_own_routes(client: Client, server: Server) -> Server:
    """Ask for what only this kind of server tells."""
    root = client.address.root
    if server.kind.name == "llama.cpp":
        props = _optional(client, f"{root}/props")
        settings = props.get("default_generation_settings")
        told = settings.get("n_ctx") if isinstance(settings, dict) else None
        return server._replace(
            version=client.cleaned(str(props.get("build_info", ""))),
            positions=_number(told) or server.positions,
            slots=_number(props.get("total_slots")),
        )
    route = {"vllm": "/version", "ollama": "/api/version"}.get(server.kind.name)
    if route is None:
        return server
    return server._replace(
        version=client.cleaned(str(_optional(client, root + route).get("version", "")))
    )


def _optional(client: Client, url: str) -> dict[str, Any]:
    """Return an answer of a route that may be absent."""
    try:
        value = client.get(url).value
    except EngineError:
        return {}
    return value if isinstance(value, dict) else {}


def _number(value: object, most: int = MOST_TOKENS) -> int | None:
    """Return a positive whole number, or ``None`` for anything else that a server sends."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and isinstance(value, int) and 0 < value <= most else None


def _shown(name: str) -> str:
    """Return a name of a server so that it is one short line."""
    return "".join(c if c.isprintable() else "?" for c in name)[:80]
