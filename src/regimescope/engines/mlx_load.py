"""Models for MLX: what a name means, its shape, its weights. Layer: ``engines``."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import json
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from regimescope.engines.architectures import ARCHITECTURES, Architecture
from regimescope.errors import CapabilityError, MissingDependencyError, SpecError, UserError
from regimescope.units import listing

INSTALL = "Install it: pip install 'regimescope[mlx]'"

# The usual standard deviation of initial weights; logits stay finite in float16 with it.
WEIGHT_SPREAD = 0.02
# Random numbers are drawn once and repeated, since drawing costs ten times what copying costs. The
# length is the largest prime below 2**22, so that no two rows of a matrix are equal.
BLOCK_ELEMENTS = 4_194_301
# Families that mlx-lm builds with the module of another one (its utils.MODEL_REMAPPING), as far as
# there are built-in architectures of them.
_MODULE_OF = {"mistral": "llama"}
# A header is some hundred bytes for each tensor; the format itself allows no more than this.
MOST_HEADER_BYTES = 100_000_000


class Source(NamedTuple):
    """Where a model comes from: a built-in architecture, or a folder.

    Attributes:
        name: As the user wrote it.
        config: The content of ``config.json``, or what it would be for a built-in.
        folder: Where the weights are; ``None`` for random ones.
        architecture: The built-in architecture, if it is one.
    """

    name: str
    config: dict[str, Any]
    folder: Path | None
    architecture: Architecture | None


class Shape(NamedTuple):
    """The measures of a model; ``None`` where its configuration does not tell."""

    vocabulary: int
    positions: int | None
    layers: int | None
    kv_heads: int | None
    head_dim: int | None


def import_mlx() -> Any:
    """Import the arrays of MLX.

    Raises:
        MissingDependencyError: MLX is not installed, or has no backend that works here.
    """
    try:
        return importlib.import_module("mlx.core")
    except ImportError as error:
        raise MissingDependencyError(f"mlx cannot be imported: {error}.", remedy=INSTALL) from error


def import_mlx_lm(module: str) -> Any:
    """Import a module of mlx-lm. The first import takes seconds: the package loads transformers.

    Raises:
        MissingDependencyError: It is not installed, or does not go with the other libraries.
    """
    try:
        return importlib.import_module(f"mlx_lm.{module}")
    except ImportError as error:
        raise MissingDependencyError(
            f"mlx_lm.{module} cannot be imported: {error}.", remedy=INSTALL
        ) from error


def find_source(model: str, positions: int | None = None) -> Source:
    """Return what a model name means: a built-in, or a folder that MLX can read.

    Args:
        model: The name.
        positions: Longest context to build random weights for; by default the published one.

    Raises:
        SpecError: It is neither.
        CapabilityError: mlx-lm has no model of this family, the folder asks for code of its own,
            or the positions of the model cannot be moved.
        UserError: The folder is incomplete or damaged.
    """
    architecture = ARCHITECTURES.get(model)
    if architecture is not None:
        _check_family(architecture)
        if positions is not None:
            architecture = architecture.with_positions(positions)
        config = {"model_type": architecture.family, **architecture.config}
        # mlx-lm wants the second name that early GPT-2 files had for the same number.
        if "n_positions" in config:
            config["n_ctx"] = config["n_positions"]
        return Source(model, config, None, architecture)
    path = Path(model).expanduser()
    if not model or not path.is_dir():
        raise _no_model(model, path)
    config = _read_config(path)
    _check_weights(path)
    if positions is not None:
        raise CapabilityError(
            f"The positions of {model} are those its weights were trained with.",
            remedy="Leave out the option positions, or measure a built-in model.",
        )
    return Source(model, config, path, None)


def read_shape(source: Source) -> Shape:
    """Return the measures of a model from its configuration alone.

    Raises:
        UserError: The configuration does not tell the number of token ids.
    """
    config = source.config.get("text_config") or source.config
    vocabulary = config.get("vocab_size")
    if not isinstance(vocabulary, int) or vocabulary < 1:
        raise UserError(
            f"config.json of {source.name} has no vocab_size.", remedy="Fetch the model again."
        )
    heads = config.get("num_attention_heads") or config.get("n_head")
    width = config.get("hidden_size") or config.get("n_embd")
    return Shape(
        vocabulary=vocabulary,
        positions=_positions(source, config),
        layers=config.get("num_hidden_layers") or config.get("n_layer"),
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or (width // heads if width and heads else None),
    )


def load_model(source: Source, dtype: str, seed: int) -> Any:
    """Return a model with its weights in memory.

    Args:
        source: The model.
        dtype: Element type of all weights that are not quantized.
        seed: Seed of random weights; of no effect on others.

    Raises:
        UserError: The weights cannot be read or do not fit the configuration.
    """
    mx = import_mlx()
    if source.folder is None:
        model = build(source)
        fill_random(model, dtype, seed)
    else:
        model = open_folder(source, dtype)
    model.eval()
    mx.eval(model.parameters())
    mx.clear_cache()
    return model


def build(source: Source) -> Any:
    """Return a model of a built-in architecture; its weights are not computed yet."""
    config = source.config
    module = import_mlx_lm(f"models.{_module_of(config['model_type'])}")
    model = module.Model(module.ModelArgs.from_dict(config))
    # Some families learn only from the names of the weights that input and output share a table.
    names = dict(parameters_of(model))
    if config.get("tie_word_embeddings"):
        names.pop("lm_head.weight", None)
    if hasattr(model, "sanitize"):
        model.sanitize(names)
    return model


def parameters_of(model: Any) -> list[tuple[str, Any]]:
    """Return every weight of a model with its name."""
    from mlx.utils import tree_flatten

    found: list[tuple[str, Any]] = tree_flatten(model.parameters())
    return found


def fill_random(model: Any, dtype: str, seed: int) -> None:
    """Give a model random weights: normal matrices, norms of one, biases of zero.

    The same seed gives the same weights on every device, up to rounding to their element type.
    """
    from mlx.utils import tree_unflatten

    mx = import_mlx()
    kind = getattr(mx, dtype)
    drawn = np.random.default_rng(seed).standard_normal(BLOCK_ELEMENTS, dtype=np.float32)
    block = mx.array(drawn)
    filled, at = [], 0
    for name, weight in parameters_of(model):
        if weight.ndim >= 2:
            # Scaled here and not before, because a mere slice would keep the whole block in memory.
            value = (_from_ring(mx, block, at, weight.size) * WEIGHT_SPREAD).astype(kind)
            value = value.reshape(weight.shape)
            at = (at + weight.size) % BLOCK_ELEMENTS
        else:
            value = mx.full(weight.shape, 0.0 if name.endswith("bias") else 1.0, dtype=kind)
        # One by one, so that no more than one weight is in memory twice.
        mx.eval(value)
        filled.append((name, value))
    model.update(tree_unflatten(filled))


def _from_ring(mx: Any, block: Any, at: int, count: int) -> Any:
    """Return ``count`` elements of a block used as a ring, from ``at`` on."""
    pieces, left = [block[at : at + count]], count - min(count, BLOCK_ELEMENTS - at)
    while left > 0:
        pieces.append(block[:left])
        left -= BLOCK_ELEMENTS
    return mx.concatenate(pieces)


def _positions(source: Source, config: dict[str, Any]) -> int | None:
    """Return the longest context, if the model has one."""
    if source.architecture is not None:
        return source.architecture.positions
    found = config.get("max_position_embeddings") or config.get("n_positions")
    return found if isinstance(found, int) else None


def _check_family(architecture: Architecture) -> None:
    """Refuse a built-in that mlx-lm cannot build; found out without importing it.

    Raises:
        CapabilityError: Naming the built-ins that it can build.
    """
    modules = _modules()
    if _module_of(architecture.family) in modules:
        return
    can = [name for name, built in ARCHITECTURES.items() if _module_of(built.family) in modules]
    raise CapabilityError(
        f"mlx-lm has no models of the family {architecture.family!r}, so {architecture.name} "
        "cannot run here.",
        remedy=f"Built-in models that can: {listing(can, most=20)}. Or use the engine hf.",
    )


def _module_of(family: str) -> str:
    """Return the module of mlx-lm that builds a family."""
    return _MODULE_OF.get(family, family)


def _modules() -> frozenset[str]:
    """Return the model modules of the installed mlx-lm.

    Raises:
        MissingDependencyError: mlx-lm is not installed.
    """
    spec = importlib.util.find_spec("mlx_lm")
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError("mlx-lm is not installed.", remedy=INSTALL)
    folder = Path(spec.submodule_search_locations[0]) / "models"
    return frozenset(path.stem for path in folder.glob("*.py"))


def _read_config(folder: Path) -> dict[str, Any]:
    """Return the content of ``config.json``.

    Raises:
        UserError: It is absent or no JSON object.
        CapabilityError: It names code to be run.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{folder} holds no config.json.",
            remedy="Name the folder of a model in MLX or safetensors format.",
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read: {error}.", remedy="Fetch the model again."
        ) from error
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise UserError(f"{path} names no model_type.", remedy="Fetch the model again.")
    if "model_file" in config:
        raise CapabilityError(
            f"{folder} wants its own program {config['model_file']!r} to be run.",
            remedy="Code that comes with a model is never run. Use a model of a family that "
            "mlx-lm knows.",
        )
    return config


def _check_weights(folder: Path) -> None:
    """Compare the weight files with their own tables: MLX reads them late, in a way of its own.

    Raises:
        UserError: There are none, or one is damaged or shorter than its table says.
    """
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise UserError(
            f"{folder} holds no weights named model*.safetensors.",
            remedy="Convert the model: mlx_lm.convert --hf-path MODEL --mlx-path FOLDER",
        )
    for path in files:
        needed = _needed_bytes(path)
        if needed is None or needed > path.stat().st_size:
            raise UserError(f"{path} is damaged or was cut short.", remedy="Fetch the model again.")


def _needed_bytes(path: Path) -> int | None:
    """Return the bytes a safetensors file must have at least; ``None`` if it is none.

    The format: eight bytes of length, a table of that length in JSON, the tensors.
    """
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= MOST_HEADER_BYTES:
            return None
        try:
            table = json.loads(file.read(length))
            ends = [row["data_offsets"][1] for name, row in table.items() if name[:2] != "__"]
            return 8 + int(length) + int(max(ends, default=0))
        except (ValueError, TypeError, LookupError, AttributeError):
            return None


def open_folder(source: Source, dtype: str) -> Any:
    """Return the model of a folder. Its weights are read when they are first asked for.

    Args:
        source: A model with a folder.
        dtype: Element type of all weights that are not quantized.

    Raises:
        UserError: The weights do not fit the configuration.
    """
    utils = import_mlx_lm("utils")
    try:
        model, _ = utils.load_model(source.folder, lazy=True, strict=True)
    except Exception as error:  # the readers raise errors of many unrelated types
        first_line = next(iter(str(error).strip().splitlines()), "")
        raise UserError(
            f"{source.name} cannot be loaded by mlx-lm: {type(error).__name__}: {first_line}",
            remedy="Check the folder, or fetch the model again.",
        ) from error
    model.set_dtype(getattr(import_mlx(), dtype))
    return model


def _no_model(model: str, path: Path) -> SpecError:
    """Return the error for a name that is neither a built-in nor a folder."""
    if model and path.is_file():
        return SpecError(
            f"{model} is a file.",
            remedy="Name the folder that holds config.json and the weights.",
        )
    if "/" in model or "\\" in model or model.startswith((".", "~")):
        return SpecError(
            f"There is no folder {model}.",
            remedy="Name an existing folder; a hub id must be fetched first: hf download ID",
        )
    close = difflib.get_close_matches(model.lower(), ARCHITECTURES, n=1)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    return SpecError(
        f"There is no built-in model {model!r}.",
        remedy=f"{hint}Built-in models: {listing(ARCHITECTURES, most=20)}. Or name a model folder.",
    )
