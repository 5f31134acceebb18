import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from regimescope.engines.architectures import ARCHITECTURES


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_model_built_from_the_config_has_the_stated_shape(name):
    """Built on the meta device, which stores no weights."""
    architecture = ARCHITECTURES[name]
    config = AutoConfig.for_model(architecture.family, **architecture.config)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == architecture.parameters()
    assert config.vocab_size == architecture.vocabulary
    assert config.num_hidden_layers == architecture.layers
    assert getattr(config, "max_position_embeddings", None) == architecture.positions
    heads = config.num_attention_heads
    assert getattr(config, "num_key_value_heads", heads) == architecture.kv_heads
    assert config.hidden_size // heads == architecture.head_dim
    assert config._attn_implementation == architecture.attention[0]
