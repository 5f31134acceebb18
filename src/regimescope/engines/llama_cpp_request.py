"""What a request to the engine llama_cpp means, and the facts of a model. Layer: ``engines``."""

from __future__ import annotations

from importlib import metadata
from typing import Any, NamedTuple

import msgspec

from regimescope.engines.base import EngineRequest
from regimescope.engines.llama_cpp_model import FILE_TYPES, UNKNOWN_TYPE, GgufModel, read_model
from regimescope.engines.llama_cpp_server import (
    LlamaCppOptions,
    check_options,
    import_xllamacpp,
)
from regimescope.errors import CapabilityError, SpecError
from regimescope.records import ModelFacts
from regimescope.units import listing

DEVICES = ("gpu", "cpu")
# The type of the weights is that of the file, whether it is asked for as such, by its own name, or
# as float32, which a scan names where the user names nothing.
_ANY = ("file", "float32")
DTYPES = (*_ANY, *FILE_TYPES.values(), UNKNOWN_TYPE)
# Room for a scan of the default range; a context as long as some models are trained for would take
# more memory than their weights.
DEFAULT_N_CTX = 4096


class Resolved(NamedTuple):
    """A request with every name looked up.

    Attributes:
        model: The file.
        n_ctx: Capacity of cells that name none.
        device: ``gpu`` or ``cpu``.
        options: The options as given.
    """

    model: GgufModel
    n_ctx: int
    device: str
    options: LlamaCppOptions


def usable(capacity: int, model: GgufModel) -> int:
    """Return the positions that prompt and output may take together.

    The server stops at what the model was trained for. It would also use what the library adds to
    a capacity to make it a multiple of 256, but that is not what was asked for.
    """
    return capacity if model.positions is None else min(capacity, model.positions)


def resolve(request: EngineRequest) -> Resolved:
    """Look up every name of a request, those first that need no library.

    Raises:
        UserError: The file, device, dtype or an option is unknown, absent or damaged.
    """
    options = _options(request)
    check_options(options)
    model = read_model(request.model)
    if request.dtype not in (*_ANY, model.dtype):
        raise SpecError(
            f"The weights of {request.model} are {model.dtype}; {request.dtype} is asked for.",
            remedy="Leave the dtype out: a GGUF file brings its own.",
        )
    trained = model.positions or DEFAULT_N_CTX
    n_ctx = options.n_ctx or min(trained, DEFAULT_N_CTX)
    return Resolved(model, n_ctx, _device(request.device), options)


def _device(name: str) -> str:
    """Return the device to use.

    Raises:
        SpecError: The name is unknown.
        CapabilityError: The device is not there, or these bindings were built without it.
    """
    if name not in ("auto", *DEVICES):
        raise SpecError(
            f"The engine llama_cpp has no device {name!r}.",
            remedy=f"Known: {listing(('auto', *DEVICES))}.",
        )
    has_gpu = bool(_device_rows("gpu"))
    if name == "gpu" and not has_gpu:
        raise CapabilityError(
            "llama.cpp finds no GPU here.",
            remedy="Use auto; for CUDA, ROCm and Vulkan the bindings have builds of their own.",
        )
    return "gpu" if has_gpu and name != "cpu" else "cpu"


def _device_rows(device: str) -> list[dict[str, Any]]:
    """Return what the library tells of the devices of a kind."""
    bindings = import_xllamacpp()
    kinds = bindings.ggml_backend_dev_type
    wanted = {
        "cpu": ("GGML_BACKEND_DEVICE_TYPE_CPU",),
        "gpu": ("GGML_BACKEND_DEVICE_TYPE_GPU", "GGML_BACKEND_DEVICE_TYPE_IGPU"),
    }[device]
    types = [getattr(kinds, name, None) for name in wanted]
    return [row for row in bindings.get_device_info() if row["type"] in types]


def _options(request: EngineRequest) -> LlamaCppOptions:
    """Decode the raw table of options.

    Raises:
        SpecError: An option is unknown or out of range.
    """
    try:
        return msgspec.convert(request.options, LlamaCppOptions, strict=False)
    except msgspec.ValidationError as error:
        raise SpecError(
            f"Options of the engine llama_cpp: {error}.",
            remedy=f"Known options: {listing(LlamaCppOptions.__struct_fields__, most=20)}.",
        ) from error


def facts(resolved: Resolved) -> ModelFacts:
    """Put the facts of a model together."""
    model, options = resolved.model, resolved.options
    rows = _device_rows(resolved.device)
    given = {name: v for name, v in msgspec.structs.asdict(options).items() if v is not None}
    return ModelFacts(
        device=resolved.device,
        dtype=model.dtype,
        weights="file",
        vocabulary=model.vocabulary,
        # The server ends a generation when its last token would take the last position, so that
        # one position less can be used than a context has.
        positions=usable(resolved.n_ctx, model) - 1,
        layers=model.layers,
        kv_heads=model.kv_heads,
        head_dim=model.head_dim,
        weight_bytes=model.weight_bytes,
        description=", ".join(str(row["description"]) for row in rows) or None,
        versions={"xllamacpp": metadata.version("xllamacpp")},
        settings=given
        | {
            "n_ctx": resolved.n_ctx,
            "last_token_kept": True,
            "parameters": model.parameters,
            "tokens_never_chosen": len(model.unfinished),
            "build": str(import_xllamacpp().get_system_info()).strip(),
        },
    )
