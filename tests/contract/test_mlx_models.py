"""Models of the engine mlx: built in, from a folder, damaged."""

import json
import shutil
import struct

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten
from msgspec.structs import replace
from tests.contract.mlx_models import (
    BUDGET,
    FAMILIES,
    PROMPT,
    REQUEST,
    VOCABULARY,
    opened,
    output,
    save_family,
)

from regimescope.engines import mlx_load
from regimescope.engines.architectures import ARCHITECTURES
from regimescope.engines.mlx import MlxEngine
from regimescope.errors import CapabilityError, SpecError, UserError
from regimescope.records import Cell


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {family: save_family(family, tmp_path_factory.mktemp(family)) for family in FAMILIES}


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
