"""Built-in architectures: the shapes of published models, without their weights.

Layer: ``engines``. With random weights they decode at the speed of the published models and need no
download and no account. The configuration keys and values are those of the published
``config.json``; left out are keys that change neither the shape nor the computation of inference
(labels, summary heads, training switches).
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from regimescope.engines import parameter_counts
from regimescope.engines.rotary_models import ROTARY, SHARED
from regimescope.errors import CapabilityError

Config = dict[str, Any]

# What --positions allows: far more than any published model has, and small enough that a table of
# positions stays a matrix that can be built.
MOST_POSITIONS = 1 << 24


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of one published model.

    Attributes:
        name: Name in specs and on the command line.
        family: The ``model_type`` of its ``config.json``.
        config: Keywords of the configuration class of the family.
        vocabulary: Number of token ids.
        layers: Transformer layers.
        heads: Heads that ask, per layer.
        kv_heads: Heads that keep keys and values, per layer.
        head_dim: Elements per head.
        positions: Longest context in tokens; ``None`` where nothing limits it.
        positions_key: Key of the configuration that holds it.
        window: Positions that windowed layers see and keep; ``None`` where all see all.
        windowed_layers: How many layers are windowed.
        attention: Attention implementations of the family, the preferred one first.
    """

    name: str
    family: str
    config: Config
    vocabulary: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    positions: int | None
    positions_key: str | None = None
    window: int | None = None
    windowed_layers: int = 0
    attention: tuple[str, ...] = ("sdpa", "eager")

    def parameters(self) -> int:
        """Return the number of parameters; those shared by input and output count once."""
        return parameter_counts.parameters(self.family, self.config)

    def with_positions(self, positions: int) -> Architecture:
        """Return the same shape with another longest context.

        A table of positions, where the family has one, grows with it and so do the parameters.

        Args:
            positions: Longest context in tokens, 1 or more.

        Raises:
            CapabilityError: Nothing limits the context of the family.
        """
        if self.positions_key is None:
            raise CapabilityError(
                f"{self.name} has no limit of positions that could be moved.",
                remedy="Leave out the positions: any context fits.",
            )
        config = self.config | {self.positions_key: positions}
        return replace(self, config=config, positions=positions)


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
        heads=heads,
        kv_heads=heads,
        head_dim=width // heads,
        positions=config["n_positions"],
        positions_key="n_positions",
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
        heads=heads,
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
        heads=heads,
        kv_heads=heads,
        head_dim=width // heads,
        positions=2048,
        positions_key="max_position_embeddings",
    )


def _rotary(name: str, family: str, config: Config) -> Architecture:
    """Return a model with rotary positions: grouped heads, gated MLP, norms of one vector."""
    config = SHARED | config
    layer_types = config.get("layer_types", [])
    heads = config["num_attention_heads"]
    return Architecture(
        name=name,
        family=family,
        config=config,
        vocabulary=config["vocab_size"],
        layers=config["num_hidden_layers"],
        heads=heads,
        kv_heads=config["num_key_value_heads"],
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        positions=config["max_position_embeddings"],
        positions_key="max_position_embeddings",
        window=config["sliding_window"] if layer_types else None,
        windowed_layers=layer_types.count("sliding_attention"),
    )


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
        *(_rotary(name, *shape) for name, shape in ROTARY.items()),
        # No published model: a GPT-2 so small that a step takes about a millisecond, for tests.
        _gpt2("tiny", layers=2, width=64, heads=4, vocab_size=512, bos_token_id=0, eos_token_id=0),
    )
}
