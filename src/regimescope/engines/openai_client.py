"""A bounded, silent HTTP client for servers that are not trusted. Layer: ``engines``.

Redirects are never followed, nothing is sent twice, answers and headers have a largest size, and
the API key appears in no message.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from regimescope.errors import CapabilityError, EngineError, SpecError
from regimescope.units import seconds, size

DEFAULT_KEY_VARIABLE = "OPENAI_API_KEY"
# A server on the same continent connects within a second; ten leave room for a busy one.
CONNECT_TIMEOUT_S = 10.0
# A list of a few thousand models is about 1 MB; nothing else that is read as a whole is longer.
MAX_ANSWER_BYTES = 4_000_000
# Servers close what is idle for 5 s (uvicorn) or every stream at its end (llama.cpp), and a request
# that crosses the closing is lost: 1 in 100 that follow at once. On this machine a new connection
# takes a tenth of a millisecond, so each request opens one; elsewhere it costs a round trip or
# three, and a connection is kept, but not over a pause.
IDLE_CONNECTION_S = 2.0
# What a server says of a failure is shown in a table; the rest is its traceback.
MAX_QUOTE_CHARACTERS = 200
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Refused(EngineError):
    """The server answered with a status that is no success."""

    def __init__(self, message: str, status: int) -> None:
        """Keep the status, by which a request may be tried in another form."""
        super().__init__(message)
        self.status = status


class Answer(NamedTuple):
    """A JSON answer and what its headers tell of the server.

    Attributes:
        value: The decoded JSON; ``None`` where the body is none.
        server: The header ``Server``.
    """

    value: Any
    server: str


class Address(NamedTuple):
    """Where a server is.

    Attributes:
        url: Base of the API, without a slash at its end.
        root: The same without the last ``/v1``; servers keep their own routes there.
        host: Host name.
        encrypted: Whether the connection is.
    """

    url: str
    root: str
    host: str
    encrypted: bool


def parse_address(url: str) -> Address:
    """Return the parts of a base URL.

    Raises:
        SpecError: It is none, or carries a secret or a query, which would be stored with the run.
    """
    remedy = "Give the base of the API, for example --engine-option url=http://127.0.0.1:8080/v1"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise SpecError(f"The option url is no URL: {error}.", remedy=remedy) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise SpecError("The option url needs http:// or https:// and a host.", remedy=remedy)
    if parts.username is not None or parts.query or parts.fragment:
        raise SpecError(
            "The option url may hold no user, password, query or fragment; it is stored.",
            remedy=f"{remedy}; an API key goes into the environment.",
        )
    if re.search(r"[\x00-\x20\x7f]", url):
        raise SpecError("The option url holds a space or a control character.", remedy=remedy)
    base = url.rstrip("/")
    return Address(base, base.removesuffix("/v1"), parts.hostname, parts.scheme == "https")


def read_key(address: Address, variable: str | None) -> str | None:
    """Return the API key from the environment, or ``None`` where there is none to be sent.

    A key that stands in the default variable belongs to some service; it is not sent in the clear
    to another machine unless the variable is named.

    Args:
        address: Where it would be sent.
        variable: The variable the user named; ``None`` for the default one.

    Raises:
        SpecError: The named variable is not set, or what it holds cannot be a key.
    """
    name = variable or DEFAULT_KEY_VARIABLE
    key = os.environ.get(name, "").strip()
    if not key:
        if variable is not None:
            raise SpecError(
                f"The environment variable {name} is not set.",
                remedy="Set it to the API key, or leave out the option api_key_env.",
            )
        return None
    if variable is None and not address.encrypted and address.host not in LOOPBACK:
        return None
    if not re.fullmatch(r"[\x21-\x7e]{1,4096}", key):
        raise SpecError(
            f"The environment variable {name} holds something that cannot be an API key.",
            remedy="Set it to the key alone.",
        )
    return key


class Client:
    """One connection at a time to one server, used by one thread."""

    def __init__(self, address: Address, key: str | None, timeout_s: float) -> None:
        """Open nothing yet; the first request connects.

        Args:
            address: Where the server is.
            key: API key, or ``None``.
            timeout_s: Longest silence of the server.
        """
        import httpx

        self.address = address
        self._key, self._timeout_s = key, timeout_s
        self._client = httpx.Client(
            headers=self.headers(key),
            timeout=httpx.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s)),
            follow_redirects=False,
            # Neither a proxy, which would be timed too, nor credentials of another program.
            trust_env=False,
            limits=httpx.Limits(
                max_connections=1,
                max_keepalive_connections=0 if address.host in LOOPBACK else 1,
                keepalive_expiry=IDLE_CONNECTION_S,
            ),
        )

    @staticmethod
    def headers(key: str | None) -> dict[str, str]:
        """Return the headers of every request."""
        # Only the plain form can be bounded: a compressed answer may grow a thousandfold.
        headers = {"accept-encoding": "identity", "user-agent": "regimescope"}
        return headers if key is None else headers | {"authorization": f"Bearer {key}"}

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def get(self, url: str) -> Answer:
        """Return a JSON answer; its value is ``None`` where the body is no JSON.

        Raises:
            EngineError: No answer, or one that is no success.
        """
        return self._ask("GET", url, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a JSON object and return the JSON answer.

        Raises:
            EngineError: No answer, one that is no success, or one that is no JSON.
        """
        answer = self._ask("POST", self.address.url + path, msgspec.json.encode(body))
        if answer.value is None:
            raise EngineError(f"the server answered {path} with something that is no JSON")
        return answer.value

    @contextmanager
    def stream(self, path: str, body: bytes, most_bytes: int) -> Iterator[Iterator[str]]:
        """Send a request and give the data of each event as it arrives.

        Args:
            path: Below the base of the API.
            body: JSON.
            most_bytes: Longest answer.

        Raises:
            EngineError: The request failed, at any time up to the end of the answer.
        """
        from httpx_sse import EventSource, SSEError

        with self._request("POST", self.address.url + path, body) as response:
            try:
                bounded: Any = _Bounded(response, most_bytes)
                yield (event.data for event in EventSource(bounded).iter_sse())
            except SSEError:
                kind = _printable(response.headers.get("content-type", "")) or "no type"
                raise EngineError(f"the server answered with {kind}, not with a stream") from None

    def _ask(self, method: str, url: str, body: bytes | None) -> Answer:
        """Send a request and read the whole answer."""
        with self._request(method, url, body) as response:
            text = "".join(_Bounded(response, MAX_ANSWER_BYTES).iter_text())
            server = _printable(response.headers.get("server", ""))
        return Answer(_json(text), server)

    @contextmanager
    def _request(self, method: str, url: str, body: bytes | None) -> Iterator[Any]:
        """Send a request; whatever HTTP raises until the answer is closed becomes one error."""
        import httpx

        headers = {} if body is None else {"content-type": "application/json"}
        try:
            with self._client.stream(method, url, content=body, headers=headers) as response:
                self._check_status(response)
                yield response
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL) as error:
            raise EngineError(self._failure(error)) from None

    def _check_status(self, response: Any) -> None:
        """Refuse an answer that is no success.

        Raises:
            Refused: Saying what the status means and what the server says of it.
        """
        status = response.status_code
        if 200 <= status < 300:
            return
        if 300 <= status < 400:
            meaning, quote = "redirects elsewhere, which is not followed", ""
        else:
            meaning = {
                401: "wants another API key",
                403: "forbids the request",
                429: "limits requests",
            }.get(status, "failed" if status >= 500 else "refused the request")
            text = "".join(_Bounded(response, MAX_ANSWER_BYTES).iter_text())
            quote = self._quote(text)
        raise Refused(f"the server {meaning} (status {status}){quote}", status)

    def _quote(self, text: str) -> str:
        """Return what a server says of a failure, short, in one line and without the key."""
        value = _json(text)
        found = value.get("error", value) if isinstance(value, dict) else text
        if isinstance(found, dict):
            found = found.get("message", found.get("detail", found))
        said = str(found)
        if "<html" in said[:1000].lower() or "<!doctype" in said[:1000].lower():
            return ": it sent an HTML page"
        return f": {self.cleaned(said)}" if said.strip() else ""

    def cleaned(self, said: str) -> str:
        """Return text of a server as one short line without the key."""
        if self._key is not None:
            said = said.replace(self._key, "[key]")
        return _printable(said)

    def _failure(self, error: Exception) -> str:
        """Return what went wrong on the way."""
        import httpx

        if isinstance(error, httpx.ConnectTimeout):
            return f"no connection to {self.address.url} in time"
        if isinstance(error, httpx.TimeoutException):
            return f"the server was silent for {seconds(self._timeout_s)}"
        if isinstance(error, httpx.ConnectError):
            return f"no connection to {self.address.url}: {self.cleaned(str(error))}"
        if isinstance(error, httpx.RemoteProtocolError):
            return f"the server broke off or speaks no HTTP: {self.cleaned(str(error))}"
        return f"the connection failed: {type(error).__name__} {self.cleaned(str(error))}".rstrip()


class _Bounded:
    """The part of a response that is read, with an end even where the server knows none."""

    def __init__(self, response: Any, most_bytes: int) -> None:
        """Refuse a compressed answer, whose size is not what arrives."""
        self.headers = response.headers
        if self.headers.get("content-encoding", "identity").lower() != "identity":
            raise EngineError("the server compressed its answer, which was not allowed")
        self._response, self._most_bytes = response, most_bytes

    def iter_text(self) -> Iterator[str]:
        """Yield text as it arrives.

        Raises:
            EngineError: There is more of it than allowed.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        read = 0
        for part in self._response.iter_raw():
            read += len(part)
            if read > self._most_bytes:
                raise EngineError(f"the server sent more than {size(self._most_bytes)}")
            if text := decoder.decode(part):
                yield text


def as_user_error(error: EngineError, address: Address) -> CapabilityError:
    """Return a failure before anything was measured as something that the user can mend."""
    return CapabilityError(
        f"The server at {address.url} cannot be measured: {error}.",
        remedy="Start it or mend it, or name another one: --engine-option url=URL",
    )


def _json(text: str) -> Any:
    """Return decoded JSON, or ``None``."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _printable(text: str) -> str:
    """Return text of a stranger as one short line."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[:2000]).split())
    return line[:MAX_QUOTE_CHARACTERS]
