"""Configurations of published models with rotary positions. Layer: ``engines``.

Keys and values are those of the published ``config.json`` of each model; see ``architectures``.
"""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]

# What all of them share unless their own table says otherwise.
SHARED: Config = {"attention_dropout": 0.0, "hidden_act": "silu", "tie_word_embeddings": True}


def _llama_3(*, factor: float, **other: Any) -> Config:
    """Return a Llama 3.1 or 3.2; ``other`` are the values in which the sizes differ.

    Args:
        factor: How many times the positions of training its rotary positions are stretched.
        **other: Keys of the configuration.
    """
    return {
        "attention_bias": False,
        "bos_token_id": 128000,
        "eos_token_id": 128001,
        "initializer_range": 0.02,
        "max_position_embeddings": 131072,
        "mlp_bias": False,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "factor": factor,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "rope_theta": 500000.0,
        "vocab_size": 128256,
    } | other


def _smollm2(**other: Any) -> Config:
    """Return a SmolLM2; ``other`` are the values in which the sizes differ."""
    return {
        "attention_bias": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "max_position_embeddings": 8192,
        "mlp_bias": False,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "rope_theta": 100000,
        "vocab_size": 49152,
    } | other


# Name: family, configuration.
ROTARY: dict[str, tuple[str, Config]] = {
    "llama-3.2-1b": (
        "llama",
        _llama_3(
            factor=32.0,
            head_dim=64,
            hidden_size=2048,
            intermediate_size=8192,
            num_hidden_layers=16,
        ),
    ),
    "llama-3.1-8b": (
        "llama",
        _llama_3(
            factor=8.0,
            hidden_size=4096,
            intermediate_size=14336,
            num_hidden_layers=32,
            tie_word_embeddings=False,
        ),
    ),
    "mistral-7b-v0.3": (
        "mistral",
        {
            "bos_token_id": 1,
            "eos_token_id": 2,
            "hidden_size": 4096,
            "initializer_range": 0.02,
            "intermediate_size": 14336,
            "max_position_embeddings": 32768,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-05,
            "rope_theta": 1000000.0,
            "sliding_window": None,
            "tie_word_embeddings": False,
            "vocab_size": 32768,
        },
    ),
    "qwen2.5-0.5b": (
        "qwen2",
        {
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
        },
    ),
    "qwen3-0.6b": (
        "qwen3",
        {
            "attention_bias": False,
            "bos_token_id": 151643,
            "eos_token_id": 151645,
            "head_dim": 128,
            "hidden_size": 1024,
            "initializer_range": 0.02,
            "intermediate_size": 3072,
            "max_position_embeddings": 40960,
            "max_window_layers": 28,
            "num_attention_heads": 16,
            "num_hidden_layers": 28,
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-06,
            "rope_scaling": None,
            "rope_theta": 1000000,
            "sliding_window": None,
            "use_sliding_window": False,
            "vocab_size": 151936,
        },
    ),
    "smollm2-135m": (
        "llama",
        _smollm2(
            hidden_size=576,
            initializer_range=1 / 24,
            intermediate_size=1536,
            num_attention_heads=9,
            num_hidden_layers=30,
            num_key_value_heads=3,
        ),
    ),
    "smollm2-360m": (
        "llama",
        _smollm2(
            hidden_size=960,
            initializer_range=0.02,
            intermediate_size=2560,
            num_attention_heads=15,
            num_hidden_layers=32,
            num_key_value_heads=5,
        ),
    ),
    # Five layers that see 512 positions, then one that sees all, over and over.
    "gemma-3-1b": (
        "gemma3_text",
        {
            "attention_bias": False,
            "attn_logit_softcapping": None,
            "bos_token_id": 2,
            "eos_token_id": 1,
            "final_logit_softcapping": None,
            "head_dim": 256,
            "hidden_activation": "gelu_pytorch_tanh",
            "hidden_size": 1152,
            "initializer_range": 0.02,
            "intermediate_size": 6912,
            "layer_types": [
                "full_attention" if number % 6 == 0 else "sliding_attention"
                for number in range(1, 27)
            ],
            "max_position_embeddings": 32768,
            "num_attention_heads": 4,
            "num_hidden_layers": 26,
            "num_key_value_heads": 1,
            "pad_token_id": 0,
            "query_pre_attn_scalar": 256,
            "rms_norm_eps": 1e-06,
            "rope_local_base_freq": 10000,
            "rope_scaling": None,
            "rope_theta": 1000000,
            "sliding_window": 512,
            "vocab_size": 262144,
        },
    ),
}
