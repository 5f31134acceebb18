"""Models for transformers: their shape without weights, their weights. Layer: ``engines``.

``hf_source`` says what a name means, ``hf_checkpoint`` and ``gguf_file`` check files before they
are read, ``hf_random`` makes weights where there are none.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from regimescope.engines.architectures import Architecture
from regimescope.engines.hf_checkpoint import check_config, check_weights
from regimescope.engines.hf_device import import_torch
from regimescope.engines.hf_random import fill_random, skip_random_fills
from regimescope.engines.hf_source import Source, find_source
from regimescope.errors import CapabilityError, MissingDependencyError, UserError
from regimescope.units import listing

__all__ = [
    "Shape",
    "Source",
    "find_source",
    "import_transformers",
    "load_model",
    "read_shape",
    "shape_of",
]

# What transformers reads GGUF files with.
_GGUF_LIBRARIES = ("accelerate", "gguf")


class Shape(NamedTuple):
    """The measures of a model; ``None`` where its configuration does not tell.

    Attributes:
        vocabulary: Number of token ids.
        positions: Longest context in tokens.
        layers: Transformer layers.
        heads: Heads that ask, per layer.
        kv_heads: Heads that keep keys and values, per layer.
        head_dim: Elements per head.
        parameters: Number of parameters.
        attention: Attention implementation of transformers.
        window: Positions that windowed layers keep.
        windowed_layers: Layers that keep a window of positions only.
        full_layers: Layers that keep every position.
        all_logits: Logits of every position are computed, not those of the last one alone.
    """

    vocabulary: int
    positions: int | None
    layers: int | None
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    parameters: int
    attention: str
    window: int | None = None
    windowed_layers: int = 0
    full_layers: int = 0
    all_logits: bool = False


def read_shape(source: Source, attention: str) -> Shape:
    """Return the measures of a model without its weights.

    A built-in needs no library for this. Of other models the configuration is read, and the
    headers of the weights where they lie in a folder, so that damage is told early.

    Args:
        source: The model.
        attention: ``auto``, or the attention implementation asked for.

    Raises:
        UserError: The configuration cannot be read, the model cannot do this attention, or files
            in the folder are missing or damaged.
    """
    if source.architecture is not None:
        return _built_in_shape(source.architecture, attention)
    model = _on_meta(source, attention)
    _check_files(source, model)
    return shape_of(model)


def shape_of(model: Any) -> Shape:
    """Return the measures of a model that has been built."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_attention_heads", None)
    width = getattr(config, "hidden_size", None)
    head_dim = getattr(config, "head_dim", None)
    if head_dim is None and heads and width:
        head_dim = width // heads
    windows = _windows(model.config)
    return Shape(
        vocabulary=config.vocab_size,
        positions=getattr(config, "max_position_embeddings", None),
        layers=getattr(config, "num_hidden_layers", None),
        heads=heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=head_dim,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        attention=str(config._attn_implementation),
        window=max((window for window in windows if window is not None), default=None),
        windowed_layers=sum(window is not None for window in windows),
        full_layers=sum(window is None for window in windows),
        all_logits="logits_to_keep" not in inspect.signature(model.forward).parameters,
    )


def load_model(
    source: Source,
    *,
    device: str,
    dtype: str,
    attention: str,
    seed: int,
    admit: Callable[[Shape], object] = lambda shape: None,
) -> Any:
    """Return a model on its device, ready for inference.

    Args:
        source: The model.
        device: A resolved device.
        dtype: A resolved element type.
        attention: ``auto``, or the attention implementation asked for.
        seed: Seed of random weights; of no effect on others.
        admit: Called with the measures before any weight is made or read, to refuse them.

    Raises:
        UserError: The weights cannot be read or do not fit the configuration.
    """
    torch, transformers = import_torch(), import_transformers()
    architecture = source.architecture
    if architecture is None:
        without_weights = _on_meta(source, attention)
        _check_files(source, without_weights)
        admit(shape_of(without_weights))
        config = without_weights.config
        return _read_weights(transformers, source, config, dtype, attention).to(device).eval()
    admit(_built_in_shape(architecture, attention))
    config = transformers.AutoConfig.for_model(architecture.family, **architecture.config)
    attention = _attention_of(architecture, attention)
    with torch.device(device), skip_random_fills(torch):
        model = _build(transformers, config, dtype=dtype, attention=attention)
    fill_random(model, seed)
    return model.eval()


def import_transformers() -> Any:
    """Import transformers with its warnings and progress bars off.

    Raises:
        MissingDependencyError: It is not installed or does not go with the other libraries.
    """
    try:
        import transformers
        from transformers.utils import logging
    except ImportError as error:
        raise MissingDependencyError(
            f"transformers cannot be imported: {error}.",
            remedy="Install it: pip install 'regimescope[hf]'",
        ) from error
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return transformers


def _built_in_shape(architecture: Architecture, attention: str) -> Shape:
    """Return the measures of a built-in architecture.

    Raises:
        CapabilityError: It does not have the attention asked for.
    """
    return Shape(
        vocabulary=architecture.vocabulary,
        positions=architecture.positions,
        layers=architecture.layers,
        heads=architecture.heads,
        kv_heads=architecture.kv_heads,
        head_dim=architecture.head_dim,
        parameters=architecture.parameters(),
        attention=_attention_of(architecture, attention),
        window=architecture.window,
        windowed_layers=architecture.windowed_layers,
        full_layers=architecture.layers - architecture.windowed_layers,
    )


def _attention_of(architecture: Architecture, attention: str) -> str:
    """Return the attention implementation to use.

    Raises:
        CapabilityError: The architecture does not have the one asked for.
    """
    if attention == "auto":
        return architecture.attention[0]
    if attention not in architecture.attention:
        raise CapabilityError(
            f"{architecture.name} has no attention {attention!r} in transformers.",
            remedy=f"It has {listing(architecture.attention)}. Use one of them, or auto.",
        )
    return attention


def _windows(config: Any) -> list[int | None]:
    """Return, for each layer that keeps keys and values, its window; ``None`` for all positions.

    Asked of the cache that decoding uses, as the rules differ between releases and families.
    """
    from transformers.cache_utils import DynamicCache, DynamicLayer

    layers = (layer for layer in DynamicCache(config=config).layers)
    kept = [layer for layer in layers if isinstance(layer, DynamicLayer)]
    return [getattr(layer, "sliding_window", None) for layer in kept]


def _on_meta(source: Source, attention: str) -> Any:
    """Return a model without memory: built from its configuration, but no weight is stored.

    Raises:
        UserError: The configuration cannot be read, or the model cannot do this attention.
    """
    torch, transformers = import_torch(), import_transformers()
    if source.gguf is not None:
        _require_gguf_libraries(source)
    elif source.local:
        check_config(Path(source.name))
    keywords = {} if source.gguf is None else {"gguf_file": source.gguf}
    try:
        config = transformers.AutoConfig.from_pretrained(
            source.name,
            local_files_only=source.local,
            trust_remote_code=source.trusted,
            **keywords,
        )
        with torch.device("meta"):
            return _build(transformers, config, trusted=source.trusted, attention=attention)
    except Exception as error:
        raise _unreadable(source, "configuration", error) from error


def _build(transformers: Any, config: Any, *, trusted: bool = False, **settings: Any) -> Any:
    """Return a model built from its configuration, without reading weights."""
    return transformers.AutoModelForCausalLM.from_config(
        config, trust_remote_code=trusted, **_library_settings(settings)
    )


def _check_files(source: Source, model: Any) -> None:
    """Check the weights of a folder against the model they are for.

    Shapes are compared only where the library loads tensors as they are: quantized weights have
    shapes of their own, and those of some families are converted. Whether they fit is found then.

    Raises:
        UserError: Files are missing, damaged, or of other shapes.
    """
    if not source.local or source.gguf is not None:
        return
    config = model.config
    quantized = getattr(config, "quantization_config", None) is not None
    expected = {} if quantized or _is_converted(config.model_type) else model.state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in expected.items()}
    check_weights(Path(source.name), shapes)


def _is_converted(family: str) -> bool:
    """Return whether transformers converts the tensors of a family when it loads them."""
    try:
        from transformers.conversion_mapping import get_checkpoint_conversion_mapping
    except ImportError:  # before transformers 5
        return False
    return get_checkpoint_conversion_mapping(family) is not None


def _read_weights(
    transformers: Any, source: Source, config: Any, dtype: str, attention: str
) -> Any:
    """Return a model with the weights of a folder, GGUF file or hub id.

    Raises:
        UserError: They cannot be read, or tensors are missing, which the library would replace by
            random ones.
    """
    settings = _library_settings({"dtype": dtype, "attention": attention})
    if source.gguf is not None:
        # Reading it takes as long as the weights, so it is not read again.
        settings |= {"config": config, **_gguf_settings(transformers, source.gguf)}
    try:
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            source.name,
            local_files_only=source.local,
            trust_remote_code=source.trusted,
            output_loading_info=True,
            **settings,
        )
    except Exception as error:
        raise _unreadable(source, "weights", error) from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise UserError(
            f"The weights of {source.path} are incomplete: {len(missing)} tensors are missing, "
            f"among them {listing(missing, most=3)}.",
            remedy="Fetch the model again.",
        )
    return model


def _gguf_settings(transformers: Any, file: str) -> dict[str, Any]:
    """Return what makes transformers unpack a GGUF file into ordinary weights.

    Releases that can also compute on packed weights have to be told; the others always unpack.
    """
    packed = getattr(transformers, "GgufConfig", None)
    unpack = {} if packed is None else {"quantization_config": packed(dequantize=True)}
    return {"gguf_file": file, **unpack}


def _require_gguf_libraries(source: Source) -> None:
    """Refuse a GGUF file where the libraries that read it are not installed.

    Raises:
        MissingDependencyError: Naming them.
    """
    absent = [name for name in _GGUF_LIBRARIES if importlib.util.find_spec(name) is None]
    if absent:
        raise MissingDependencyError(
            f"{source.path} is a GGUF file; reading it needs {listing(absent)}.",
            remedy=f"Install it: pip install {' '.join(absent)}",
        )


def _library_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings under the names of transformers; ``auto`` leaves the choice to it."""
    settings = dict(settings)
    attention = settings.pop("attention")
    if attention != "auto":
        settings["attn_implementation"] = attention
    return settings


def _unreadable(source: Source, part: str, error: Exception) -> UserError:
    """Return the error for a model that transformers cannot load, in one line of its own words.

    The library and its readers raise errors of a dozen unrelated types for broken files.
    """
    if "trust_remote_code" in str(error):
        return UserError(
            f"{source.path} brings code of its own, which transformers would have to run.",
            remedy="Read that code; if you trust it, add --trust-remote-code.",
        )
    first_line = next(iter(str(error).strip().splitlines()), "")
    message = f"The {part} of {source.path} cannot be loaded: {type(error).__name__}: {first_line}"
    if source.local:
        return UserError(message, remedy="Check the files, or fetch the model again.")
    return UserError(
        message,
        remedy="Check the hub id and the connection; a model that asks for consent needs a login. "
        "Or fetch the model by other means and name its folder.",
    )
