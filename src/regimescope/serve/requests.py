"""What the server accepts: bounded requests in the OpenAI form. Layer: ``serve``.

Fields that would change the output are refused rather than ignored: decoding is greedy, goes past
any end-of-sequence token, and produces one sequence.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

# A context of 128k tokens fits; a request that asks for more is a mistake or an attack.
MOST_TOKENS = 1_048_576
# Bytes of text of such a context, at 8 a token.
MOST_CHARACTERS = 8 * MOST_TOKENS
MOST_MESSAGES = 4096

Budget = Annotated[int, Field(ge=1, le=MOST_TOKENS, strict=True)]
Text = Annotated[str, Field(min_length=1, max_length=MOST_CHARACTERS)]
TokenId = Annotated[int, Field(ge=0, lt=2**31, strict=True)]


def _only(wanted: bool | int) -> Any:
    """Return what makes a field take one value alone; ``Literal`` takes 0 for false as well."""

    def check(value: Any) -> Any:
        if type(value) is not type(wanted) or value != wanted:
            raise ValueError(f"must be {str(wanted).lower()}")
        return value

    return BeforeValidator(check, json_schema_input_type=Literal[wanted])


class _Strict(BaseModel):
    """Base: an unknown field is an error, since nothing that is asked may be ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)


class StreamOptions(_Strict):
    """What a stream contains beside the tokens."""

    include_usage: bool = False


class _Request(_Strict):
    """What both kinds of request have in common."""

    model: Annotated[str, Field(max_length=1024)] | None = None
    max_tokens: Budget | None = None
    min_tokens: Annotated[int, Field(ge=0, le=MOST_TOKENS, strict=True)] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    # Accepted only at the value that this server has.
    ignore_eos: Annotated[Literal[True], _only(True)] | None = None
    cache_prompt: Annotated[Literal[False], _only(False)] | None = None
    temperature: Annotated[float, Field(ge=0, le=0, strict=True)] | None = None
    n: Annotated[Literal[1], _only(1)] | None = None
    seed: int | None = None
    user: Annotated[str, Field(max_length=1024)] | None = None

    @model_validator(mode="after")
    def _at_least_fits(self) -> _Request:
        """Refuse more tokens at least than at most."""
        if self.min_tokens is not None and self.min_tokens > self.budget():
            raise ValueError("min_tokens is larger than max_tokens")
        return self

    def budget(self) -> int:
        """Return the tokens to produce; 16 where the request does not say, as in OpenAI's form."""
        return self.max_tokens or 16


class CompletionRequest(_Request):
    """A completion: text, or token ids for an exact length."""

    prompt: Text | Annotated[list[TokenId], Field(min_length=1, max_length=MOST_TOKENS)]


class Message(_Strict):
    """One message of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[str, Field(max_length=MOST_CHARACTERS)]
    name: Annotated[str, Field(max_length=256)] | None = None


class ChatRequest(_Request):
    """A chat completion."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_MESSAGES)]
    max_completion_tokens: Budget | None = None

    def budget(self) -> int:
        """Return the tokens to produce, by either name."""
        return self.max_completion_tokens or super().budget()
