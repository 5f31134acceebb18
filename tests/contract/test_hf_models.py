"""Where models of the transformers engine come from, and what is wrong with them if it is."""

import inspect
import json
import shutil

import pytest
import torch
from msgspec.structs import replace
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from regimescope.engines import hf, hf_estimate, hf_load
from regimescope.engines.base import EngineRequest
from regimescope.engines.hf import HfEngine
from regimescope.engines.hf_cache import CACHE_KEYWORDS
from regimescope.errors import CapabilityError, SpecError, UserError
from regimescope.records import Cell

VOCABULARY = 97
REQUEST = EngineRequest(model="tiny", device="cpu", dtype="float32", seed=3)
LLAMA = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "pad_token_id": 1,
    "vocab_size": VOCABULARY,
}


def build():
    """Return a small model."""
    return AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **LLAMA))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved")
    build().save_pretrained(path / "whole")
    build().save_pretrained(path / "shards", max_shard_size="30KB")
    return path


@pytest.fixture
def folder(saved, tmp_path):
    """Return a folder of its own with a whole model."""
    return shutil.copytree(saved / "whole", tmp_path / "model")


@pytest.fixture
def shards(saved, tmp_path):
    """Return a folder of its own with a model in several files."""
    path = shutil.copytree(saved / "shards", tmp_path / "model")
    assert len(list(path.glob("model-*.safetensors"))) > 2
    return path


def methods():
    return [HfEngine().inspect, HfEngine().open]


def refusal(path, method, **change):
    """Return the error for a model, which must be one line that names it, with a remedy."""
    with pytest.raises(UserError) as caught:
        method(replace(REQUEST, model=str(path), **change))
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.remedy
    return caught.value.message


def change_config(path, **change):
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | change))


def cut(path, keep):
    content = path.read_bytes()
    path.write_bytes(content[: keep(len(content))])


# --- damaged folders ------------------------------------------------------------------------------


def remove_config(path):
    (path / "config.json").unlink()


def cut_config(path):
    (path / "config.json").write_text('{"model_type": "lla')


def list_config(path):
    (path / "config.json").write_text("[1]")


def binary_config(path):
    (path / "config.json").write_bytes(b"\xff\xfe\x00\x80")


def untyped_config(path):
    (path / "config.json").write_text('{"hidden_size": 32}')


def unknown_type(path):
    change_config(path, model_type="no-such-type")


def impossible_heads(path):
    change_config(path, num_attention_heads=-4)


def wide_config(path):
    change_config(path, hidden_size=64)


def many_words(path):
    change_config(path, vocab_size=200)


def remove_weights(path):
    (path / "model.safetensors").unlink()


def halve_weights(path):
    cut(path / "model.safetensors", lambda size: size // 2)


def cut_last_byte(path):
    cut(path / "model.safetensors", lambda size: size - 1)


def cut_header(path):
    cut(path / "model.safetensors", lambda size: 40)


def empty_weights(path):
    cut(path / "model.safetensors", lambda size: 0)


def text_as_weights(path):
    (path / "model.safetensors").write_text("version https://git-lfs.example/spec/v1\n" * 3)


@pytest.mark.parametrize("method", methods())
@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (remove_config, "holds no config.json"),
        (cut_config, "config.json is no JSON"),
        (list_config, "config.json is no JSON object"),
        (binary_config, "config.json is no JSON"),
        (untyped_config, "names no model_type"),
        (unknown_type, "no-such-type"),
        (impossible_heads, "cannot be loaded"),
        (wide_config, "the configuration asks for"),
        (many_words, "97 x 32, the configuration asks for 200 x 32"),
        (remove_weights, "holds no weights"),
        (halve_weights, "model.safetensors is damaged or cut short"),
        (cut_last_byte, "model.safetensors is damaged or cut short"),
        (cut_header, "damaged or cut short at 40 bytes"),
        (empty_weights, "damaged or cut short at 0 bytes"),
        (text_as_weights, "damaged or cut short"),
    ],
)
def test_damage_is_told_before_anything_is_loaded(folder, damage, named, method):
    damage(folder)
    assert named in refusal(folder, method)


@pytest.mark.parametrize("method", methods())
def test_missing_part_of_the_weights_is_named(shards, method):
    first = sorted(shards.glob("model-*.safetensors"))[0]
    first.unlink()
    message = refusal(shards, method)
    assert first.name in message
    assert "1 of" in message


@pytest.mark.parametrize("method", methods())
@pytest.mark.parametrize("content", ["{", "{}", '{"weight_map": {}}', '{"weight_map": [1]}'])
def test_damaged_index_is_named(shards, method, content):
    (shards / "model.safetensors.index.json").write_text(content)
    assert "model.safetensors.index.json" in refusal(shards, method)


@pytest.mark.parametrize("method", methods())
def test_damaged_part_is_named(shards, method):
    last = sorted(shards.glob("model-*.safetensors"))[-1]
    cut(last, lambda size: size - 8)
    assert last.name in refusal(shards, method)


def test_missing_tensor_is_named_when_the_weights_are_loaded(folder):
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    message = refusal(folder, HfEngine().open)
    assert "1 tensors are missing" in message
    assert "model.layers.1.mlp.up_proj.weight" in message


def test_model_in_several_files_is_loaded(shards):
    session = HfEngine().open(replace(REQUEST, model=str(shards)))
    assert len(list(session.generate([1, 2, 3], Cell(budget=4)))) == 4


def test_pickled_weights_are_loaded(folder):
    model = AutoModelForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    session = HfEngine().open(replace(REQUEST, model=str(folder)))
    assert len(list(session.generate([1, 2, 3], Cell(budget=4)))) == 4


@pytest.mark.parametrize("method", methods())
def test_file_that_is_no_gguf_is_refused(tmp_path, method):
    path = tmp_path / "model.bin"
    path.write_bytes(b"\x80\x02}")
    with pytest.raises(SpecError, match=r"model\.bin is a file, and no GGUF file"):
        method(replace(REQUEST, model=str(path)))


@pytest.mark.parametrize("name", ["absent.gguf", "some/absent.gguf", "./some/folder"])
def test_path_that_does_not_exist_is_no_hub_id(name):
    with pytest.raises(SpecError, match="does not exist"):
        HfEngine().inspect(replace(REQUEST, model=name))


def test_hub_id_that_cannot_be_fetched_names_the_remedy(monkeypatch):
    """Offline, as the library's own switch makes it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="no-such-owner/no-such-model") as caught:
        HfEngine().inspect(replace(REQUEST, model="no-such-owner/no-such-model"))
    assert "connection" in caught.value.remedy


# --- code that comes with a model -----------------------------------------------------------------

OWN_CODE = """
from transformers import LlamaConfig, LlamaForCausalLM

class OwnConfig(LlamaConfig):
    model_type = "own-llama"

class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig
"""


@pytest.fixture
def own_code(folder, monkeypatch, tmp_path):
    """Return a folder whose model type is defined by code in it."""
    modules = tmp_path / "modules"
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(modules))
    monkeypatch.syspath_prepend(str(modules))
    (folder / "own.py").write_text(OWN_CODE)
    classes = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    change_config(folder, model_type="own-llama", auto_map=classes)
    return folder


@pytest.mark.parametrize("method", methods())
def test_code_of_others_is_not_run_unless_asked_for(own_code, method, tmp_path):
    message = refusal(own_code, method)
    assert "brings code of its own" in message
    assert not (tmp_path / "modules").exists()


def test_code_of_others_is_run_when_it_is_trusted(own_code):
    request = replace(REQUEST, model=str(own_code), options={"trust_remote_code": True})
    assert HfEngine().inspect(request).layers == 2
    session = HfEngine().open(request)
    assert len(list(session.generate([1, 2, 3], Cell(budget=4)))) == 4


# --- positions and memory -------------------------------------------------------------------------


def test_positions_are_moved_for_random_weights():
    request = replace(REQUEST, options={"positions": 2000})
    session = HfEngine().open(request)
    assert session.facts() == HfEngine().inspect(request)
    assert session.facts().positions == 2000
    prompt = [7] * 1995
    assert len(list(session.generate(prompt, Cell(budget=6, prompt_tokens=1995)))) == 6


@pytest.mark.parametrize("method", methods())
def test_positions_of_real_weights_stay(folder, method):
    with pytest.raises(CapabilityError, match="positions"):
        method(replace(REQUEST, model=str(folder), options={"positions": 128}))


@pytest.mark.parametrize("positions", [0, -1, 1 << 25, "many"])
def test_impossible_positions_are_refused(positions):
    with pytest.raises(SpecError, match="positions"):
        HfEngine().inspect(replace(REQUEST, options={"positions": positions}))


@pytest.mark.parametrize("method", methods())
def test_model_larger_than_memory_is_refused_before_it_is_made(monkeypatch, method):
    monkeypatch.setattr(hf_estimate, "free_bytes", lambda device: 20_000_000_000)
    with pytest.raises(CapabilityError, match=r"needs 32\.1 GB on cpu: weights 32\.1 GB") as caught:
        method(replace(REQUEST, model="llama-3.1-8b"))
    assert "bfloat16" in caught.value.remedy


@pytest.mark.parametrize("method", methods())
def test_largest_generation_counts(monkeypatch, method):
    monkeypatch.setattr(hf_estimate, "free_bytes", lambda device: 3_000_000)
    largest = Cell(budget=500, prompt_tokens=400, batch=4)
    request = replace(REQUEST, largest=largest)
    with pytest.raises(CapabilityError, match=r"KV cache of 899 positions 3\.68 MB"):
        method(request)
    method(replace(request, largest=replace(largest, batch=2)))
    method(replace(request, options={"check_memory": False}))


def test_files_are_weighed_before_they_are_read(monkeypatch, folder):
    monkeypatch.setattr(hf_estimate, "free_bytes", lambda device: 50_000)
    monkeypatch.setattr(hf_load, "_read_weights", None)
    with pytest.raises(CapabilityError, match="weights"):
        HfEngine().open(replace(REQUEST, model=str(folder)))


WINDOWED = LLAMA | {"sliding_window": 8, "head_dim": 8}
FULL_HEADS = {"n_head": 4, "n_layer": 2, "vocab_size": VOCABULARY}
FAMILIES = {
    "gpt2": FULL_HEADS | {"n_embd": 32, "n_positions": 64},
    "bloom": FULL_HEADS | {"hidden_size": 32},
    "llama": LLAMA,
    "mistral": WINDOWED,
    "qwen3": LLAMA | {"head_dim": 16},
    "gemma3_text": WINDOWED | {"layer_types": ["sliding_attention", "full_attention"]},
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("length", [5, 20])
def test_estimated_cache_is_what_decoding_keeps(family, length):
    """Windows of 8: a context within them, and one past them."""
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **FAMILIES[family]))
    shape = hf_load.shape_of(model)
    cache = DynamicCache(config=model.config)
    names = inspect.signature(model.forward).parameters
    keyword = next(name for name in CACHE_KEYWORDS if name in names)
    with torch.inference_mode():
        ids = torch.ones((3, 1), dtype=torch.int64)
        for _ in range(length):
            model(ids, use_cache=True, **{keyword: cache})
    kept = sum(t.numel() * 4 for layer in cache.layers for t in (layer.keys, layer.values))
    setup = hf_estimate.Setup("small", "cpu", "float32")
    need = hf_estimate.memory_need(shape, setup, Cell(budget=1, prompt_tokens=length, batch=3))
    # A window keeps one position less between two steps than within one.
    between = shape.windowed_layers * (length >= 8) * 2 * shape.kv_heads * shape.head_dim * 4 * 3
    assert need.cache - between == kept
    assert need.weights == sum(parameter.numel() * 4 for parameter in model.parameters())


def test_windows_are_told_among_the_settings():
    settings = HfEngine().inspect(replace(REQUEST, model="gemma-3-1b", dtype="bf16")).settings
    assert (settings["window"], settings["windowed_layers"]) == (512, 22)
    assert "window" not in HfEngine().inspect(REQUEST).settings


def test_options_have_the_defaults_that_download_and_run_nothing():
    options = hf.HfOptions()
    assert options.trust_remote_code is False
    assert options.positions is None
