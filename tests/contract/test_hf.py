"""The transformers engine against transformers itself, on the CPU."""

import inspect
import json
import shutil
import sys

import pytest
import torch
from msgspec.structs import replace
from transformers import AutoConfig, AutoModelForCausalLM, GPT2LMHeadModel

from regimescope.engines import hf_device, hf_load, hf_random
from regimescope.engines.architectures import ARCHITECTURES, Architecture
from regimescope.engines.base import Engine, EngineRequest, Session
from regimescope.engines.hf import HfEngine
from regimescope.errors import (
    CapabilityError,
    EngineError,
    MissingDependencyError,
    SpecError,
)
from regimescope.records import Cell

VOCABULARY = 97
PROMPT = [5, 96, 1, 2, 40, 41, 7]
BUDGET = 24
GPT2 = {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 64}
# Where the head is the token table, these and Gemma repeat one token; GPT-2 keeps its ends tied.
BLOOM = {"hidden_size": 32, "n_head": 4, "n_layer": 2, "tie_word_embeddings": False}
OPT = {
    "tie_word_embeddings": False,
    "hidden_size": 32,
    "word_embed_proj_dim": 16,
    "do_layer_norm_before": False,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "ffn_dim": 64,
    "max_position_embeddings": 64,
}
LLAMA = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": 64,
}
# Windows shorter than the output, so that decoding runs past them.
MISTRAL = LLAMA | {"sliding_window": 8}
GEMMA = MISTRAL | {
    "head_dim": 8,
    "layer_types": ["sliding_attention", "full_attention"],
    "tie_word_embeddings": False,
}
FAMILIES = {
    "gpt2": GPT2,
    "bloom": BLOOM,
    "opt": OPT,
    "llama": LLAMA,
    "mistral": MISTRAL,
    "qwen2": LLAMA,
    "qwen3": LLAMA | {"head_dim": 8},
    "gemma3_text": GEMMA,
}
# With these weights the output of each family varies; with most others some repeat one token.
SEEDS = {"gpt2": 11, "bloom": 13, "opt": 16} | dict.fromkeys(
    ("llama", "mistral", "qwen2", "qwen3", "gemma3_text"), 11
)
REQUEST = EngineRequest(model="tiny", device="cpu", dtype="float32", seed=3)


def save_family(family, path, **config):
    """Write a small model of a family with weights so large that its output varies."""
    special = {"bos_token_id": 0, "eos_token_id": 3, "pad_token_id": 1}
    settings = FAMILIES[family] | special | {"vocab_size": VOCABULARY} | config
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **settings))
    generator = torch.Generator().manual_seed(SEEDS[family])
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0.0, 0.6, generator=generator)
    model.save_pretrained(path)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    paths = {family: tmp_path_factory.mktemp(family) for family in FAMILIES}
    hf_load.import_transformers()
    for family, path in paths.items():
        save_family(family, path)
    return paths


@pytest.fixture(scope="module")
def tiny():
    session = HfEngine().open(REQUEST)
    yield session
    session.close()


def output(session, prompt=PROMPT, **cell):
    """Run one generation to its end and return its tokens, one row per sequence."""
    cell = {"budget": BUDGET, "prompt_tokens": len(prompt)} | cell
    steps = list(session.generate(prompt, Cell(**cell)))
    assert [step.tokens for step in steps] == [1] * cell["budget"]
    return session.output_ids()


def reference(path, prompt=PROMPT, budget=BUDGET, **settings):
    """Return what transformers itself generates."""
    model = AutoModelForCausalLM.from_pretrained(path, **settings).eval()
    model.generation_config.eos_token_id = None
    ids = torch.tensor([prompt])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        min_new_tokens=budget,
        max_new_tokens=budget,
        pad_token_id=1,
    )
    return out[0, len(prompt) :].tolist()


# --- generation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["auto", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_both_loops_produce_what_generate_produces(folders, family, attention):
    path = folders[family]
    request = replace(REQUEST, model=str(path), options={"attention": attention})
    session = HfEngine().open(request)
    expected = reference(path)
    assert len(set(expected)) > 8, "output too monotonous to prove anything"
    assert output(session, kv_cache="on") == [expected]
    assert output(session, kv_cache="off") == [expected]


@pytest.mark.parametrize("family", FAMILIES)
def test_sequences_of_a_batch_are_decoded_alike(folders, family):
    session = HfEngine().open(replace(REQUEST, model=str(folders[family])))
    single = output(session)
    assert output(session, batch=3) == single * 3
    assert output(session, batch=3, kv_cache="off") == single * 3


def test_end_of_sequence_does_not_end_the_generation(folders, tmp_path):
    first = reference(folders["gpt2"], budget=1)[0]
    shutil.copytree(folders["gpt2"], tmp_path, dirs_exist_ok=True)
    for name in ("config.json", "generation_config.json"):
        config = json.loads((tmp_path / name).read_text())
        (tmp_path / name).write_text(json.dumps(config | {"eos_token_id": first}))
    session = HfEngine().open(replace(REQUEST, model=str(tmp_path)))
    assert output(session)[0][0] == first


def test_model_without_logits_to_keep_and_with_the_old_cache_name(folders, monkeypatch):
    """As transformers before 5.24 has them, and some families still."""
    expected = output(HfEngine().open(replace(REQUEST, model=str(folders["gpt2"]))))
    forward, calls = GPT2LMHeadModel.forward, []
    original = inspect.signature(forward).parameters

    def old_forward(self, input_ids, past_key_values=None, use_cache=None):
        calls.append(input_ids.shape[1])
        name = "cache" if "cache" in original else "past_key_values"
        return forward(self, input_ids, use_cache=use_cache, **{name: past_key_values})

    monkeypatch.setattr(GPT2LMHeadModel, "forward", old_forward)
    session = HfEngine().open(replace(REQUEST, model=str(folders["gpt2"])))
    assert output(session) == expected
    assert calls == [len(PROMPT)] + [1] * (BUDGET - 1)
    assert output(session, kv_cache="off") == expected


def test_model_that_takes_no_cache_says_so(folders, monkeypatch):
    forward = GPT2LMHeadModel.forward

    def cacheless_forward(self, input_ids, use_cache=None):
        return forward(self, input_ids, use_cache=use_cache)

    monkeypatch.setattr(GPT2LMHeadModel, "forward", cacheless_forward)
    session = HfEngine().open(replace(REQUEST, model=str(folders["gpt2"])))
    with pytest.raises(CapabilityError, match="takes no KV cache"):
        output(session)
    assert len(output(session, kv_cache="off")[0]) == BUDGET


def test_token_is_on_the_host_when_its_step_is_handed_over(tiny):
    generation = tiny.generate(PROMPT, Cell(budget=3))
    for count in (1, 2, 3):
        next(generation)
        assert [len(row) for row in tiny.output_ids()] == [count]
    with pytest.raises(StopIteration):
        next(generation)


@pytest.mark.parametrize("kv_cache", ["on", "off"])
def test_without_stamps_the_same_tokens_come_in_two_steps(tiny, kv_cache):
    cell = Cell(budget=12, kv_cache=kv_cache)
    assert [step.tokens for step in tiny.generate(PROMPT, cell)] == [1] * 12
    stamped = tiny.output_ids()
    assert [step.tokens for step in tiny.generate(PROMPT, cell, stamped=False)] == [1, 11]
    assert tiny.output_ids() == stamped
    assert [step.tokens for step in tiny.generate(PROMPT, Cell(budget=1), stamped=False)] == [1]


@pytest.mark.parametrize("kv_cache", ["on", "off"])
def test_generation_leaves_no_mode_of_torch_behind(tiny, kv_cache):
    output(tiny, kv_cache=kv_cache)
    assert not torch.is_inference_mode_enabled()
    generation = tiny.generate(PROMPT, Cell(budget=2, kv_cache=kv_cache))
    next(generation)
    generation.close()
    assert not torch.is_inference_mode_enabled()


def test_abandoned_generation_leaves_the_session_usable(tiny):
    expected = output(tiny)
    generation = tiny.generate(PROMPT, Cell(budget=BUDGET))
    next(generation)
    generation.close()
    assert output(tiny) == expected


def test_whole_context_can_be_used_and_no_more(tiny):
    positions = tiny.facts().positions
    prompt = [7] * 900
    last = positions - len(prompt) + 1
    assert len(output(tiny, prompt, budget=last)[0]) == last
    with pytest.raises(CapabilityError, match="the model has 1,024"):
        tiny.generate(prompt, Cell(budget=last + 1))


@pytest.mark.parametrize(
    ("prompt", "cell", "error"),
    [
        ([], Cell(budget=4), EngineError),
        (PROMPT, Cell(budget=0), EngineError),
        (PROMPT, Cell(), EngineError),
        ([512], Cell(budget=4), EngineError),
        ([-1], Cell(budget=4), EngineError),
        (PROMPT, Cell(budget=4, depth=8), EngineError),
        (PROMPT, Cell(budget=4, capacity=64), CapabilityError),
    ],
)
def test_impossible_generation_is_refused(tiny, prompt, cell, error):
    with pytest.raises(error):
        tiny.generate(prompt, cell)


def test_failure_inside_a_step_is_an_engine_error(folders, monkeypatch):
    session = HfEngine().open(replace(REQUEST, model=str(folders["gpt2"])))
    expected = output(session)

    def run_out(*args, **keywords):
        raise torch.OutOfMemoryError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(GPT2LMHeadModel, "forward", run_out)
        with pytest.raises(EngineError, match="OutOfMemoryError: out of memory"):
            output(session)
    assert output(session) == expected


# --- random weights -------------------------------------------------------------------------------


def random_model(name="tiny", dtype="float32", seed=3):
    source = hf_load.find_source(name)
    return hf_load.load_model(source, device="cpu", dtype=dtype, attention="auto", seed=seed)


def matrices(model):
    return {name: tensor for name, tensor in model.state_dict().items() if tensor.ndim == 2}


def test_random_weights_follow_the_seed():
    first, again, other = (matrices(random_model(seed=seed)) for seed in (3, 3, 4))
    assert first
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


def test_random_weights_are_normal_with_neutral_norms_and_biases():
    for name, tensor in random_model().named_parameters():
        weights = tensor.detach()
        if weights.ndim == 2:
            assert float(weights.mean()) == pytest.approx(0.0, abs=0.002)
            assert float(weights.std()) == pytest.approx(0.02, rel=0.05)
            assert len(torch.unique(weights, dim=0)) == len(weights), f"{name} repeats rows"
        else:
            assert weights.unique().tolist() == [0.0 if name.endswith("bias") else 1.0]


def test_loading_draws_from_no_generator_but_its_own():
    """Neither do constructors fill weights that are overwritten at once."""
    before = torch.get_rng_state()
    random_model()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("family", FAMILIES)
def test_random_model_computes_what_an_ordinary_one_with_its_weights_does(family):
    """Everything but weights, such as tables of rotary positions, comes out of the constructor."""
    special = {"vocab_size": VOCABULARY, "pad_token_id": 1}
    settings = {"tie_word_embeddings": False} | FAMILIES[family] | special
    architecture = Architecture(
        name=family,
        family=family,
        config=settings,
        vocabulary=VOCABULARY,
        layers=2,
        heads=4,
        kv_heads=4,
        head_dim=8,
        positions=64,
        attention=("eager",),
    )
    source = hf_load.Source(family, architecture, local=True)
    model = hf_load.load_model(source, device="cpu", dtype="float32", attention="auto", seed=0)
    ordinary = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(family, **settings), attn_implementation="eager"
    ).eval()
    ordinary.load_state_dict(model.state_dict())
    with torch.inference_mode():
        ids = torch.tensor([PROMPT])
        assert torch.equal(model(ids).logits, ordinary(ids).logits)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("tiny", "float32"), ("tiny", "bfloat16"), ("tiny", "float16"), ("smollm2-135m", "float16")],
)
def test_logits_of_random_weights_are_finite(name, dtype):
    model = random_model(name, dtype)
    with torch.inference_mode():
        logits = model(torch.tensor([PROMPT])).logits
    assert logits.dtype == getattr(torch, dtype)
    assert bool(torch.isfinite(logits).all())
    assert float(logits.std()) > 0


def test_block_is_used_as_a_ring_across_matrices(monkeypatch):
    monkeypatch.setattr(hf_random, "BLOCK_ELEMENTS", 7)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 4))
    hf_random.fill_random(model, seed=0)
    flat = torch.cat([layer.weight.flatten() for layer in model])
    assert torch.equal(flat, flat[:7].repeat(3))
    assert model[1].bias.tolist() == [0.0] * 4


def test_no_row_of_a_matrix_starts_where_another_did_in_the_block():
    """Rows of a width that shares a factor with the block would repeat."""
    widths = range(2, 8193)
    assert not [width for width in widths if hf_random.BLOCK_ELEMENTS % width == 0]


# --- facts ----------------------------------------------------------------------------------------


def test_engine_and_session_fit_the_protocols(tiny):
    engine: Engine = HfEngine()
    session: Session = tiny
    assert engine.name == "hf"
    assert engine.capabilities().kv_cache == ("on", "off")
    assert session.clock.now_ns() <= session.clock.now_ns()


def test_inspect_tells_what_open_finds(tiny):
    assert HfEngine().inspect(REQUEST) == tiny.facts()


@pytest.mark.parametrize("family", FAMILIES)
def test_inspect_of_a_folder_tells_what_open_finds(folders, family):
    request = replace(REQUEST, model=str(folders[family]), dtype="bf16")
    facts = HfEngine().inspect(request)
    assert facts == HfEngine().open(request).facts()
    assert facts.weights == "file"
    assert facts.dtype == "bfloat16"
    assert (facts.layers, facts.head_dim, facts.vocabulary) == (2, 8, VOCABULARY)
    assert facts.kv_heads == (4 if family in ("gpt2", "bloom", "opt") else 2)
    assert facts.positions == (None if family == "bloom" else 64)


def test_facts_of_a_built_in(tiny):
    facts = tiny.facts()
    architecture = ARCHITECTURES["tiny"]
    assert facts.weights == "random"
    assert facts.positions == 1024
    assert facts.weight_bytes == 4 * architecture.parameters()
    assert facts.settings["attention"] == "sdpa"
    assert set(facts.versions) == {"torch", "transformers"}
    assert facts.description


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_every_built_in_can_be_inspected(name):
    architecture = ARCHITECTURES[name]
    facts = HfEngine().inspect(replace(REQUEST, model=name, dtype="fp16"))
    assert facts.weight_bytes == 2 * architecture.parameters()
    assert facts.settings["attention"] == architecture.attention[0]


def test_threads_are_set_and_told():
    before = torch.get_num_threads()
    try:
        session = HfEngine().open(replace(REQUEST, options={"threads": "1"}))
        assert torch.get_num_threads() == 1
        assert session.facts().settings["threads"] == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("policy", ["PASSIVE", None])
def test_wait_policy_of_threads_is_told_where_it_is_set(monkeypatch, policy):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if policy is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    settings = HfEngine().inspect(REQUEST).settings
    assert settings.get("omp_wait_policy") == (policy and "passive")


def test_counters_are_bytes_of_this_process(tiny):
    assert tiny.counters()["process_resident"] > 10_000_000


def test_closed_session_refuses_to_generate():
    session = HfEngine().open(REQUEST)
    session.close()
    session.close()
    with pytest.raises(EngineError, match="closed"):
        session.generate(PROMPT, Cell(budget=4))


# --- requests that cannot be met ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        ({"model": "gpt-2"}, SpecError, "Did you mean 'gpt2'?"),
        ({"model": "no-such-model-at-all"}, SpecError, "smollm2-135m"),
        ({"model": ""}, SpecError, "distilgpt2"),
        ({"model": "./absent/folder"}, SpecError, "does not exist"),
        ({"model": "/absent/folder/deep"}, SpecError, "does not exist"),
        ({"device": "tpu"}, SpecError, "cuda"),
        ({"device": "cpu0"}, SpecError, "mps"),
        ({"device": "cuda:x"}, SpecError, "cuda:1"),
        ({"device": ""}, SpecError, "auto"),
        ({"device": "cpu:1"}, CapabilityError, "Present: cpu"),
        ({"dtype": "float64"}, SpecError, "bfloat16"),
        ({"dtype": "int8"}, SpecError, "fp16"),
        ({"options": {"thread": 2}}, SpecError, "threads"),
        ({"options": {"threads": 0}}, SpecError, "threads"),
        ({"options": {"threads": "many"}}, SpecError, "threads"),
        ({"options": {"attention": "paged"}}, SpecError, "attention"),
        ({"options": {"cache": "sliding"}}, SpecError, "cache"),
        ({"options": {"loop": "for"}}, SpecError, "loop"),
        ({"model": "bloom-560m", "options": {"attention": "sdpa"}}, CapabilityError, "eager"),
    ],
)
def test_bad_request_names_the_input_and_the_remedy(change, error, named):
    request = replace(REQUEST, **change)
    for method in (HfEngine().inspect, HfEngine().open):
        with pytest.raises(error) as caught:
            method(request)
        assert named in str(caught.value)
        assert caught.value.remedy


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "mps", "xpu"])
def test_absent_device_says_what_is_present(monkeypatch, device):
    monkeypatch.setattr(hf_device, "present_devices", lambda: {"cpu": 1})
    with pytest.raises(CapabilityError, match=f"'{device}' is not present") as caught:
        HfEngine().inspect(replace(REQUEST, device=device))
    assert "Present: cpu." in caught.value.remedy


@pytest.mark.parametrize(
    ("counts", "asked", "resolved"),
    [
        ({"cpu": 1}, "auto", "cpu"),
        ({"mps": 1, "cpu": 1}, "auto", "mps"),
        ({"cuda": 2, "cpu": 1}, "auto", "cuda"),
        ({"cuda": 2, "cpu": 1}, "cuda:0", "cuda"),
        ({"cuda": 2, "cpu": 1}, "cuda:1", "cuda:1"),
        ({"cuda": 2, "cpu": 1}, "cpu", "cpu"),
    ],
)
def test_device_is_resolved_to_one_name(monkeypatch, counts, asked, resolved):
    monkeypatch.setattr(hf_device, "present_devices", lambda: counts)
    assert hf_device.resolve_device(asked) == resolved


def test_number_beyond_the_last_device_lists_all(monkeypatch):
    monkeypatch.setattr(hf_device, "present_devices", lambda: {"cuda": 2, "cpu": 1})
    with pytest.raises(CapabilityError) as caught:
        hf_device.resolve_device("cuda:2")
    assert "cuda:0, cuda:1, cpu" in caught.value.remedy


def test_type_that_the_device_cannot_compute_in_is_refused(monkeypatch):
    def refuse(*args, **keywords):
        raise TypeError("BFloat16 is not supported\nmore")

    monkeypatch.setattr(torch, "ones", refuse)
    with pytest.raises(CapabilityError, match="cannot compute in bfloat16"):
        HfEngine().inspect(replace(REQUEST, dtype="bf16"))


@pytest.mark.parametrize(
    ("library", "named"), [("torch", "PyTorch"), ("transformers", "transformers")]
)
def test_missing_library_names_the_install_line(monkeypatch, library, named):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingDependencyError, match=named) as caught:
        HfEngine().open(REQUEST)
    assert "pip install 'regimescope[hf]'" in caught.value.remedy
