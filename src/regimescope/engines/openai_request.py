"""What is sent: prompts of an exact length, and generations of an exact length. Layer: ``engines``.

Where a server takes token ids, the prompt is ids. Elsewhere it is made of words that the server was
seen to count as one token each. Where a server cannot be told to go on past the end of a text, one
token is made so likely that no other is ever chosen, if the server allows that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from regimescope.engines.openai_client import Client, Refused
from regimescope.engines.openai_server import Kind
from regimescope.errors import CapabilityError, EngineError

Api = Literal["completions", "chat"]
Force = Literal["auto", "ignore_eos", "bias", "none"]

PATHS: dict[Api, str] = {"completions": "/completions", "chat": "/chat/completions"}
# Short common English words; most vocabularies hold each of them as one token after a space.
_COMMON = """
time year people way day man thing woman life child world school state family student group
country problem hand part place case week company system program question work government number
night point home water room mother area money story fact month lot right study book eye job word
business issue side kind head house service friend father power hour game line end member law
car city community name president team minute idea body back parent face level office door
health person art war history party result change reason research moment air teacher force
education foot boy age policy process music market sense nation plan college interest death
experience use class control field development role rate heart show leader light voice wife mind
price report decision son view town road arm value building action season tax
"""
WORDS = tuple(_COMMON.split())
# Words are tried this many at a time; a group with one that does not count as one is left out. Each
# try is a request, which a slow machine answers within seconds.
GROUP = 27
# Words tried as the first of a prompt, where no space stands before it.
LEADS = 6
# Fewer words make prompts that share their beginning.
LEAST_WORDS = 32
# A bias of 100 forces a token, in the words of the OpenAI API.
BIAS = 100
# Tries for a prompt whose first output is visible text; mostly the first one is.
BIAS_TRIES = 8


class Request(NamedTuple):
    """How to ask one server.

    Attributes:
        api: Plain completions, or chat.
        model: Name of the model.
        forced: Keys that make the output as long as asked.
        extras: Other keys.
        stream_options: Keys of ``stream_options``.
        words: Words of one token each; empty where prompts are ids.
        leads: Words to begin with.
        beside: Tokens of a prompt that are not its words: marks of the beginning, a chat template.
    """

    api: Api
    model: str
    forced: Mapping[str, Any] = {}
    extras: Mapping[str, Any] = {}
    stream_options: Mapping[str, Any] = {}
    words: Sequence[str] = ()
    leads: Sequence[str] = ()
    beside: int = 0

    @property
    def path(self) -> str:
        """The route below the base of the API."""
        return PATHS[self.api]

    def body(self, prompt: str | Sequence[int], budget: int) -> dict[str, Any]:
        """Return a request for a whole answer."""
        asked: dict[str, Any] = {"model": self.model, "max_tokens": budget, "temperature": 0}
        if self.api == "chat":
            asked["messages"] = [{"role": "user", "content": prompt}]
        else:
            asked["prompt"] = prompt
        forced = dict(self.forced)
        if forced.get("ignore_eos"):
            forced["min_tokens"] = budget
        return {**asked, **self.extras, **forced}

    def streamed(self, prompt_ids: Sequence[int], budget: int) -> bytes:
        """Return a request for a streamed answer as JSON.

        Raises:
            CapabilityError: The prompt is shorter than what the server adds to it.
        """
        options = {"include_usage": True, **self.stream_options}
        asked = self.body(self.prompt(prompt_ids), budget)
        return msgspec.json.encode({**asked, "stream": True, "stream_options": options})

    def prompt(self, prompt_ids: Sequence[int]) -> str | Sequence[int]:
        """Return a prompt of as many tokens as there are ids, different for different ids.

        Raises:
            CapabilityError: The prompt is shorter than what the server adds to it.
        """
        if not self.words:
            return prompt_ids
        kept = prompt_ids[: max(len(prompt_ids) - self.beside, 0)]
        if not kept:
            raise CapabilityError(
                f"The server adds {self.beside} tokens to a prompt of {len(prompt_ids)}.",
                remedy=f"Use --prompt-tokens {self.beside + 1} or more.",
            )
        words = [self.words[number % len(self.words)] for number in kept]
        words[0] = self.leads[kept[0] % len(self.leads)]
        return " ".join(words)


def negotiate(client: Client, kind: Kind, request: Request, *, ids: bool, force: Force) -> Request:
    """Find out how a server is asked for an exact number of tokens, by short requests.

    Args:
        client: The connection.
        kind: What the server is known to accept.
        request: Route and model.
        ids: Whether prompts are token ids.
        force: How the length of the output is forced; ``auto`` for the best way there is.

    Raises:
        EngineError: The server fails.
        CapabilityError: It does not count tokens, or no words have one token each.
    """
    asked = request._replace(extras=kind.extras, stream_options=kind.stream_options)
    if force == "ignore_eos" or (force == "auto" and kind.ignores_eos):
        asked = asked._replace(forced={"ignore_eos": True})
    elif force == "auto" and kind.name == "other":
        asked = _if_accepted(client, asked, asked._replace(forced={"ignore_eos": True}))
    if not ids:
        asked = _with_words(client, asked)
    if force == "bias" or (force == "auto" and not asked.forced):
        biased = _biased(client, asked)
        if biased is None and force == "bias":
            raise CapabilityError(
                "The server does not tell the ids of its tokens, so that none can be forced.",
                remedy="Leave out --engine-option force=bias.",
            )
        asked = biased or asked
    return asked


def _if_accepted(client: Client, plain: Request, wanted: Request) -> Request:
    """Return the wanted form of a request unless the server refuses just that."""
    try:
        client.post(wanted.path, wanted.body(WORDS[0], 1))
    except Refused as error:
        if error.status not in (400, 422):
            raise
        return plain
    return wanted


def _with_words(client: Client, request: Request) -> Request:
    """Return a request with words that this server counts as one token each.

    Raises:
        CapabilityError: It tells no counts, or there are too few such words.
    """
    counts = {word: _counted(client, request, word) for word in WORDS[:LEADS]}
    # What nearly all words have in common is one token for the word and what stands beside it.
    common = sorted(counts.values())[len(counts) // 2]
    leads = tuple(word for word, counted in counts.items() if counted == common)
    words: list[str] = []
    for start in range(0, len(WORDS), GROUP):
        group = WORDS[start : start + GROUP]
        if _counted(client, request, " ".join([leads[0], *group])) == common + len(group):
            words += group
    if len(words) < LEAST_WORDS:
        raise CapabilityError(
            "The server counts common words as several tokens each, so that prompts of an exact "
            "length cannot be made.",
            remedy="Use a server that takes token ids, and --engine-option prompt=ids.",
        )
    return request._replace(words=tuple(words), leads=leads, beside=common - 1)


def _counted(client: Client, request: Request, text: str) -> int:
    """Return how many tokens a server counts in a prompt.

    Raises:
        CapabilityError: It does not tell.
    """
    answer = client.post(request.path, request.body(text, 1))
    usage = answer.get("usage") if isinstance(answer, dict) else None
    counted = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    if not isinstance(counted, int) or not 0 < counted < 100_000:
        raise CapabilityError(
            "The server does not tell how many tokens a prompt has, so that nothing can be "
            "verified.",
            remedy="Use a server that fills in the key usage of its answers.",
        )
    return counted


def _biased(client: Client, request: Request) -> Request | None:
    """Return a request that forces one visible token, where the server tells the id of one."""
    try:
        for token in _visible_ids(client, request):
            biased = request._replace(forced={"logit_bias": {str(token): BIAS}})
            # A token that some other rule suppresses, or that is part of a character, is no use.
            texts = {_first(client.post(request.path, biased.body(w, 3)))[1] for w in WORDS[:2]}
            if len(texts) == 1 and texts != {""}:
                return biased
    except Refused as error:
        if error.status >= 500:
            raise
    return None


def _visible_ids(client: Client, request: Request) -> Iterator[int]:
    """Yield ids of tokens that the model produced and that are text by themselves."""
    wanted = {"logprobs": True}
    for word in WORDS[:BIAS_TRIES]:
        token, text = _first(client.post(request.path, request.body(word, 1) | wanted))
        if token is not None and text.strip() and text.isascii():
            yield token


def _first(answer: Any) -> tuple[int | None, str]:
    """Return the id of the first token of a whole answer, if it is told, and the text."""
    try:
        (choice,) = answer["choices"]
        text = choice["text"] if "text" in choice else choice["message"]["content"]
    except (KeyError, TypeError, ValueError):
        raise EngineError("the server sent something that is no completion") from None
    try:
        token = choice["logprobs"]["content"][0]["id"]
    except (KeyError, TypeError, IndexError):
        token = None
    return (token if isinstance(token, int) else None), (text if isinstance(text, str) else "")
