import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from regimescope.engines import hf_load
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
    assert config.num_attention_heads == architecture.heads
    stated = getattr(config, "head_dim", None) or config.hidden_size // heads
    assert stated == architecture.head_dim
    assert config._attn_implementation == architecture.attention[0]
    # Whether all logits are computed depends on the release and is no part of the shape.
    found = hf_load.shape_of(model)._replace(all_logits=False)
    assert found == hf_load.read_shape(hf_load.find_source(name), "auto")


@pytest.mark.parametrize("name", ["tiny", "opt-125m", "smollm2-135m", "gemma-3-1b"])
def test_model_with_moved_positions_has_the_stated_shape(name):
    source = hf_load.find_source(name, positions=200)
    architecture = source.architecture
    config = AutoConfig.for_model(architecture.family, **architecture.config)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    found = hf_load.shape_of(model)._replace(all_logits=False)
    assert found == hf_load.read_shape(source, "auto")
    assert found.positions == 200
