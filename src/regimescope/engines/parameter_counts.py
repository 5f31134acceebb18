"""How many parameters a configuration makes, family by family. Layer: ``engines``.

Weights that input and output share count once, as they are stored once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Config = dict[str, Any]


def parameters(family: str, config: Config) -> int:
    """Return the number of parameters of a model of a built-in family.

    Args:
        family: A key of ``FAMILIES``.
        config: Keywords of its configuration class.
    """
    return FAMILIES[family](config)


def _gpt2(config: Config) -> int:
    """Count a GPT-2: token and position tables, layers with biases, the last norm."""
    width: int = config["n_embd"]
    tables: int = (config["vocab_size"] + config["n_positions"]) * width
    layers: int = config["n_layer"]
    return tables + layers * _wide_layer(width, 4 * width) + 2 * width


def _bloom(config: Config) -> int:
    """Count a BLOOM: token table and its norm, layers with biases, the last norm."""
    width: int = config["hidden_size"]
    tables: int = config["vocab_size"] * width + 2 * width
    layers: int = config["n_layer"]
    return tables + layers * _wide_layer(width, 4 * width) + 2 * width


def _opt(config: Config) -> int:
    """Count an OPT: its position table has two rows more than positions."""
    width, embedded = config["hidden_size"], config["word_embed_proj_dim"]
    tables: int = config["vocab_size"] * embedded + (config["max_position_embeddings"] + 2) * width
    if embedded != width:
        tables += 2 * embedded * width
    last_norm = 2 * width if config["do_layer_norm_before"] else 0
    layers: int = config["num_hidden_layers"]
    return tables + layers * _wide_layer(width, config["ffn_dim"]) + last_norm


def _wide_layer(width: int, inner: int) -> int:
    """Count a layer with full heads, two-matrix MLP, biases everywhere and two affine norms."""
    attention = 4 * (width * width + width)
    mlp = 2 * width * inner + inner + width
    return attention + mlp + 4 * width


def _llama(config: Config) -> int:
    """Count a LLaMA: grouped heads, three-matrix MLP, no biases, norms of one vector."""
    width: int = config["hidden_size"]
    layers: int = config["num_hidden_layers"]
    queries, keys = _head_widths(config)
    attention: int = 2 * width * queries + 2 * width * keys
    mlp: int = 3 * width * config["intermediate_size"]
    ends = 1 if config["tie_word_embeddings"] else 2
    count: int = ends * config["vocab_size"] * width + width
    return count + layers * (attention + mlp + 2 * width)


def _qwen2(config: Config) -> int:
    """Count a Qwen2: a LLaMA with biases on queries, keys and values."""
    queries, keys = _head_widths(config)
    layers: int = config["num_hidden_layers"]
    return _llama(config) + layers * (queries + 2 * keys)


def _qwen3(config: Config) -> int:
    """Count a Qwen3: a LLaMA with a norm of one vector on the queries and on the keys of a head."""
    norms: int = 2 * config["num_hidden_layers"] * config["head_dim"]
    return _llama(config) + norms


def _gemma3(config: Config) -> int:
    """Count a Gemma 3: as Qwen3, and two norms more in each layer, behind attention and MLP."""
    norms: int = 2 * config["num_hidden_layers"] * config["hidden_size"]
    return _qwen3(config) + norms


def _head_widths(config: Config) -> tuple[int, int]:
    """Return the width of all queries together, and that of all keys, or values, together."""
    heads = config["num_attention_heads"]
    head_dim: int = config.get("head_dim") or config["hidden_size"] // heads
    return heads * head_dim, config["num_key_value_heads"] * head_dim


FAMILIES: dict[str, Callable[[Config], int]] = {
    "gpt2": _gpt2,
    "bloom": _bloom,
    "opt": _opt,
    "llama": _llama,
    "mistral": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma3_text": _gemma3,
}
