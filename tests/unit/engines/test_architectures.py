import sys

import msgspec
import pytest

from regimescope.engines.architectures import ARCHITECTURES
from regimescope.errors import CapabilityError
from regimescope.metrics import kv_bytes_per_token

# Totals of the published checkpoints.
PUBLISHED = {
    "distilgpt2": 81_912_576,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "bloom-560m": 559_214_592,
    "opt-125m": 125_239_296,
    "opt-350m": 331_196_416,
    "llama-3.2-1b": 1_235_814_400,
    "qwen2.5-0.5b": 494_032_768,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "llama-3.1-8b": 8_030_261_248,
    "mistral-7b-v0.3": 7_248_023_552,
    # Its files hold the token table a second time as the head: 751,632,384 in all.
    "qwen3-0.6b": 596_049_920,
    "gemma-3-1b": 999_885_952,
}
NAMES = sorted(ARCHITECTURES)


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_formula_gives_the_published_number_of_parameters(name, parameters):
    assert ARCHITECTURES[name].parameters() == parameters


@pytest.mark.parametrize("name", NAMES)
def test_special_tokens_lie_inside_the_vocabulary(name):
    architecture = ARCHITECTURES[name]
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        assert 0 <= architecture.config.get(key, 0) < architecture.vocabulary


def test_every_published_model_is_compared_with_its_figure():
    assert set(PUBLISHED) == set(NAMES) - {"tiny"}


def test_more_positions_grow_the_table_of_gpt2_and_nothing_else():
    more = ARCHITECTURES["gpt2"].with_positions(4096)
    assert more.positions == 4096
    assert more.parameters() == PUBLISHED["gpt2"] + (4096 - 1024) * 768
    assert ARCHITECTURES["gpt2"].config["n_positions"] == 1024


@pytest.mark.parametrize("name", ["opt-125m", "llama-3.2-1b", "gemma-3-1b"])
def test_positions_can_be_fewer_as_well(name):
    fewer = ARCHITECTURES[name].with_positions(64)
    assert fewer.positions == 64
    assert fewer.config["max_position_embeddings"] == 64
    assert fewer.parameters() <= PUBLISHED[name]


def test_positions_of_a_family_without_a_limit_stay_as_they_are():
    with pytest.raises(CapabilityError, match="bloom-560m has no limit"):
        ARCHITECTURES["bloom-560m"].with_positions(4096)


def test_gemma_sees_everything_in_every_sixth_layer():
    gemma = ARCHITECTURES["gemma-3-1b"]
    types = gemma.config["layer_types"]
    full = [number for number, kind in enumerate(types, 1) if kind == "full_attention"]
    assert full == [6, 12, 18, 24]
    assert (gemma.window, gemma.windowed_layers) == (512, 22)


def test_kv_bytes_of_gpt2_medium_are_those_of_the_method():
    """2 * layers * kv_heads * head_dim * bytes = 2 * 24 * 16 * 64 * 4."""
    architecture = ARCHITECTURES["gpt2-medium"]
    assert (
        kv_bytes_per_token(
            architecture.layers, architecture.kv_heads, architecture.head_dim, bytes_per_element=4
        )
        == 196_608
    )


def test_architectures_are_frozen():
    with pytest.raises(AttributeError, match="immutable"):
        ARCHITECTURES["tiny"].layers = 3


def test_table_survives_a_round_trip_through_json():
    architecture = ARCHITECTURES["llama-3.2-1b"]
    decoded = msgspec.json.decode(msgspec.json.encode(architecture), type=type(architecture))
    assert decoded == architecture


def test_table_needs_no_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "regimescope.engines.architectures")
    from regimescope.engines import architectures

    assert sorted(architectures.ARCHITECTURES) == NAMES
