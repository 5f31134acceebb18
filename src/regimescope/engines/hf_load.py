"""Models for transformers: what a name means, its shape, its weights. Layer: ``engines``."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any, NamedTuple

from regimescope.engines.architectures import ARCHITECTURES, Architecture
from regimescope.engines.hf_device import import_torch
from regimescope.errors import CapabilityError, MissingDependencyError, SpecError, UserError
from regimescope.units import listing

# The usual standard deviation of initial weights. With it the logits of every built-in stay finite
# in float16, so that the arithmetic is as fast as with trained weights.
WEIGHT_SPREAD = 0.02
# Random numbers are drawn once and repeated: drawing 1.2e9 of them takes 14 s on one core, copying
# 2 s. The length is the largest prime below 2**22, so that no two rows of a matrix are equal.
BLOCK_ELEMENTS = 4_194_301

# What constructors of torch and of transformers fill weights with.
_RANDOM_FILLS = frozenset({"normal_", "uniform_", "kaiming_uniform_"})

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class Source(NamedTuple):
    """Where a model comes from.

    Attributes:
        name: What transformers loads: the path or the hub id; the name of a built-in.
        architecture: The built-in architecture, if it is one.
        local: Nothing may be downloaded.
    """

    name: str
    architecture: Architecture | None
    local: bool


class Shape(NamedTuple):
    """The measures of a model; ``None`` where its configuration does not tell."""

    vocabulary: int
    positions: int | None
    layers: int | None
    kv_heads: int | None
    head_dim: int | None
    parameters: int
    attention: str


def find_source(model: str) -> Source:
    """Return what a model name means: a built-in, else a folder that exists, else a hub id.

    Raises:
        SpecError: It is none of these.
    """
    if model in ARCHITECTURES:
        return Source(model, ARCHITECTURES[model], local=True)
    path = Path(model).expanduser()
    if model and path.is_dir():
        return Source(str(path), None, local=True)
    if path.is_file():
        raise SpecError(
            f"{model} is a file.",
            remedy="Name the folder that holds config.json and the weights.",
        )
    if _HUB_ID.fullmatch(model):
        return Source(model, None, local=False)
    if "/" in model or "\\" in model or model.startswith((".", "~")):
        raise SpecError(f"{model} does not exist.", remedy="Name an existing model folder.")
    close = difflib.get_close_matches(model.lower(), ARCHITECTURES, n=1)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    raise SpecError(
        f"There is no built-in model {model!r}.",
        remedy=f"{hint}Built-in models: {listing(ARCHITECTURES, most=20)}. "
        "Or name a model folder, or a hub id such as HuggingFaceTB/SmolLM2-135M.",
    )


def read_shape(source: Source, attention: str) -> Shape:
    """Return the measures of a model without its weights.

    A built-in needs no library for this; of other models the configuration is read.

    Args:
        source: The model.
        attention: ``auto``, or the attention implementation asked for.

    Raises:
        UserError: The configuration cannot be read, or the model cannot do this attention.
    """
    architecture = source.architecture
    if architecture is not None:
        return Shape(
            architecture.vocabulary,
            architecture.positions,
            architecture.layers,
            architecture.kv_heads,
            architecture.head_dim,
            architecture.parameters(),
            _attention_of(architecture, attention),
        )
    torch, transformers = import_torch(), import_transformers()
    try:
        config = transformers.AutoConfig.from_pretrained(
            source.name, local_files_only=source.local, trust_remote_code=False
        )
        # A device without memory: the model is built, but no weight is stored.
        with torch.device("meta"):
            model = _build(transformers, config, attention=attention)
    except Exception as error:
        raise _unreadable(source, "configuration", error) from error
    return shape_of(model)


def shape_of(model: Any) -> Shape:
    """Return the measures of a model that has been built."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_attention_heads", None)
    width = getattr(config, "hidden_size", None)
    head_dim = getattr(config, "head_dim", None)
    if head_dim is None and heads and width:
        head_dim = width // heads
    return Shape(
        vocabulary=config.vocab_size,
        positions=getattr(config, "max_position_embeddings", None),
        layers=getattr(config, "num_hidden_layers", None),
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=head_dim,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        attention=str(config._attn_implementation),
    )


def load_model(source: Source, *, device: str, dtype: str, attention: str, seed: int) -> Any:
    """Return a model on its device, ready for inference.

    Args:
        source: The model.
        device: A resolved device.
        dtype: A resolved element type.
        attention: ``auto``, or the attention implementation asked for.
        seed: Seed of random weights; of no effect on others.

    Raises:
        UserError: The weights cannot be read or do not fit the configuration.
    """
    torch, transformers = import_torch(), import_transformers()
    architecture = source.architecture
    if architecture is None:
        return _read_weights(transformers, source, dtype, attention).to(device).eval()
    config = transformers.AutoConfig.for_model(architecture.family, **architecture.config)
    attention = _attention_of(architecture, attention)
    with torch.device(device), _skip_random_fills(torch):
        model = _build(transformers, config, dtype=dtype, attention=attention)
    fill_random(model, seed)
    return model.eval()


def fill_random(model: Any, seed: int) -> None:
    """Give a model random weights: normal matrices, norms of one, biases of zero.

    The same seed gives the same weights on every device, up to rounding to its element type.
    """
    torch = import_torch()
    block = torch.empty(BLOCK_ELEMENTS).normal_(
        0.0, WEIGHT_SPREAD, generator=torch.Generator().manual_seed(seed)
    )
    first = next(model.parameters())
    block = block.to(device=first.device, dtype=first.dtype)
    at = 0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim < 2:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
                continue
            at = _copy_block(parameter.view(-1), block, at)


def _copy_block(target: Any, block: Any, at: int) -> int:
    """Fill a flat tensor from a block used as a ring, from ``at`` on; return where it ended."""
    done = 0
    while done < target.numel():
        count = min(target.numel() - done, block.numel() - at)
        target[done : done + count].copy_(block[at : at + count])
        done += count
        at = (at + count) % block.numel()
    return at


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


def _build(transformers: Any, config: Any, **settings: Any) -> Any:
    """Return a model built from its configuration, without reading weights."""
    return transformers.AutoModelForCausalLM.from_config(
        config, trust_remote_code=False, **_library_settings(settings)
    )


def _read_weights(transformers: Any, source: Source, dtype: str, attention: str) -> Any:
    """Return a model with the weights of a folder or hub id.

    Raises:
        UserError: They cannot be read, or tensors are missing, which the library would replace by
            random ones.
    """
    settings = _library_settings({"dtype": dtype, "attention": attention})
    try:
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            source.name,
            local_files_only=source.local,
            trust_remote_code=False,
            output_loading_info=True,
            **settings,
        )
    except Exception as error:
        raise _unreadable(source, "weights", error) from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise UserError(
            f"The weights of {source.name} are incomplete: {len(missing)} tensors are missing, "
            f"among them {listing(missing, most=3)}.",
            remedy="Fetch the model again.",
        )
    return model


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
    first_line = next(iter(str(error).strip().splitlines()), "")
    message = f"The {part} of {source.name} cannot be loaded: {type(error).__name__}: {first_line}"
    if source.local:
        return UserError(message, remedy="Check the folder, or fetch the model again.")
    return UserError(
        message,
        remedy="Check the hub id and the connection; a model that asks for consent needs a login. "
        "Or fetch the model by other means and name its folder.",
    )


def _skip_random_fills(torch: Any) -> Any:
    """Return a context in which tensors are not filled with random numbers.

    Constructors fill every weight, some twice. That takes 30 ns per weight, four seconds for GPT-2,
    and ``fill_random`` overwrites it at once. Constant fills and the tables of rotary positions are
    computed as usual.
    """

    class SkipRandomFills(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            keywords = kwargs or {}
            # By name, since both methods of tensors and functions of torch.nn.init arrive here.
            if getattr(func, "__name__", None) in _RANDOM_FILLS:
                return args[0] if args else keywords["tensor"]
            return func(*args, **keywords)

    return SkipRandomFills()
