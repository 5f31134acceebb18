"""The engine mlx against mlx-lm itself, on the CPU."""

import importlib.util
import json
import shutil
import struct
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten, tree_map_with_path
from mlx_lm.generate import generate_step
from mlx_lm.models import cache as mlx_caches
from mlx_lm.models import gpt2, llama, qwen2
from msgspec.structs import replace

from regimescope.engines import mlx_load
from regimescope.engines.architectures import ARCHITECTURES
from regimescope.engines.base import Engine, EngineRequest, Fills, ReadsTokens, Session, Waits
from regimescope.engines.mlx import MlxEngine
from regimescope.engines.registry import get_engine
from regimescope.errors import CapabilityError, EngineError, SpecError, UserError
from regimescope.records import Cell
from regimescope.testing import assert_engine

VOCABULARY = 97
PROMPT = [5, 96, 1, 2, 40, 41, 7]
BUDGET = 24
GPT2 = {"n_embd": 64, "n_head": 2, "n_layer": 2, "n_positions": 64, "n_ctx": 64}
LLAMA = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 2,
    "max_position_embeddings": 64,
}
NORMS = {"layer_norm_epsilon": 1e-5, "rms_norm_eps": 1e-6, "tie_word_embeddings": False}
FAMILIES = {"gpt2": (gpt2, GPT2), "llama": (llama, LLAMA), "qwen2": (qwen2, LLAMA)}
REQUEST = EngineRequest(model="tiny", device="cpu", dtype="float32", seed=3)


def save_family(family, path):
    """Write a small model of a family with weights so large that its output varies."""
    module, shape = FAMILIES[family]
    config = {"model_type": family, "vocab_size": VOCABULARY, **NORMS, **shape}
    model = module.Model(module.ModelArgs.from_dict(config))
    random = np.random.default_rng(11)

    def drawn(name, weight):
        if weight.ndim < 2:
            return mx.full(weight.shape, 0.0 if name.endswith("bias") else 1.0)
        # Positions must outweigh tokens, or a table that input and output share repeats one token.
        return mx.array(random.normal(0.0, 2.0 if "wpe" in name else 0.6, weight.shape))

    model.update(tree_map_with_path(drawn, model.parameters()))
    model.set_dtype(mx.float32)
    path.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(
        str(path / "model.safetensors"), dict(tree_flatten(model.parameters())), {"format": "mlx"}
    )
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {family: save_family(family, tmp_path_factory.mktemp(family)) for family in FAMILIES}


@pytest.fixture(scope="module")
def tiny():
    session = MlxEngine().open(REQUEST)
    yield session
    session.close()


def opened(path, **options):
    return MlxEngine().open(replace(REQUEST, model=str(path), options=options))


def output(session, prompt=PROMPT, **cell):
    """Run one generation to its end and return its tokens, one row per sequence."""
    cell = {"budget": BUDGET, "prompt_tokens": len(prompt)} | cell
    steps = list(session.generate(prompt, Cell(**cell)))
    assert [step.tokens for step in steps] == [1] * cell["budget"]
    return session.output_ids()


def reference(path, cache=None, prompt=PROMPT):
    """Return what mlx-lm itself generates from a folder."""
    model = mlx_load.load_model(mlx_load.find_source(str(path)), "float32", 0)
    cache = cache and [cache() for _ in model.layers]
    steps = generate_step(mx.array(prompt), model, max_tokens=BUDGET, prompt_cache=cache)
    return [int(token) for token, _ in steps]


# --- generation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_every_loop_produces_what_mlx_lm_produces(folders, family):
    expected = reference(folders[family])
    assert len(set(expected)) > 8, "output too monotonous to prove anything"
    session = opened(folders[family])
    assert output(session) == [expected]
    assert output(session, kv_cache="off") == [expected]
    assert output(session, batch=3) == [expected] * 3
    assert output(session, batch=2, kv_cache="off") == [expected] * 2
    assert output(opened(folders[family], loop="mlx_lm")) == [expected]


@pytest.mark.parametrize("settings", [{}, {"prefill_step": 2}, {"clear_cache_every": 0}])
def test_settings_of_the_loop_change_no_token(folders, settings):
    assert output(opened(folders["llama"], **settings)) == [reference(folders["llama"])]


def test_without_stamps_the_first_token_comes_alone_and_the_rest_together(folders):
    session = opened(folders["gpt2"])
    cell = Cell(budget=BUDGET, prompt_tokens=len(PROMPT))
    steps = list(session.generate(PROMPT, cell, stamped=False))
    assert [step.tokens for step in steps] == [1, BUDGET - 1]
    assert session.output_ids() == [reference(folders["gpt2"])]
    single = session.generate(PROMPT, replace(cell, budget=1), stamped=False)
    assert [step.tokens for step in single] == [1]


@pytest.mark.parametrize(
    ("options", "cache"),
    [
        ({"cache": "concatenated"}, mlx_caches.ConcatenateKVCache),
        ({"cache": "rotating", "cache_size": 9}, lambda: mlx_caches.RotatingKVCache(9, keep=4)),
        (
            {"cache": "quantized", "cache_bits": 4, "cache_group": 32},
            lambda: mlx_caches.QuantizedKVCache(group_size=32, bits=4),
        ),
        ({"cache_step": 3}, mlx_caches.KVCache),
    ],
)
def test_each_kind_of_cache_is_that_of_mlx_lm(folders, options, cache):
    assert output(opened(folders["llama"], **options)) == [reference(folders["llama"], cache)]


def test_kinds_of_cache_that_lose_something_change_the_output(folders):
    """Otherwise the test above would prove nothing."""
    full = reference(folders["llama"])
    rotating = opened(folders["llama"], cache="rotating", cache_size=9)
    quantized = opened(folders["llama"], cache="quantized", cache_bits=2, cache_group=32)
    assert output(rotating) != [full]
    assert output(quantized) != [full]


def test_the_cache_grows_by_the_step_that_is_asked_for(folders):
    for options, expected in (({}, 256), ({"cache_step": 5}, 15), ({"cache": "concatenated"}, 13)):
        session = opened(folders["llama"], **options)
        session.fill(13)
        assert session._fill.cache[0].keys.shape == (1, 1, expected, 32)


def test_element_type_is_that_of_weights_and_cache(folders):
    for dtype in ("float16", "bfloat16"):
        session = MlxEngine().open(replace(REQUEST, model=str(folders["llama"]), dtype=dtype))
        assert len(output(session)[0]) == BUDGET
        session.fill(3)
        assert session._fill.cache[0].keys.dtype == getattr(mx, dtype)
        assert session.facts().weight_bytes == 2 * session.facts().settings["stored_elements"]


def test_an_abandoned_generation_leaves_the_session_usable(tiny):
    steps = tiny.generate(PROMPT, Cell(budget=BUDGET, prompt_tokens=len(PROMPT)))
    next(steps)
    steps.close()
    assert len(tiny.output_ids()[0]) == 1
    assert len(output(tiny)[0]) == BUDGET


# --- synthetic depth ------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"cache": "concatenated"}, {"loop": "mlx_lm"}])
def test_a_fill_serves_the_next_generation_and_only_that(folders, options):
    session = opened(folders["llama"], **options)
    plain = output(session)
    session.fill(20)
    filled = output(session, depth=20)
    assert filled != plain
    assert output(session) == plain
    with pytest.raises(EngineError, match="depth 20"):
        session.generate(PROMPT, Cell(budget=2, prompt_tokens=len(PROMPT), depth=20))


def test_the_prompt_is_appended_to_the_fill(folders):
    session = opened(folders["gpt2"])
    session.fill(20, Cell(budget=BUDGET, prompt_tokens=len(PROMPT), batch=2, depth=20))
    cache = session._fill.cache
    held = np.array(cache[1].keys[..., :20, :])
    assert output(session, batch=2, depth=20)[0]
    # All but the last token are read again.
    assert [entry.offset for entry in cache] == [20 + len(PROMPT) + BUDGET - 1] * 2
    assert np.array_equal(np.array(cache[1].keys[..., :20, :]), held)


def test_a_fill_is_taken_away_by_zero(tiny):
    tiny.fill(20)
    tiny.fill(0)
    assert output(tiny)
    with pytest.raises(CapabilityError, match="1,024 positions"):
        tiny.fill(1024)
    with pytest.raises(EngineError, match="0 or more"):
        tiny.fill(-1)


def test_a_fill_that_does_not_fit_the_cell_is_refused(tiny):
    tiny.fill(20)
    with pytest.raises(EngineError, match="batch 2"):
        tiny.generate(PROMPT, Cell(budget=2, prompt_tokens=7, depth=20, batch=2))
    tiny.fill(20)
    with pytest.raises(CapabilityError, match="Without a KV cache"):
        tiny.generate(PROMPT, Cell(budget=2, prompt_tokens=7, depth=20, kv_cache="off"))


# --- limits ---------------------------------------------------------------------------------------


def test_positions_are_used_up_to_the_last_one_and_no_further(folders):
    session = opened(folders["gpt2"])
    longest = 64 - len(PROMPT) + 1
    assert len(output(session, budget=longest)[0]) == longest
    with pytest.raises(CapabilityError, match="need 65 positions"):
        session.generate(PROMPT, Cell(budget=longest + 1, prompt_tokens=len(PROMPT)))
    session.fill(10)
    with pytest.raises(CapabilityError, match="Depth 10"):
        session.generate(PROMPT, Cell(budget=longest - 9, prompt_tokens=len(PROMPT), depth=10))


def test_the_loop_of_the_library_needs_one_position_more(folders):
    session = opened(folders["gpt2"], loop="mlx_lm")
    longest = 64 - len(PROMPT)
    assert len(output(session, budget=longest)[0]) == longest
    with pytest.raises(CapabilityError, match="need 65 positions"):
        session.generate(PROMPT, Cell(budget=longest + 1, prompt_tokens=len(PROMPT)))


@pytest.mark.parametrize(
    ("prompt", "cell", "message"),
    [
        ([], {"budget": 3}, "a prompt and a budget"),
        (PROMPT, {"budget": 0}, "a prompt and a budget"),
        ([1, 512], {"budget": 3}, "0 to 511"),
        ([-1], {"budget": 3}, "0 to 511"),
        (PROMPT, {"budget": 3, "capacity": 64}, "capacity"),
    ],
)
def test_requests_that_cannot_be_served_are_refused(tiny, prompt, cell, message):
    with pytest.raises((EngineError, CapabilityError), match=message):
        tiny.generate(prompt, Cell(**cell))


@pytest.mark.parametrize("cell", [{"kv_cache": "off"}, {"batch": 2}])
def test_the_loop_of_the_library_refuses_what_it_does_not_have(folders, cell):
    session = opened(folders["gpt2"], loop="mlx_lm")
    with pytest.raises(CapabilityError, match="loop to plain"):
        session.generate(PROMPT, Cell(budget=3, prompt_tokens=len(PROMPT), **cell))
    with pytest.raises(CapabilityError, match="loop to plain"):
        session.generate(PROMPT, Cell(budget=3, prompt_tokens=len(PROMPT)), stamped=False)


def test_a_closed_session_says_so(folders):
    session = opened(folders["gpt2"])
    session.close()
    session.close()
    with pytest.raises(EngineError, match="closed"):
        session.generate(PROMPT, Cell(budget=3, prompt_tokens=len(PROMPT)))
    with pytest.raises(EngineError, match="closed"):
        session.fill(3)


# --- models ---------------------------------------------------------------------------------------


def test_built_in_models_have_random_weights_of_the_seed():
    def weights(seed):
        model = mlx_load.load_model(mlx_load.find_source("tiny"), "float32", seed)
        return {name: np.array(value) for name, value in mlx_load.parameters_of(model)}

    first, again, other = weights(3), weights(3), weights(4)
    for name, value in first.items():
        assert np.array_equal(value, again[name])
        if value.ndim < 2:
            assert np.all(value == (0.0 if name.endswith("bias") else 1.0))
            continue
        assert not np.array_equal(value, other[name])
        assert abs(value.std() - mlx_load.WEIGHT_SPREAD) < 0.002
    rows = [row.tobytes() for value in first.values() if value.ndim == 2 for row in value]
    assert len(set(rows)) == len(rows)


def test_weights_longer_than_the_block_go_on_from_its_beginning(monkeypatch):
    monkeypatch.setattr(mlx_load, "BLOCK_ELEMENTS", 1009)
    model = mlx_load.load_model(mlx_load.find_source("tiny"), "float32", 3)
    flat = np.array(model.model.wte.weight).ravel()
    assert np.array_equal(flat[1009:2018], flat[:1009])
    # The next matrix goes on where this one ended.
    following = np.array(model.model.wpe.weight).ravel()
    assert np.array_equal(following[:9], flat[flat.size % 1009 :][:9])


def test_a_loaded_model_takes_the_memory_of_its_weights_only():
    session = MlxEngine().open(replace(REQUEST, dtype="float16"))
    expected = 2 * ARCHITECTURES["tiny"].parameters()
    assert session.facts().weight_bytes == expected
    stored = [weight.nbytes for _, weight in mlx_load.parameters_of(session._decoder._model)]
    assert sum(stored) == expected
    assert MlxEngine().inspect(replace(REQUEST, dtype="float16")).weight_bytes == expected
    session.close()


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_built_in_models_have_the_stated_shape_or_are_refused(name):
    """Built, but no weight is computed: MLX is lazy."""
    architecture = ARCHITECTURES[name]
    if architecture.family in ("bloom", "opt"):
        with pytest.raises(CapabilityError, match=r"no models of the family.*(\n.*)*gpt2"):
            MlxEngine().inspect(replace(REQUEST, model=name))
        return
    source = mlx_load.find_source(name)
    model = mlx_load.build(source)
    count = sum(weight.size for _, weight in mlx_load.parameters_of(model))
    assert count == architecture.parameters()
    facts = MlxEngine().inspect(replace(REQUEST, model=name))
    assert facts.vocabulary == architecture.vocabulary
    assert facts.positions == architecture.positions
    assert (facts.layers, facts.kv_heads) == (architecture.layers, architecture.kv_heads)
    assert facts.head_dim == architecture.head_dim


def test_positions_of_a_built_in_can_be_moved(folders):
    session = MlxEngine().open(replace(REQUEST, options={"positions": 40}))
    assert session.facts().positions == 40
    assert len(output(session, budget=34)[0]) == 34
    with pytest.raises(CapabilityError, match="need 41 positions"):
        session.generate(PROMPT, Cell(budget=35, prompt_tokens=len(PROMPT)))
    with pytest.raises(CapabilityError, match="trained"):
        MlxEngine().inspect(replace(REQUEST, model=str(folders["gpt2"]), options={"positions": 40}))


def test_facts_of_a_folder_come_from_its_configuration(folders):
    facts = MlxEngine().inspect(replace(REQUEST, model=str(folders["llama"])))
    assert (facts.weights, facts.vocabulary, facts.positions) == ("file", VOCABULARY, 64)
    assert (facts.layers, facts.kv_heads, facts.head_dim) == (2, 1, 32)
    session = opened(folders["llama"])
    assert session.facts().weight_bytes == facts.weight_bytes > 4 * 2 * VOCABULARY * 64


def test_quantized_folders_are_read(folders, tmp_path):
    from mlx_lm.utils import load_model, quantize_model, save_config

    model, config = load_model(folders["llama"])
    model, config = quantize_model(model, config, group_size=32, bits=4)
    mx.save_safetensors(
        str(tmp_path / "model.safetensors"),
        dict(tree_flatten(model.parameters())),
        {"format": "mlx"},
    )
    save_config(config, tmp_path / "config.json")
    session = opened(tmp_path)
    assert len(output(session)[0]) == BUDGET
    assert session.facts().weight_bytes < opened(folders["llama"]).facts().weight_bytes / 2


def damage(folder, kind):
    """Damage a model folder in one way."""
    config, weights = folder / "config.json", folder / "model.safetensors"
    table = json.loads(config.read_text())
    raw = weights.read_bytes()
    change = {
        "no config": config.unlink,
        "no JSON": lambda: config.write_text("{"),
        "a list": lambda: config.write_text("[]"),
        "no family": lambda: config.write_text("{}"),
        "unknown family": lambda: config.write_text(json.dumps(table | {"model_type": "nosuch"})),
        "no vocabulary": lambda: config.write_text(json.dumps({"model_type": "llama"})),
        "other shape": lambda: config.write_text(json.dumps(table | {"hidden_size": 32})),
        "own code": lambda: config.write_text(json.dumps(table | {"model_file": "own.py"})),
        "no weights": weights.unlink,
        "cut": lambda: weights.write_bytes(raw[:-1]),
        "cut in the table": lambda: weights.write_bytes(raw[:40]),
        "empty": lambda: weights.write_bytes(b""),
        "other bytes": lambda: weights.write_bytes(struct.pack("<Q", 1 << 60) + raw),
        "no table": lambda: weights.write_bytes(struct.pack("<Q", 2) + b"[]" + raw),
    }[kind]
    change()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("no config", "holds no config.json"),
        ("no JSON", "cannot be read"),
        ("a list", "names no model_type"),
        ("no family", "names no model_type"),
        ("unknown family", "cannot be loaded by mlx-lm"),
        ("no vocabulary", "no vocab_size"),
        ("other shape", "cannot be loaded by mlx-lm"),
        ("own code", "own.py"),
        ("no weights", "no weights named"),
        ("cut", "cut short"),
        ("cut in the table", "cut short"),
        ("empty", "cut short"),
        ("other bytes", "cut short"),
        ("no table", "cut short"),
    ],
)
def test_damaged_folders_are_refused(folders, tmp_path, kind, message):
    shutil.copytree(folders["llama"], tmp_path, dirs_exist_ok=True)
    damage(tmp_path, kind)
    with pytest.raises(UserError, match=message) as caught:
        opened(tmp_path)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("gtp2", "Did you mean 'gpt2'"),
        ("", "no built-in model"),
        ("./nosuch", "There is no folder"),
        ("org/model", "hf download"),
        (__file__, "is a file"),
    ],
)
def test_names_that_mean_no_model_are_refused(model, message):
    with pytest.raises(SpecError, match=message):
        MlxEngine().inspect(replace(REQUEST, model=model))


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": "cuda"}, "no device 'cuda'"),
        ({"dtype": "int8"}, "Element type 'int8'"),
        ({"options": {"threads": 3}}, "Known options: cache"),
        ({"options": {"cache": "static"}}, "Options of the engine mlx"),
        ({"options": {"cache_step": 0}}, "Options of the engine mlx"),
        ({"options": {"cache": "rotating"}}, "cache_size"),
        ({"options": {"cache": "rotating", "cache_size": 4}}, "Options of the engine mlx"),
        ({"options": {"cache_size": 40}}, "set cache to rotating"),
        ({"options": {"cache_bits": 4}}, "set cache to quantized"),
        ({"options": {"cache": "rotating", "cache_size": 40, "cache_step": 4}}, "cache_step"),
        ({"options": {"cache": "quantized"}}, "groups of 64"),
    ],
)
def test_requests_that_make_no_sense_are_refused(change, message):
    with pytest.raises(UserError, match=message) as caught:
        MlxEngine().inspect(replace(REQUEST, **change))
    assert caught.value.remedy


def test_short_names_of_element_types_are_known():
    assert MlxEngine().inspect(replace(REQUEST, dtype="bf16")).dtype == "bfloat16"


def test_options_may_come_as_text():
    request = replace(REQUEST, options={"cache_step": "64"})
    assert MlxEngine().inspect(request).settings["cache_step"] == 64


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(mx, "is_available", lambda device: device == mx.cpu)
    with pytest.raises(CapabilityError, match="no gpu here"):
        MlxEngine().inspect(replace(REQUEST, device="gpu"))
    assert MlxEngine().inspect(replace(REQUEST, device="auto")).device == "cpu"


def test_protocols_and_registry(tiny):
    engine: Engine = get_engine("mlx")
    session: Session = tiny
    assert isinstance(engine, MlxEngine)
    assert isinstance(session, Waits)
    assert isinstance(session, Fills)
    assert isinstance(session, ReadsTokens)
    tiny.wait()
    before = tiny.counters()["device_active"]
    kept = mx.zeros((1000, 1000))
    mx.eval(kept)
    assert tiny.counters()["device_active"] - before >= 4_000_000
    assert tiny.facts().versions.keys() == {"mlx", "mlx-lm"}


def test_the_engine_keeps_the_contract(folders):
    """What does not apply: nothing more is told of a generation; a loaded library stays loaded."""
    results = assert_engine(MlxEngine(), replace(REQUEST, model=str(folders["llama"])))
    skipped = {result.name for result in results if not result.applicable}
    assert skipped == {"inspect-loads-nothing", "last-generation"}


def test_nothing_heavy_is_imported_by_the_module():
    root = Path(importlib.util.find_spec("regimescope.engines.mlx").origin).parent
    for path in root.glob("mlx*.py"):
        lines = path.read_text().splitlines()
        assert not [line for line in lines if line.startswith(("import mlx", "from mlx"))]
