"""Text to token ids and back, for models with and without a tokenizer. Layer: ``serve``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from regimescope.errors import UserError


class Codec(Protocol):
    """Text to token ids and back."""

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, at least one."""
        ...

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Return the token ids of a chat, up to where the answer begins."""
        ...

    def stream(self) -> Callable[[int], str]:
        """Return what turns one token id after the other into text."""
        ...


class ByteCodec:
    """One token a byte, for models with random weights, which have no tokenizer.

    What such a model says means nothing, so a token is shown as its number.
    """

    def __init__(self, vocabulary: int) -> None:
        """Set the number of token ids, 2 or more."""
        self._vocabulary = vocabulary

    def encode(self, text: str) -> list[int]:
        """Return a token id for every byte of the text in UTF-8."""
        return [byte % self._vocabulary for byte in text.encode("utf-8", errors="replace")] or [0]

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Return the token ids of all messages, one line each."""
        return self.encode("".join(f"{m['role']}: {m['content']}\n" for m in messages))

    def stream(self) -> Callable[[int], str]:
        """Return what shows a token as its number."""
        return lambda token: f" {token}"


class TokenizerCodec:
    """The tokenizer that lies beside the weights."""

    def __init__(self, tokenizer: Any) -> None:
        """Take a tokenizer of transformers."""
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, with what the model wants at its start."""
        return [int(token) for token in self._tokenizer.encode(text)] or [0]

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Return the token ids of a chat by the model's own template, or line by line."""
        if not self._tokenizer.chat_template:
            return self.encode("".join(f"{m['role']}: {m['content']}\n" for m in messages))
        text = self._tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True
        )
        return [int(t) for t in self._tokenizer.encode(text, add_special_tokens=False)]

    def stream(self) -> Callable[[int], str]:
        """Return what decodes token by token; a character of several tokens waits for its last."""
        from tokenizers.decoders import DecodeStream

        decoder, tokenizer = DecodeStream(skip_special_tokens=False), self._tokenizer._tokenizer
        return lambda token: decoder.step(tokenizer, token) or ""


def codec_of(model: str, vocabulary: int) -> Codec:
    """Return the tokenizer of a model folder, or bytes where there is none.

    Raises:
        UserError: The folder has a tokenizer that cannot be read.
    """
    folder = Path(model).expanduser()
    if not (folder / "tokenizer.json").is_file():
        return ByteCodec(vocabulary)
    from transformers import AutoTokenizer

    try:
        return TokenizerCodec(AutoTokenizer.from_pretrained(str(folder), local_files_only=True))
    except Exception as error:
        raise UserError(
            f"The tokenizer of {model} cannot be loaded: {type(error).__name__}.",
            remedy="Fetch the model again, or remove tokenizer.json to serve it by bytes.",
        ) from error
