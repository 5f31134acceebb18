"""GGUF files as models of the transformers engine: a small one made here, and a real one."""

import gguf
import numpy as np
import pytest
import torch
from msgspec.structs import replace
from tests.small_model import gguf_path
from transformers import AutoModelForCausalLM

from regimescope.engines import hf_load
from regimescope.engines.base import EngineRequest
from regimescope.engines.hf import HfEngine
from regimescope.errors import MissingDependencyError, UserError
from regimescope.records import Cell

WIDTH, INNER, HEADS, LAYERS, VOCABULARY, POSITIONS = 32, 64, 4, 2, 60, 64
PROMPT = [5, 9, 1, 2, 40, 41, 7]
REQUEST = EngineRequest(model="tiny", device="cpu", dtype="float32", seed=3)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Write a small LLaMA with random weights in float32."""
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    random = np.random.default_rng(7)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"t{number}" for number in range(VOCABULARY)])
    writer.add_token_scores([0.0] * VOCABULARY)

    def add(name, *shape):
        values = random.normal(0, 0.6, shape) if len(shape) > 1 else np.ones(shape)
        writer.add_tensor(name, values.astype(np.float32))

    add("token_embd.weight", VOCABULARY, WIDTH)
    for layer in range(LAYERS):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{part}.weight", WIDTH, WIDTH)
        add(f"blk.{layer}.ffn_gate.weight", INNER, WIDTH)
        add(f"blk.{layer}.ffn_up.weight", INNER, WIDTH)
        add(f"blk.{layer}.ffn_down.weight", WIDTH, INNER)
        add(f"blk.{layer}.attn_norm.weight", WIDTH)
        add(f"blk.{layer}.ffn_norm.weight", WIDTH)
    add("output_norm.weight", WIDTH)
    add("output.weight", VOCABULARY, WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def request(path, **change):
    return replace(REQUEST, model=str(path), **change)


def continued(model, prompt, budget):
    """Return what a model says next by its logits alone."""
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        for _ in range(budget):
            token = model(ids).logits[:, -1].argmax(-1, keepdim=True)
            ids = torch.cat([ids, token], dim=1)
    return ids[0, len(prompt) :].tolist()


def test_small_file_decodes_as_transformers_reads_it(file):
    model = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32, local_files_only=True
    )
    expected = continued(model.eval(), PROMPT, 16)
    assert len(set(expected)) > 4, "output too monotonous to prove anything"
    session = HfEngine().open(request(file))
    assert len(list(session.generate(PROMPT, Cell(budget=16)))) == 16
    assert session.output_ids() == [expected]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_inspect_tells_what_open_finds(file, dtype):
    facts = HfEngine().inspect(request(file, dtype=dtype))
    assert facts == HfEngine().open(request(file, dtype=dtype)).facts()
    assert facts.weights == "file"
    assert (facts.layers, facts.kv_heads, facts.head_dim) == (LAYERS, HEADS, WIDTH // HEADS)
    assert (facts.vocabulary, facts.positions) == (VOCABULARY, POSITIONS)


def test_bare_file_name_is_no_hub_id(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    assert HfEngine().inspect(request("small.gguf")).layers == LAYERS


def test_file_of_another_name_is_known_by_its_content(file, tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(file.read_bytes())
    assert HfEngine().inspect(request(path)).layers == LAYERS


@pytest.mark.parametrize("method", [HfEngine().inspect, HfEngine().open])
@pytest.mark.parametrize(
    ("content", "named"),
    [
        (lambda whole: whole[:-1], "cut short"),
        (lambda whole: whole[: len(whole) // 2], "cut short"),
        (lambda whole: whole[:100], "cut short"),
        (lambda whole: b"", "no GGUF file"),
        (lambda whole: b"not a model\n", "no GGUF file"),
        (lambda whole: whole.replace(b"llama", b"lLama"), "cannot be loaded"),
    ],
)
def test_damaged_file_is_told_in_one_line(file, tmp_path, method, content, named):
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content(file.read_bytes()))
    with pytest.raises(UserError) as caught:
        method(request(path))
    assert named in caught.value.message
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.remedy


def test_missing_libraries_are_named_with_what_installs_them(file, monkeypatch):
    find = hf_load.importlib.util.find_spec
    monkeypatch.setattr(
        hf_load.importlib.util,
        "find_spec",
        lambda name, *rest: None if name in ("accelerate", "gguf") else find(name, *rest),
    )
    with pytest.raises(MissingDependencyError, match="accelerate, gguf") as caught:
        HfEngine().inspect(request(file))
    assert "pip install" in caught.value.remedy


def test_real_weights_go_on_with_what_repeats():
    """A trained model repeats a series of tokens; one with random weights does not."""
    # red house river music winter paper garden stone
    series = [2382, 2291, 4626, 2477, 4339, 1941, 4480, 5692]
    session = HfEngine().open(request(gguf_path()))
    facts = session.facts()
    assert facts.weights == "file"
    assert facts.weight_bytes == 4 * 134_515_008
    assert len(list(session.generate(series * 4, Cell(budget=16)))) == 16
    assert session.output_ids() == [series * 2]
    session.close()
