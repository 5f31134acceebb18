"""Built-in architectures: the shapes of published models, without their weights.

Layer: ``engines``. With random weights they decode at the speed of the published models and need no
download and no account. The configuration keys and values are those of the published
``config.json``; left out are keys that change neither the shape nor the computation of inference
(labels, summary heads, training switches).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

Config = dict[str, Any]


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of one published model.

    Attributes:
        name: Name in specs and on the command line.
        family: The ``model_type`` of its ``config.json``.
        config: Keywords of the configuration class of the family.
        vocabulary: Number of token ids.
        layers: Transformer layers.
        kv_heads: Heads that keep keys and values.
        head_dim: Elements per head.
        positions: Longest context in tokens; ``None`` where nothing limits it.
        attention: Attention implementations of the family, the preferred one first.
    """

    name: str
    family: str
    config: Config
    vocabulary: int
    layers: int
    kv_heads: int
    head_dim: int
    positions: int | None
    attention: tuple[str, ...] = ("sdpa", "eager")

    def parameters(self) -> int:
        """Return the number of parameters; those shared by input and output count once."""
        return _PARAMETERS[self.family](self.config)


def _gpt2(name: str, *, layers: int, width: int, heads: int, **other: Any) -> Architecture:
    """Return a GPT-2; ``other`` replaces values that all published sizes share."""
    config: Config = {
        "activation_function": "gelu_new",
        "attn_pdrop": 0.1,
        "bos_token_id": 50256,
        "embd_pdrop": 0.1,
        "eos_token_id": 50256,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05,
        "n_embd": width,
        "n_head": heads,
        "n_layer": layers,
        "n_positions": 1024,
        "resid_pdrop": 0.1,
        "vocab_size": 50257,
    } | other
    return Architecture(
        name=name,
        family="gpt2",
        config=config,
        vocabulary=config["vocab_size"],
        layers=layers,
        kv_heads=heads,
        head_dim=width // heads,
        positions=config["n_positions"],
    )


def _bloom(name: str, *, layers: int, width: int, heads: int) -> Architecture:
    """Return a BLOOM.

    Its position information is a bias on the attention scores (ALiBi), so no context is too long
    for it; the published ``seq_length`` of 2048 is the length it was trained with and limits
    nothing. transformers computes its attention without SDPA (4.57 to 5.24).
    """
    config = {
        "apply_residual_connection_post_layernorm": False,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_dropout": 0.0,
        "hidden_size": width,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05,
        "n_head": heads,
        "n_layer": layers,
        "pad_token_id": 3,
        "pretraining_tp": 1,
        "seq_length": 2048,
        "slow_but_exact": False,
        "vocab_size": 250880,
    }
    return Architecture(
        name=name,
        family="bloom",
        config=config,
        vocabulary=250880,
        layers=layers,
        kv_heads=heads,
        head_dim=width // heads,
        positions=None,
        attention=("eager",),
    )


def _opt(name: str, *, layers: int, width: int, heads: int, **other: Any) -> Architecture:
    """Return an OPT; ``other`` replaces values that the published sizes share."""
    config = {
        "_remove_final_layer_norm": False,
        "activation_function": "relu",
        "attention_dropout": 0.0,
        "bos_token_id": 2,
        "do_layer_norm_before": True,
        "dropout": 0.1,
        "eos_token_id": 2,
        "ffn_dim": 4 * width,
        "hidden_size": width,
        "init_std": 0.02,
        "layerdrop": 0.0,
        "max_position_embeddings": 2048,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "pad_token_id": 1,
        "vocab_size": 50272,
        "word_embed_proj_dim": width,
    } | other
    return Architecture(
        name=name,
        family="opt",
        config=config,
        vocabulary=50272,
        layers=layers,
        kv_heads=heads,
        head_dim=width // heads,
        positions=2048,
    )


def _rotary(name: str, family: str, config: Config) -> Architecture:
    """Return a model of the LLaMA kind: rotary positions, grouped heads, gated MLP, tied ends."""
    shared = {
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
    }
    return Architecture(
        name=name,
        family=family,
        config=shared | config,
        vocabulary=config["vocab_size"],
        layers=config["num_hidden_layers"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["hidden_size"] // config["num_attention_heads"],
        positions=config["max_position_embeddings"],
    )


_LLAMA_3_2_1B: Config = {
    "attention_bias": False,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "head_dim": 64,
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "vocab_size": 128256,
}

_QWEN2_5_0_5B: Config = {
    "bos_token_id": 151643,
    "eos_token_id": 151643,
    "hidden_size": 896,
    "initializer_range": 0.02,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "max_window_layers": 24,
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "use_sliding_window": False,
    "vocab_size": 151936,
}

_SMOLLM2_135M: Config = {
    "attention_bias": False,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "hidden_size": 576,
    "initializer_range": 1 / 24,
    "intermediate_size": 1536,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 100000,
    "vocab_size": 49152,
}

ARCHITECTURES: dict[str, Architecture] = {
    architecture.name: architecture
    for architecture in (
        _gpt2("distilgpt2", layers=6, width=768, heads=12),
        _gpt2("gpt2", layers=12, width=768, heads=12),
        _gpt2("gpt2-medium", layers=24, width=1024, heads=16),
        _gpt2("gpt2-large", layers=36, width=1280, heads=20),
        _bloom("bloom-560m", layers=24, width=1024, heads=16),
        _opt("opt-125m", layers=12, width=768, heads=12),
        _opt(
            "opt-350m",
            layers=24,
            width=1024,
            heads=16,
            do_layer_norm_before=False,
            word_embed_proj_dim=512,
        ),
        _rotary("llama-3.2-1b", "llama", _LLAMA_3_2_1B),
        _rotary("qwen2.5-0.5b", "qwen2", _QWEN2_5_0_5B),
        _rotary("smollm2-135m", "llama", _SMOLLM2_135M),
        # No published model: a GPT-2 so small that a step takes about a millisecond, for tests.
        _gpt2("tiny", layers=2, width=64, heads=4, vocab_size=512, bos_token_id=0, eos_token_id=0),
    )
}


def _gpt2_parameters(config: Config) -> int:
    """Count a GPT-2: token and position tables, layers with biases, the last norm."""
    width: int = config["n_embd"]
    tables: int = (config["vocab_size"] + config["n_positions"]) * width
    layers: int = config["n_layer"]
    return tables + layers * _wide_layer(width, 4 * width) + 2 * width


def _bloom_parameters(config: Config) -> int:
    """Count a BLOOM: token table and its norm, layers with biases, the last norm."""
    width: int = config["hidden_size"]
    tables: int = config["vocab_size"] * width + 2 * width
    layers: int = config["n_layer"]
    return tables + layers * _wide_layer(width, 4 * width) + 2 * width


def _opt_parameters(config: Config) -> int:
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


def _llama_parameters(config: Config) -> int:
    """Count a LLaMA: grouped heads, three-matrix MLP, no biases, norms of one vector, tied ends."""
    width, heads = config["hidden_size"], config["num_attention_heads"]
    kv_width = width // heads * config["num_key_value_heads"]
    attention = 2 * width * width + 2 * width * kv_width
    mlp = 3 * width * config["intermediate_size"]
    layers: int = config["num_hidden_layers"] * (attention + mlp + 2 * width)
    ends: int = config["vocab_size"] * width + width
    return ends + layers


def _qwen2_parameters(config: Config) -> int:
    """Count a Qwen2: a LLaMA with biases on queries, keys and values."""
    width, heads = config["hidden_size"], config["num_attention_heads"]
    kv_width = width // heads * config["num_key_value_heads"]
    biases: int = config["num_hidden_layers"] * (width + 2 * kv_width)
    return _llama_parameters(config) + biases


_PARAMETERS: dict[str, Callable[[Config], int]] = {
    "gpt2": _gpt2_parameters,
    "bloom": _bloom_parameters,
    "opt": _opt_parameters,
    "llama": _llama_parameters,
    "qwen2": _qwen2_parameters,
}
