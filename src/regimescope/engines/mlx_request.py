"""What a request to the engine mlx means, and the facts that come of it. Layer: ``engines``."""

from __future__ import annotations

from importlib import metadata
from typing import Any, NamedTuple

import msgspec

from regimescope.engines import mlx_load
from regimescope.engines.base import EngineRequest
from regimescope.engines.mlx_decode import MlxOptions, check_options
from regimescope.errors import CapabilityError, SpecError
from regimescope.records import ModelFacts
from regimescope.units import listing

DEVICES = ("gpu", "cpu")
DTYPES = ("float32", "float16", "bfloat16")
_ALIASES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


class Resolved(NamedTuple):
    """A request with every name looked up."""

    options: MlxOptions
    source: mlx_load.Source
    shape: mlx_load.Shape
    device: str
    dtype: str


def resolve(request: EngineRequest) -> Resolved:
    """Look up every name of a request, those first that need no library.

    Raises:
        UserError: The model, device, dtype or an option is unknown or absent.
    """
    options = _options(request)
    dtype = _ALIASES.get(request.dtype, request.dtype)
    if dtype not in DTYPES:
        raise SpecError(
            f"Element type {request.dtype!r} is unknown.",
            remedy=f"Known types: {listing([*DTYPES, *_ALIASES])}.",
        )
    source = mlx_load.find_source(request.model, options.positions)
    shape = mlx_load.read_shape(source)
    check_options(options, shape.head_dim)
    return Resolved(options, source, shape, _device(request.device), dtype)


def _device(name: str) -> str:
    """Return the device to use.

    Raises:
        SpecError: The name is unknown.
        CapabilityError: The device is not there.
    """
    if name not in ("auto", *DEVICES):
        raise SpecError(
            f"The engine mlx has no device {name!r}.",
            remedy=f"Known: {listing(('auto', *DEVICES))}.",
        )
    mx = mlx_load.import_mlx()
    if name == "auto":
        return "gpu" if mx.is_available(mx.gpu) else "cpu"
    if not mx.is_available(getattr(mx, name)):
        raise CapabilityError(f"MLX has no {name} here.", remedy="Use auto.")
    return name


def _options(request: EngineRequest) -> MlxOptions:
    """Decode the raw table of options.

    Raises:
        SpecError: An option is unknown or out of range.
    """
    try:
        return msgspec.convert(request.options, MlxOptions, strict=False)
    except msgspec.ValidationError as error:
        raise SpecError(
            f"Options of the engine mlx: {error}.",
            remedy=f"Known options: {listing(MlxOptions.__struct_fields__, most=20)}.",
        ) from error


class Measures(NamedTuple):
    """How much the weights of a model are.

    Attributes:
        elements: Elements as they are stored; quantized ones are packed, several in one.
        size_bytes: Bytes of all of them.
    """

    elements: int
    size_bytes: int


def measure(model: Any) -> Measures:
    """Return how much the weights of a model are; they need not be in memory."""
    weights = [weight for _, weight in mlx_load.parameters_of(model)]
    return Measures(
        sum(weight.size for weight in weights), sum(weight.nbytes for weight in weights)
    )


def facts(resolved: Resolved, found: Measures | None) -> ModelFacts:
    """Put the facts of a model together.

    Args:
        resolved: The request.
        found: What its weights are; for a built-in it is known without them.
    """
    shape, architecture = resolved.shape, resolved.source.architecture
    if architecture is not None:
        count = architecture.parameters()
        found = Measures(count, count * (4 if resolved.dtype == "float32" else 2))
    settings: dict[str, Any] = {
        name: value
        for name, value in msgspec.structs.asdict(resolved.options).items()
        if value is not None
    }
    if found is not None:
        settings["stored_elements"] = found.elements
    return ModelFacts(
        device=resolved.device,
        dtype=resolved.dtype,
        weights="random" if architecture is not None else "file",
        vocabulary=shape.vocabulary,
        positions=shape.positions,
        layers=shape.layers,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        weight_bytes=None if found is None else found.size_bytes,
        description=_device_name(resolved.device),
        versions={"mlx": metadata.version("mlx"), "mlx-lm": metadata.version("mlx-lm")},
        settings=settings,
    )


def _device_name(device: str) -> str | None:
    """Return the name of a device for people, where this release of MLX tells it."""
    mx = mlx_load.import_mlx()
    ask = getattr(mx, "device_info", None)
    if ask is None:
        return None
    name = ask(getattr(mx, device)).get("device_name")
    return str(name) if name else None
