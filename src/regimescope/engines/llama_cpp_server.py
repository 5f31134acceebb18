"""The server of llama.cpp inside this process: one context, one request at a time.

Layer: ``engines``. The bindings hand every token to a function while the request runs, so a thread
runs the request and the tokens come out of a queue.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Generator, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Annotated, Any, Literal

import msgspec

from regimescope.errors import CapabilityError, EngineError, MissingDependencyError, SpecError

# More layers than any model has: all of them go to the device.
ALL_LAYERS = 9999
# Errors only; llama.cpp counts up from there to debugging.
LOG_ERRORS = 1

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
_Positive = Annotated[int, msgspec.Meta(ge=1)]


class LlamaCppOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the engine llama_cpp.

    Attributes:
        n_ctx: Positions to allocate where a cell names no capacity; by default what the model was
            trained for, but 4096 at most. llama.cpp rounds it up to a multiple of 256.
        threads: Threads on the CPU; by default the library's own choice.
        flash_attention: ``on``, ``off``, or ``auto``: where the device has it.
        cache_type: Element type of keys and values.
        n_batch: Prompt tokens handed to the library at a time.
        n_ubatch: Prompt tokens computed at a time.
        gpu_layers: Layers on the GPU; by default all of them. Of no effect on the CPU.
    """

    n_ctx: _Positive | None = None
    threads: Annotated[int, msgspec.Meta(ge=1, le=512)] | None = None
    flash_attention: Literal["auto", "on", "off"] = "auto"
    cache_type: CacheType = "f16"
    n_batch: _Positive = 2048
    n_ubatch: _Positive = 512
    gpu_layers: Annotated[int, msgspec.Meta(ge=0)] | None = None


class _Error(msgspec.Struct):
    message: str = ""


class _Timings(msgspec.Struct):
    cache_n: int = 0
    prompt_ms: float = 0.0
    predicted_n: int = 0
    predicted_ms: float = 0.0


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int


class Chunk(msgspec.Struct):
    """One piece of an answer, as far as it is read.

    Attributes:
        error: Set where the request was refused.
        timings: What the server counted and timed up to here.
        usage: Counts of the whole request; only in the last piece.
    """

    error: _Error | None = None
    timings: _Timings | None = None
    usage: _Usage | None = None


Chunks = Generator[Chunk, None, None]


def import_xllamacpp() -> Any:
    """Import the bindings.

    Raises:
        MissingDependencyError: They are not installed, or do not run on this system.
    """
    try:
        import xllamacpp
    except ImportError as error:
        raise MissingDependencyError(
            f"xllamacpp cannot be imported: {error}.",
            remedy="Install it: pip install 'regimescope[llama-cpp]'",
        ) from error
    return xllamacpp


def check_options(options: LlamaCppOptions) -> None:
    """Refuse options that contradict each other.

    Raises:
        SpecError: Naming both of them.
    """
    if options.n_ubatch > options.n_batch:
        raise SpecError(
            f"n_ubatch {options.n_ubatch} is larger than n_batch {options.n_batch}.",
            remedy="Raise n_batch, or lower n_ubatch.",
        )
    quantized = options.cache_type not in ("f32", "f16", "bf16")
    if quantized and options.flash_attention == "off":
        raise SpecError(
            f"Values of type {options.cache_type} need flash attention in llama.cpp.",
            remedy="Leave flash_attention at auto, or set cache_type to f16.",
        )


class Server:
    """A model with one context."""

    def __init__(self, path: Path, n_ctx: int, device: str, options: LlamaCppOptions) -> None:
        """Load a model and allocate a context.

        Raises:
            CapabilityError: The bindings are older than a setting.
            EngineError: llama.cpp does not load the model, or has no memory for the context.
        """
        bindings = import_xllamacpp()
        try:
            params = _params(bindings, path, n_ctx, device, options)
        except AttributeError as error:
            raise CapabilityError(
                f"This release of xllamacpp lacks a setting: {error}.",
                remedy="Update it: pip install -U xllamacpp",
            ) from error
        try:
            self._server: Any = bindings.Server(params)
        except RuntimeError as error:
            raise EngineError(
                f"llama.cpp cannot load {path.name} with a context of {n_ctx:,} positions: {error}"
            ) from error
        # A server that is released before its loop has begun waits for the end of it for ever
        # (xllamacpp 2026.10), so let it answer once.
        for _ in self.stream(RequestWriter(()).write((0,), 1, keep=False)):
            pass

    def stream(self, body: bytes) -> Chunks:
        """Run a request and yield its answer piece by piece.

        Closing the iterator ends the request at the token after next.

        Raises:
            EngineError: The request failed.
        """
        pieces: SimpleQueue[bytes | Exception | None] = SimpleQueue()
        stopped = Event()

        def receive(piece: bytes) -> bool:
            pieces.put(piece)
            return stopped.is_set()

        def request() -> None:
            try:
                self._server.handle_completions(body, receive)
            except Exception as error:  # noqa: BLE001 - handed to the thread that waits
                pieces.put(error)
            finally:
                pieces.put(None)

        thread = Thread(target=request, name="llama_cpp request", daemon=True)
        thread.start()
        try:
            while (piece := pieces.get()) is not None:
                yield _decoded(piece)
        finally:
            stopped.set()
            thread.join()

    def close(self) -> None:
        """Release the model; returns when the threads of the server have ended."""
        self._server = None


class RequestWriter:
    """Writes requests; what all of them share is encoded once."""

    def __init__(self, banned: Sequence[int]) -> None:
        """Keep what goes with every request.

        Args:
            banned: Token ids that are never chosen.
        """
        shared = {
            "stream": True,
            "ignore_eos": True,
            "timings_per_token": True,
            # Greedy, and no other step of sampling costs time.
            "temperature": 0,
            "samplers": ["temperature"],
            "logit_bias": [[token, False] for token in banned],
        }
        self._shared = json.dumps(shared)[1:-1]

    def write(self, prompt_ids: Sequence[int], budget: int, *, keep: bool) -> bytes:
        """Return a request.

        Args:
            prompt_ids: Token ids of the prompt.
            budget: Tokens to produce.
            keep: Whether what the context holds of the prompt is used.
        """
        own = {"prompt": list(prompt_ids), "n_predict": budget, "cache_prompt": keep}
        return f"{json.dumps(own)[:-1]}, {self._shared}}}".encode()


_DECODER = msgspec.json.Decoder(Chunk)


def _decoded(piece: bytes | Exception) -> Chunk:
    """Return a piece of an answer.

    Raises:
        EngineError: The request failed, or its answer cannot be read.
    """
    if isinstance(piece, Exception):
        raise EngineError(f"{type(piece).__name__}: {piece}") from piece
    try:
        chunk = _DECODER.decode(piece)
    except msgspec.DecodeError as error:
        raise EngineError(f"llama.cpp gave an answer that cannot be read: {error}") from error
    if chunk.error is not None:
        raise EngineError(f"llama.cpp refused the request: {chunk.error.message}")
    return chunk


def _params(bindings: Any, path: Path, n_ctx: int, device: str, options: LlamaCppOptions) -> Any:
    """Return the parameters of the library.

    Raises:
        AttributeError: The installed release does not have one of them.
    """
    params = bindings.CommonParams()
    params.model.path = str(path)
    params.n_ctx = n_ctx
    params.n_parallel = 1
    params.n_batch, params.n_ubatch = options.n_batch, options.n_ubatch
    flash = bindings.llama_flash_attn_type
    params.flash_attn_type = {
        "auto": flash.LLAMA_FLASH_ATTN_TYPE_AUTO,
        "on": flash.LLAMA_FLASH_ATTN_TYPE_ENABLED,
        "off": flash.LLAMA_FLASH_ATTN_TYPE_DISABLED,
    }[options.flash_attention]
    kind = getattr(bindings.ggml_type, f"GGML_TYPE_{options.cache_type.upper()}")
    params.cache_type_k = params.cache_type_v = kind
    if options.threads is not None:
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    on_cpu = device == "cpu"
    layers = ALL_LAYERS if options.gpu_layers is None else options.gpu_layers
    params.n_gpu_layers = 0 if on_cpu else layers
    params.no_kv_offload = params.no_op_offload = on_cpu
    # Nothing of an earlier request may shorten a later one, and no setting may be moved to fit.
    params.cache_prompt = params.cache_idle_slots = params.ctx_shift = params.fit_params = False
    params.cache_ram_mib = params.n_ctx_checkpoints = 0
    # The server listens on a port of this machine that nobody is told; the key closes it.
    params.api_keys = [secrets.token_urlsafe(32)]
    params.verbosity = LOG_ERRORS
    return params
