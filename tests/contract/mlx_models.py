"""Small models for the engine mlx, and what mlx-lm itself makes of them."""

import json

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_map_with_path
from mlx_lm.generate import generate_step
from mlx_lm.models import gpt2, llama, qwen2
from msgspec.structs import replace

from regimescope.engines import mlx_load
from regimescope.engines.base import EngineRequest
from regimescope.engines.mlx import MlxEngine
from regimescope.records import Cell

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
