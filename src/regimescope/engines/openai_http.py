"""Any OpenAI-compatible server over HTTP. Layer: ``engines``.

Split by concern: ``openai_client`` (HTTP, bounds, the key), ``openai_server`` (which server, which
model), ``openai_request`` (prompts and lengths), ``openai_stream`` (chunks and tokens),
``openai_arrivals`` (whether they came one by one), ``openai_load`` (other requests meanwhile),
``openai_overhead`` (what this client adds); here the two protocols put together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from regimescope.engines.base import (
    Capabilities,
    Clock,
    EngineRequest,
    Generation,
    MonotonicClock,
    Step,
)
from regimescope.engines.openai_arrivals import Arrivals
from regimescope.engines.openai_client import Client, as_user_error, parse_address, read_key
from regimescope.engines.openai_load import Load, LoadFacts
from regimescope.engines.openai_overhead import measure_overhead
from regimescope.engines.openai_request import WORDS, Api, Force, Request, negotiate
from regimescope.engines.openai_server import Server, find_server
from regimescope.engines.openai_stream import BYTES_BESIDE, BYTES_PER_TOKEN, TokenStream
from regimescope.errors import CapabilityError, EngineError, SpecError
from regimescope.reasons import Reason
from regimescope.records import Cell, ModelFacts
from regimescope.units import listing

DEFAULT_URL = "http://127.0.0.1:8080/v1"
# What a spec holds for device and element type: both are the server's own affair.
OF_SERVER = "server"
# A spec asks for this where nobody chose an element type.
DEFAULT_DTYPE = "float32"
# A generation to see that the server does what it is asked, before anything is timed.
CHECK_TOKENS = 4
# Times are taken where the answer arrives, and the server runs on from one process run to the next.
LIMITS = (Reason.CLIENT_SIDE_TIMES, Reason.MISSING_PROCESS_RUN)

_Tokens = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class OpenAIOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the HTTP engine.

    Attributes:
        url: Base of the API.
        api: ``completions``, or ``chat`` where a server has nothing else.
        prompt: Whether prompts are token ids or text; ``auto`` for ids where the server is known to
            take them.
        force: How the length of the output is forced: ``ignore_eos``, one token made certain
            (``bias``), or not at all; ``auto`` for the best way there is.
        api_key_env: Environment variable that holds the API key; OPENAI_API_KEY if left out.
        timeout_s: Longest silence of the server.
        vocabulary: Number of token ids, where the server does not tell.
        positions: Longest context, where the server does not tell.
        concurrency: Requests at the same time, the measured one included.
    """

    url: str = DEFAULT_URL
    api: Api = "completions"
    prompt: Literal["auto", "ids", "text"] = "auto"
    force: Force = "auto"
    api_key_env: Annotated[str, msgspec.Meta(pattern="^[A-Za-z_][A-Za-z0-9_]{0,99}$")] | None = None
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 600.0
    vocabulary: _Tokens | None = None
    positions: _Tokens | None = None
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=256)] = 1


class _Opened(NamedTuple):
    """A server that was found, and how to speak to it."""

    options: OpenAIOptions
    client: Client
    server: Server
    facts: ModelFacts


class Way(NamedTuple):
    """A connection, and how to ask over it."""

    client: Client
    request: Request


class OpenAISession:
    """A connection over which generations are measured."""

    def __init__(self, way: Way, facts: ModelFacts, load: Load, clock: Clock) -> None:
        """Take over a connection to a server that was found."""
        self.clock = clock
        self._client: Client | None = way.client
        self._request, self._facts, self._load = way.request, facts, load
        self._tokens: TokenStream | None = None
        self._arrivals = Arrivals(clock)

    def facts(self) -> ModelFacts:
        """Return what the server tells of its model."""
        return self._facts

    def generate(
        self, prompt_ids: Sequence[int], cell: Cell, *, stamped: bool = True
    ) -> Iterator[Step]:
        """Yield a step for every chunk with tokens, as it arrives.

        The request is sent once; nothing is tried again. A generation that is abandoned is broken
        off, by which servers notice that nobody waits for it.

        Raises:
            CapabilityError: Prompt and budget exceed the positions, or the cell asks for what a
                server cannot be asked.
            EngineError: The server fails, breaks off, or its tokens do not add up.
        """
        del stamped  # an answer always comes in chunks
        if self._client is None:
            raise EngineError("the session is closed")
        budget = cell.budget or 0
        _check(self._facts, prompt_ids, cell)
        tokens = TokenStream(len(prompt_ids), budget, self._client.cleaned)
        self._tokens, self._arrivals = tokens, Arrivals(self.clock)
        body = self._request.streamed(prompt_ids, budget)
        most_bytes = BYTES_BESIDE + BYTES_PER_TOKEN * budget
        with (
            self._load.during(self._request, prompt_ids, budget),
            self._client.stream(self._request.path, body, most_bytes) as events,
        ):
            yield from self._arrivals.watch(tokens.steps(events))

    def last_generation(self) -> Generation:
        """Return what the server told of the latest generation."""
        if self._tokens is None:
            return Generation(cached_tokens=None)
        known, arrivals = self._tokens.known(), self._arrivals
        bunched = {"bunched_tokens_count": float(arrivals.bunched)} if arrivals.bunched else {}
        return known._replace(
            readings={**known.readings, **self._load.readings(), **bunched},
            reasons=(*known.reasons, *arrivals.reasons(), *LIMITS),
        )

    def counters(self) -> dict[str, int]:
        """Return no reading: the memory of a server is not told over this interface."""
        return {}

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        if self._client is not None:
            self._client.close()
        self._load.close()
        self._client = None


class OpenAIEngine:
    """Measures servers that speak the OpenAI API."""

    name = "openai"
    Options = OpenAIOptions

    def __init__(self, clock: Clock | None = None) -> None:
        """Take the clock on which sessions take their time; by default the real one."""
        self._clock = MonotonicClock() if clock is None else clock

    def capabilities(self) -> Capabilities:
        """Return what can be asked of a server."""
        return Capabilities(
            devices=(OF_SERVER,), dtypes=(OF_SERVER, DEFAULT_DTYPE), forced_length=False
        )

    def inspect(self, request: EngineRequest) -> ModelFacts:
        """Ask the server for its model; nothing is generated.

        Raises:
            UserError: The server does not answer, the model or an option is unknown.
        """
        found = _find(request)
        found.client.close()
        return found.facts

    def open(self, request: EngineRequest) -> OpenAISession:
        """Connect, and find out by short requests how lengths are made exact.

        Raises:
            UserError: As ``inspect``, or the server cannot be asked for exact lengths.
            EngineError: The server failed.
        """
        found = _find(request)
        try:
            return _connected(found, request, self._clock)
        except EngineError as error:
            found.client.close()
            raise as_user_error(error, found.client.address) from None
        except BaseException:
            found.client.close()
            raise


def _connected(found: _Opened, request: EngineRequest, clock: Clock) -> OpenAISession:
    """Return a session whose way of asking was tried once."""
    options, client, server = found.options, found.client, found.server
    asked = negotiate(
        client,
        server.kind,
        Request(options.api, server.model),
        ids=_by_ids(options, server),
        force=options.force,
    )
    load = Load(LoadFacts(options.url, options.api_key_env, options.timeout_s, options.concurrency))
    settings = found.facts.settings | {
        "forced": next(iter(asked.forced), "none"),
        "words": len(asked.words),
        "prompt_tokens_beside": asked.beside,
    }
    overhead_s = measure_overhead()
    if overhead_s is not None:
        settings["client_overhead_s"] = overhead_s
    facts = replace(found.facts, settings=settings)
    session = OpenAISession(Way(client, asked), facts, load, clock)
    _try(session, asked, request)
    return session


def _try(session: OpenAISession, asked: Request, request: EngineRequest) -> None:
    """Generate a few tokens, so that a server of another mind is found out before a trial.

    Raises:
        EngineError: The server fails or its tokens do not add up; to stop early is no failure yet.
    """
    length = asked.beside + CHECK_TOKENS
    # Differs from process to process, so that no prompt is cached from the one before.
    first = request.seed + 7 * request.process_run
    ids = [(first + k) % session.facts().vocabulary for k in range(length)]
    cell = Cell(budget=CHECK_TOKENS, prompt_tokens=length)
    try:
        for _ in session.generate(ids, cell):
            pass
    except EngineError as error:
        # How tokens arrive differs from time to time; each trial is judged by itself.
        if error.reason not in (Reason.TOKEN_COUNT_MISMATCH, Reason.CHUNKED_STREAM):
            raise


def _find(request: EngineRequest) -> _Opened:
    """Check a request and find its server and model.

    Raises:
        UserError: One of them is unknown or absent.
    """
    options = _options(request)
    address = parse_address(options.url)
    key = read_key(address, options.api_key_env)
    client = Client(address, key, options.timeout_s)
    try:
        server = find_server(client, request.model)
    except BaseException:
        client.close()
        raise
    return _Opened(options, client, server, _facts(options, server))


def _options(request: EngineRequest) -> OpenAIOptions:
    """Decode the raw table of options, and refuse what is the server's own affair.

    Raises:
        SpecError: An option is unknown or out of range, or a device or element type is asked.
    """
    for name, asked, known in (
        ("device", request.device, ("auto", OF_SERVER)),
        ("dtype", request.dtype, (OF_SERVER, DEFAULT_DTYPE)),
    ):
        if asked not in known:
            raise SpecError(
                f"A server chooses its {name} by itself; {asked!r} cannot be asked of it.",
                remedy=f"Leave out --{name}, and start the server so.",
            )
    try:
        options = msgspec.convert(request.options, OpenAIOptions, strict=False)
    except msgspec.ValidationError as error:
        raise SpecError(
            f"Options of the engine openai: {error}.",
            remedy=f"Known options: {listing(OpenAIOptions.__struct_fields__, most=20)}.",
        ) from error
    if options.api == "chat" and options.prompt == "ids":
        raise SpecError(
            "A chat has no prompt of token ids.",
            remedy="Leave out one of the options api=chat and prompt=ids.",
        )
    return options


def _by_ids(options: OpenAIOptions, server: Server) -> bool:
    """Return whether prompts are sent as token ids."""
    if options.prompt == "auto":
        return options.api == "completions" and server.kind.takes_ids
    return options.prompt == "ids"


def _facts(options: OpenAIOptions, server: Server) -> ModelFacts:
    """Return what is known before anything is generated."""
    by_ids = _by_ids(options, server)
    versions = {"httpx": metadata.version("httpx")}
    if server.version:
        versions[re.sub(r"\W+", "_", server.kind.name)] = server.version
    told = {"parameters": server.parameters, "slots": server.slots}
    vocabulary = options.vocabulary or server.vocabulary or server.kind.vocabulary
    context = options.positions or server.positions
    return ModelFacts(
        device=OF_SERVER,
        dtype=OF_SERVER,
        weights="server",
        vocabulary=vocabulary if by_ids else len(WORDS),
        # Servers count the last token too, which is produced but never read again.
        positions=None if context is None else max(context - 1, 1),
        weight_bytes=server.weight_bytes,
        description=f"{server.short_model} on a server ({server.kind.name})",
        versions=versions,
        settings={
            "server": server.kind.name,
            "api": options.api,
            "prompt": "ids" if by_ids else "text",
            "concurrency": options.concurrency,
            **{name: value for name, value in told.items() if value is not None},
        },
    )


def _check(facts: ModelFacts, prompt_ids: Sequence[int], cell: Cell) -> None:
    """Refuse what a server cannot be asked, before it would shorten it without a word."""
    budget, prompt_tokens = cell.budget or 0, len(prompt_ids)
    if budget < 1 or prompt_tokens < 1:
        raise EngineError("a generation needs a prompt and a budget of 1 token or more")
    if cell.depth or cell.capacity or (cell.batch or 1) > 1 or cell.kv_cache == "off":
        raise CapabilityError(
            "A server takes one prompt at a time, and its KV cache is its own affair.",
            remedy="Leave depth, capacity, batch and kv_cache as they are.",
        )
    longest = prompt_tokens + budget - 1
    if facts.positions is not None and longest > facts.positions:
        raise CapabilityError(
            f"Prompt {prompt_tokens} and budget {budget} need {longest:,} positions, "
            f"the server has {facts.positions:,}.",
            remedy="Use a smaller budget or a shorter prompt, or start the server with more.",
        )
    if not 0 <= min(prompt_ids) <= max(prompt_ids) < facts.vocabulary:
        raise EngineError(f"token ids lie outside 0 to {facts.vocabulary - 1}")
