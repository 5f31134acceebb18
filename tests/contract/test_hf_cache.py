"""KV caches of the transformers engine, and depths that were never decoded, on the CPU."""

import sys

import pytest
import torch
import transformers
from msgspec.structs import replace
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from regimescope.engines import hf_cache, hf_load
from regimescope.engines.base import EngineRequest, Fills
from regimescope.engines.hf import HfEngine
from regimescope.errors import CapabilityError, EngineError, MissingDependencyError, SpecError
from regimescope.records import Cell

PROMPT = [5, 96, 1, 2, 40, 41, 7]
BUDGET = 12
REQUEST = EngineRequest(model="tiny", device="cpu", dtype="float32", seed=3)
SMALL = {"vocab_size": 97, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 3}
LLAMA = SMALL | {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": 32768,
}
FAMILIES = {
    "gpt2": SMALL | {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 128},
    "bloom": SMALL | {"hidden_size": 32, "n_head": 4, "n_layer": 2, "tie_word_embeddings": False},
    "opt": SMALL
    | {
        "tie_word_embeddings": False,
        "hidden_size": 32,
        "word_embed_proj_dim": 32,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "ffn_dim": 64,
        "max_position_embeddings": 128,
    },
    "llama": LLAMA,
}
# With these weights the output of each family varies; with most others some repeat one token.
SEEDS = {"gpt2": 11, "bloom": 13, "opt": 16, "llama": 11}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    hf_load.import_transformers()
    paths = {family: tmp_path_factory.mktemp(family) for family in FAMILIES}
    for family, path in paths.items():
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **FAMILIES[family]))
        generator = torch.Generator().manual_seed(SEEDS[family])
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim >= 2:
                    parameter.normal_(0.0, 0.6, generator=generator)
        model.save_pretrained(path)
    return paths


def opened(model="tiny", **options):
    return HfEngine().open(replace(REQUEST, model=str(model), options=options))


def output(session, prompt=PROMPT, **cell):
    cell = {"budget": BUDGET, "prompt_tokens": len(prompt)} | cell
    steps = list(session.generate(prompt, Cell(**cell)))
    assert [step.tokens for step in steps] == [1] * cell["budget"]
    return session.output_ids()


def cache_of(session):
    """Return the cache that was put in place."""
    return session._filled[1]


def continued(path, cache, prompt=PROMPT, budget=BUDGET):
    """Return what the plain model says after a cache, in the plainest loop."""
    model = AutoModelForCausalLM.from_pretrained(path).eval()
    tokens, out = torch.tensor([prompt]), []
    keyword = hf_cache.CacheMaker(model, "dynamic").keyword
    with torch.inference_mode():
        for _ in range(budget):
            logits = model(tokens, **{keyword: cache}, use_cache=True).logits
            tokens = logits[:, -1].argmax(-1, keepdim=True)
            out.append(tokens.item())
    return out


# --- kinds ----------------------------------------------------------------------------------------


def static_families(loop):
    """Families that a static cache can be given in a loop of this transformers."""
    old = int(transformers.__version__.split(".")[0]) < 5
    return [f for f in FAMILIES if not (old and f == "bloom" and loop == "steps")]


STATIC_WAYS = [(f, loop) for loop in ("steps", "generate") for f in static_families(loop)]


@pytest.mark.parametrize(("family", "loop"), STATIC_WAYS)
def test_static_cache_gives_the_tokens_of_a_growing_one(folders, family, loop):
    expected = output(opened(folders[family]))
    assert len(set(expected[0])) > 4, "output too monotonous to prove anything"
    session = opened(folders[family], cache="static", loop=loop)
    assert output(session) == expected
    assert output(session, capacity=100) == expected
    assert output(session) == expected
    assert output(session, batch=2) == expected * 2


def test_capacity_is_what_a_static_cache_allocates():
    session = opened(cache="static")
    for capacity in (200, 64):
        output(session, capacity=capacity)
        length, cache = session._caches._kept[1:]
        assert length == capacity
        assert {layer.keys.shape[-2] for layer in cache.layers} == {capacity}
    output(session)
    assert session._caches._kept[1] == len(PROMPT) + BUDGET - 1


def test_static_cache_of_the_same_length_keeps_its_addresses():
    session = opened(cache="static")
    addresses = []
    for _ in range(2):
        output(session, capacity=64)
        addresses.append([layer.keys.data_ptr() for layer in session._caches._kept[2].layers])
    assert addresses[0] == addresses[1]
    session.close()
    assert session._caches._kept is None


def test_an_old_transformers_gives_bloom_no_static_cache_in_this_loop(monkeypatch):
    monkeypatch.setattr(hf_cache, "version", lambda _: "4.57.6")
    with pytest.raises(CapabilityError, match="BLOOM") as caught:
        hf_cache.check_loop("bloom", "static", uses_generate=False)
    assert "loop=generate" in caught.value.remedy
    hf_cache.check_loop("bloom", "static", uses_generate=True)
    hf_cache.check_loop("bloom", "dynamic", uses_generate=False)
    hf_cache.check_loop("gpt2", "static", uses_generate=False)


def test_quantized_cache_is_kept_in_fewer_bits_and_decodes():
    session = opened(cache="quantized", quantizer="fp8")
    assert session.facts().settings["quantizer"] == "fp8"
    assert len(output(session)[0]) == BUDGET
    session.fill(16, Cell(budget=BUDGET, prompt_tokens=len(PROMPT)))
    kept, _ = cache_of(session).layers[0]._quantized_keys
    assert kept.element_size() == 1
    assert kept.shape[-2] == 16
    assert len(output(session, depth=16)[0]) == BUDGET


@pytest.mark.parametrize(
    ("quantizer", "package"), [("quanto", "optimum-quanto"), ("hqq", "pip install hqq")]
)
def test_missing_quantizer_names_what_to_install(monkeypatch, quantizer, package):
    monkeypatch.setattr(hf_cache, "find_spec", lambda name: None)
    for method in (HfEngine().inspect, HfEngine().open):
        with pytest.raises(MissingDependencyError, match=quantizer) as caught:
            method(replace(REQUEST, options={"cache": "quantized", "quantizer": quantizer}))
        assert package in caught.value.remedy


def test_transformers_without_any_quantizer_says_so(monkeypatch):
    monkeypatch.setattr(hf_cache, "_has_quantizer", lambda name: False)
    with pytest.raises(MissingDependencyError, match="another library") as caught:
        HfEngine().inspect(replace(REQUEST, options={"cache": "quantized"}))
    assert "optimum-quanto" in caught.value.remedy
    with pytest.raises(MissingDependencyError) as caught:
        hf_cache.resolve_quantizer("fp8")
    assert "transformers>=5.24" in caught.value.remedy


def test_quantizer_of_a_package_without_parent_is_absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "optimum", None)
    monkeypatch.delitem(sys.modules, "optimum.quanto", raising=False)
    assert not hf_cache._has_quantizer("quanto")


def test_offloaded_cache_needs_a_device_to_offload_from():
    for method in (HfEngine().inspect, HfEngine().open):
        with pytest.raises(CapabilityError, match="CUDA") as caught:
            method(replace(REQUEST, options={"cache": "offloaded"}))
        assert "dynamic" in caught.value.remedy


@pytest.mark.parametrize(
    ("options", "cell", "named"),
    [
        ({}, {"capacity": 64}, "cache=static"),
        ({"cache": "quantized"}, {"capacity": 64}, "cache=static"),
        ({"cache": "static"}, {"capacity": len(PROMPT) + BUDGET - 2}, "larger capacity"),
        ({"cache": "static"}, {"kv_cache": "off"}, "switch the KV cache on"),
        ({}, {"kv_cache": "off", "capacity": 64}, "switch the KV cache on"),
    ],
)
def test_kind_of_cache_that_does_not_go_with_a_cell_is_refused(options, cell, named):
    session = opened(**options)
    with pytest.raises(CapabilityError) as caught:
        session.generate(PROMPT, Cell(budget=BUDGET, **cell))
    assert named in caught.value.remedy


def test_capacity_that_just_suffices_does():
    assert output(opened(cache="static"), capacity=len(PROMPT) + BUDGET - 1)


# --- depth ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "kind", "loop"),
    [(f, "dynamic", loop) for loop in ("steps", "generate") for f in FAMILIES]
    + [(f, "static", loop) for f, loop in STATIC_WAYS],
)
def test_generation_goes_on_behind_the_filled_positions(folders, family, kind, loop):
    """As the plain model does that is given the same keys and values."""
    session = opened(folders[family], cache=kind, loop=loop)
    cell = Cell(budget=BUDGET, prompt_tokens=len(PROMPT), depth=30)
    session.fill(30, cell)
    decoded = DynamicCache()
    with torch.inference_mode():
        for index, layer in enumerate(cache_of(session).layers):
            decoded.update(layer.keys[:, :, :30].clone(), layer.values[:, :, :30].clone(), index)
    expected = continued(folders[family], decoded)
    assert output(session, depth=30) == [expected]
    assert expected != output(session)[0], "the depth made no difference"


@pytest.mark.parametrize("loop", ["steps", "generate"])
def test_really_decoded_positions_give_the_same_continuation(folders, loop):
    """A decoded cache in the place of a synthetic one goes on as one generation."""
    whole = output(opened(folders["llama"]), budget=20)[0]
    session = opened(folders["llama"], loop=loop)
    model, ids = session._loop._model, torch.tensor([PROMPT + whole[:7]])
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        model(ids, **{session._caches.keyword: cache}, use_cache=True)
    session.fill(ids.shape[1], Cell(budget=12, prompt_tokens=1, depth=ids.shape[1]))
    session._filled = (session._filled[0], cache)
    assert output(session, whole[7:8], budget=12, depth=ids.shape[1])[0] == whole[8:20]


def test_filled_cache_has_the_layout_of_a_decoded_one(folders):
    session = opened(folders["llama"])
    session.fill(24)
    synthetic = cache_of(session)
    model = session._loop._model
    decoded = DynamicCache(config=model.config)
    with torch.inference_mode():
        for _ in range(24):
            token = torch.tensor([[5]])
            model(token, **{session._caches.keyword: decoded}, use_cache=True)
    for ours, theirs in zip(synthetic.layers, decoded.layers, strict=True):
        for name in ("keys", "values"):
            mine, real = getattr(ours, name), getattr(theirs, name)
            assert mine.shape == real.shape
            assert mine.stride() == real.stride()
            assert mine.dtype == real.dtype
            assert bool(torch.isfinite(mine).all())
            assert float(mine.std()) > 0


def test_layers_do_not_share_memory(folders):
    session = opened(folders["llama"])
    session.fill(24)
    tensors = [t for layer in cache_of(session).layers for t in (layer.keys, layer.values)]
    assert len({tensor.data_ptr() for tensor in tensors}) == len(tensors)


def test_depth_of_sixteen_thousand_positions_needs_no_decoding(folders):
    session = opened(folders["llama"])
    cell = Cell(budget=2, prompt_tokens=1, depth=16384)
    session.fill(16384, cell)
    assert cache_of(session).get_seq_length() == 16384
    assert len(list(session.generate([1], cell))) == 2


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_batch_is_filled_as_a_batch(folders, kind):
    session = opened(folders["llama"], cache=kind)
    cell = Cell(budget=BUDGET, prompt_tokens=len(PROMPT), depth=8, batch=3)
    session.fill(8, cell)
    assert {layer.keys.shape[0] for layer in cache_of(session).layers} == {3}
    assert len(output(session, depth=8, batch=3)) == 3


def test_fill_without_a_cell_serves_any_generation(folders):
    session = opened(folders["llama"], cache="static")
    session.fill(8)
    single = output(session)
    session.fill(8)
    assert len(output(session, batch=2, capacity=64)) == 2
    session.fill(8, Cell(budget=BUDGET, prompt_tokens=len(PROMPT), depth=8))
    assert output(session, depth=8) == single


def test_fill_is_used_up_by_one_generation_and_taken_away_by_zero(folders):
    session = opened(folders["llama"])
    plain = output(session)
    session.fill(8)
    assert output(session) != plain
    assert output(session) == plain
    session.fill(8)
    session.fill(0)
    assert output(session, depth=0) == plain


def test_depth_that_nobody_filled_in_is_an_error(folders):
    session = opened(folders["llama"])
    with pytest.raises(EngineError, match="0 positions are filled"):
        session.generate(PROMPT, Cell(budget=4, depth=8))
    session.fill(6)
    with pytest.raises(EngineError, match="6 positions are filled"):
        session.generate(PROMPT, Cell(budget=4, depth=8))


@pytest.mark.parametrize(
    ("depth", "cell", "error"),
    [
        (1025, None, CapabilityError),
        (1000, Cell(budget=20, prompt_tokens=7, depth=1000), CapabilityError),
        (8, Cell(budget=4, prompt_tokens=7, depth=8, kv_cache="off"), CapabilityError),
        (8, Cell(budget=4, prompt_tokens=7, depth=8, capacity=64), CapabilityError),
        (-1, None, EngineError),
    ],
)
def test_impossible_fill_is_refused(depth, cell, error):
    session = opened()
    with pytest.raises(error):
        session.fill(depth, cell)
    assert len(output(session)[0]) == BUDGET


def test_depth_prompt_and_budget_share_the_positions():
    session = opened()
    last = 1024 - 500 - len(PROMPT) + 1
    session.fill(500)
    with pytest.raises(CapabilityError, match="Depth 500, prompt 7 and budget"):
        session.generate(PROMPT, Cell(budget=last + 1))
    session.fill(500)
    assert len(output(session, budget=last)[0]) == last


def test_depth_does_not_fit_into_a_smaller_capacity():
    session = opened(cache="static")
    with pytest.raises(CapabilityError, match="the capacity is 32"):
        session.fill(30, Cell(budget=4, prompt_tokens=7, depth=30, capacity=32))


def test_want_of_memory_for_a_fill_is_an_engine_error(monkeypatch):
    session = opened()

    def run_out(*args, **keywords):
        raise torch.OutOfMemoryError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "normal_", run_out)
        with pytest.raises(EngineError, match="no memory for a KV cache of 8 positions"):
            session.fill(8)
    assert len(output(session)[0]) == BUDGET


def test_model_that_keeps_states_instead_of_positions_cannot_be_filled(folders, monkeypatch):
    session = opened(folders["llama"])
    monkeypatch.setattr(hf_cache, "_layer_shape", lambda layer: None)
    with pytest.raises(CapabilityError, match="no keys and values"):
        session.fill(8)

    class State:
        pass

    monkeypatch.undo()
    with pytest.raises(CapabilityError, match="State, which has no positions"):
        hf_cache._layer_shape(State())


def test_closed_session_refuses_to_fill():
    session = opened()
    session.close()
    with pytest.raises(EngineError, match="closed"):
        session.fill(8)


# --- what is told ---------------------------------------------------------------------------------


def test_engine_tells_what_it_offers():
    offered = HfEngine().capabilities()
    assert offered.cache_kinds == ("dynamic", "static", "quantized", "offloaded")
    assert offered.synthetic_depth
    assert offered.capacity
    assert isinstance(opened(), Fills)


@pytest.mark.parametrize(
    "options",
    [{"cache": "static"}, {"cache": "quantized"}, {"loop": "generate"}, {"attention": "math"}],
)
def test_inspect_tells_of_every_way_what_open_finds(options):
    request = replace(REQUEST, options=options)
    facts = HfEngine().inspect(request)
    assert facts == HfEngine().open(request).facts()
    told = facts.settings | {"attention": facts.settings.get("attention_kernel")}
    assert all(told[name] == value for name, value in options.items())


def test_unknown_kind_lists_the_known_options():
    with pytest.raises(SpecError, match="cache"):
        HfEngine().inspect(replace(REQUEST, options={"cache": "paged"}))
