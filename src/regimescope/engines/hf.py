"""The transformers engine: PyTorch models in this process. Layer: ``engines``.

Split by concern: ``hf_device`` (devices, element types), ``hf_load`` (names, shapes, weights),
``hf_session`` (a model at work) with ``hf_decode`` and ``hf_generate`` (the loops), ``hf_cache``,
``hf_attention`` and ``hf_compile``; here a request becomes a session.
"""

from __future__ import annotations

from importlib import metadata
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from regimescope.engines import (
    hf_attention,
    hf_cache,
    hf_compile,
    hf_device,
    hf_estimate,
    hf_load,
)
from regimescope.engines.architectures import MOST_POSITIONS
from regimescope.engines.base import Capabilities, EngineRequest
from regimescope.engines.hf_session import HfSession, Way
from regimescope.errors import EngineError, SpecError
from regimescope.records import Cell, ModelFacts
from regimescope.units import listing


class HfOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the transformers engine.

    Attributes:
        threads: Threads of PyTorch on the CPU; by default its own choice.
        attention: ``eager`` (plain operations); ``sdpa``: fused, PyTorch picks the kernel;
            ``math``, ``flash``, ``efficient``, ``cudnn``: that kernel of it and no other; ``auto``:
            fused where the model has it.
        cache: ``dynamic`` grows; ``static`` has the capacity of the cell, or what the cell needs;
            ``quantized`` grows and is kept in fewer bits; ``offloaded`` grows on the host.
        quantizer: What quantizes; ``auto`` takes the first of fp8, quanto and hqq that is there.
        compile: Whether steps run compiled (``torch.compile``); prompts never do.
        loop: ``steps`` is a loop of our own; ``generate`` is that of transformers.
        positions: Longest context to build random weights for; by default the published one.
        trust_remote_code: Whether code that comes with a model may be run.
        check_memory: Whether to refuse what the memory that is free now cannot hold.
    """

    threads: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = None
    attention: hf_attention.Attention = "auto"
    cache: hf_cache.CacheKind = "dynamic"
    quantizer: hf_cache.Quantizer = "auto"
    compile: bool = False
    loop: Literal["steps", "generate"] = "steps"
    positions: Annotated[int, msgspec.Meta(ge=1, le=MOST_POSITIONS)] | None = None
    trust_remote_code: bool = False
    check_memory: bool = True


class _Resolved(NamedTuple):
    """A request with every name looked up."""

    options: HfOptions
    source: hf_load.Source
    device: str
    dtype: str

    @property
    def implementation(self) -> str:
        """The attention that transformers is asked for."""
        return hf_attention.implementation(self.options.attention)


class HfEngine:
    """Measures models of transformers."""

    name = "hf"
    Options = HfOptions

    def capabilities(self) -> Capabilities:
        """Return what this engine can do on some device."""
        return Capabilities(
            devices=hf_device.DEVICES,
            dtypes=hf_device.DTYPES,
            kv_cache=("on", "off"),
            synthetic_depth=True,
            capacity=True,
            cache_kinds=hf_cache.CACHE_KINDS,
            reserved_memory_counter=True,
            batch=True,
            unstamped=True,
        )

    def inspect(self, request: EngineRequest) -> ModelFacts:
        """Check a request and return the facts of the model, without loading weights.

        Raises:
            UserError: The model, device, dtype or an option is unknown or absent.
        """
        resolved = _resolve(request)
        shape = hf_load.read_shape(resolved.source, resolved.implementation)
        _check_shape(resolved, shape, request)
        return _facts(resolved, shape)

    def open(self, request: EngineRequest) -> HfSession:
        """Load a model.

        Raises:
            UserError: As ``inspect``.
            EngineError: Loading failed, for want of memory for example.
        """
        resolved = _resolve(request)
        options = resolved.options
        if options.threads is not None:
            hf_device.import_torch().set_num_threads(options.threads)
        try:
            model = hf_load.load_model(
                resolved.source,
                device=resolved.device,
                dtype=resolved.dtype,
                attention=resolved.implementation,
                seed=request.seed,
                admit=lambda shape: _check_shape(resolved, shape, request),
            )
        except (RuntimeError, MemoryError) as error:
            raise EngineError(f"loading {request.model} failed: {error}") from error
        shape = hf_load.shape_of(model)
        way = Way(
            cache=options.cache,
            attention=options.attention,
            quantizer=options.quantizer,
            is_compiled=options.compile,
            uses_generate=options.loop == "generate",
        )
        session = HfSession(model, _facts(resolved, shape), way)
        session.try_kernel()
        return session


def _resolve(request: EngineRequest) -> _Resolved:
    """Look up every name of a request, those first that need no library.

    Raises:
        UserError: The model, device, dtype or an option is unknown or absent.
    """
    options = _options(request)
    dtype = hf_device.resolve_dtype(request.dtype)
    source = hf_load.find_source(
        request.model, positions=options.positions, trusted=options.trust_remote_code
    )
    device = hf_device.resolve_device(request.device)
    hf_device.check_dtype(device, dtype)
    hf_cache.check_kind(options.cache, options.quantizer, device)
    if options.compile:
        hf_compile.check_compiler(device)
    return _Resolved(options, source, device, dtype)


def _options(request: EngineRequest) -> HfOptions:
    """Decode the raw table of options.

    Raises:
        SpecError: An option is unknown or out of range.
    """
    try:
        return msgspec.convert(request.options, HfOptions, strict=False)
    except msgspec.ValidationError as error:
        raise SpecError(
            f"Options of the engine hf: {error}.",
            remedy=f"Known options: {listing(HfOptions.__struct_fields__)}.",
        ) from error


def _check_shape(resolved: _Resolved, shape: hf_load.Shape, request: EngineRequest) -> None:
    """Refuse what the measures of the model rule out.

    Raises:
        CapabilityError: The device has no such attention kernel for its heads, or its memory does
            not hold the model and the largest generation.
    """
    options, device, dtype = resolved.options, resolved.device, resolved.dtype
    hf_attention.check_kernel(options.attention, device, dtype, shape.head_dim)
    if options.check_memory:
        is_file = resolved.source.architecture is None
        setup = hf_estimate.Setup(
            request.model, device, dtype, options.cache, options.attention, is_file
        )
        hf_estimate.check_memory(shape, setup, request.largest or Cell())


def _facts(resolved: _Resolved, shape: hf_load.Shape) -> ModelFacts:
    """Put the facts of a model together."""
    torch, device, options = hf_device.import_torch(), resolved.device, resolved.options
    return ModelFacts(
        device=device,
        dtype=resolved.dtype,
        weights="file" if resolved.source.architecture is None else "random",
        vocabulary=shape.vocabulary,
        positions=shape.positions,
        layers=shape.layers,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        weight_bytes=shape.parameters * getattr(torch, resolved.dtype).itemsize,
        description=hf_device.device_name(device),
        versions={
            "torch": str(torch.__version__),
            "transformers": metadata.version("transformers"),
        },
        settings={
            "threads": options.threads or torch.get_num_threads(),
            "attention": shape.attention,
            **_way_settings(options),
            "parameters": shape.parameters,
            **_window_settings(shape),
            **hf_device.device_settings(device),
        },
    )


def _window_settings(shape: hf_load.Shape) -> dict[str, Any]:
    """Return how many layers keep a window of positions only, and how wide it is."""
    if not shape.windowed_layers:
        return {}
    return {"window": shape.window, "windowed_layers": shape.windowed_layers}


def _way_settings(options: HfOptions) -> dict[str, Any]:
    """Return how the model decodes, as far as it is not the usual way; the cache always."""
    settings: dict[str, Any] = {"cache": options.cache, "loop": options.loop}
    if options.cache == "quantized":
        settings["quantizer"] = hf_cache.resolve_quantizer(options.quantizer)
    if options.attention in hf_attention.BACKENDS:
        settings["attention_kernel"] = options.attention
    if options.compile:
        settings["compile"] = True
    return settings
