"""Real servers for tests, started on loopback and ended by their process id.

Run as ``python -m tests.contract.openai_peers FOLDER`` it is llama.cpp's own HTTP server, as the
package xllamacpp builds it in.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

POSITIONS = 256
READY_LINES = 200


@contextmanager
def llama_server() -> Iterator[str]:
    """Serve SmolLM2-135M with llama.cpp and give the base of its API."""
    command = [sys.executable, "-m", __name__]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment()
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip()
        assert address.startswith("http://127.0.0.1:"), "it did not start"
        yield f"{address}/v1"
    finally:
        _end(process)


@contextmanager
def mlx_server(folder: Path) -> Iterator[str]:
    """Serve a tiny model with mlx_lm.server and give the base of its API."""
    make_tiny_model(folder / "model")
    (folder / "home" / "hub").mkdir(parents=True)
    port = _free_port()
    command = [sys.executable, "-m", "mlx_lm.server", "--model", str(folder / "model")]
    command += ["--host", "127.0.0.1", "--port", str(port), "--prompt-cache-size", "0"]
    home = {"HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=_environment() | home
    )
    try:
        assert process.stderr is not None
        lines = (process.stderr.readline() for _ in range(READY_LINES))
        assert any(b"Starting httpd" in line for line in lines), "it did not start"
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        _end(process)


def make_tiny_model(folder: Path) -> None:
    """Write a llama with random weights and a tokenizer that knows common words."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.models.llama import Model, ModelArgs
    from tokenizers import ByteLevelBPETokenizer

    from regimescope.engines.openai_request import WORDS

    folder.mkdir(parents=True)
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        [f"{word} {word}" for word in WORDS],
        vocab_size=4000,
        min_frequency=1,
        special_tokens=["</s>"],
        show_progress=False,
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "vocab_size": tokenizer.get_vocab_size(),
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
    }
    mx.random.seed(0)
    model = Model(ModelArgs.from_dict(config))
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": 0}))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))


def _environment() -> dict[str, str]:
    """One thread, and the same modules as here."""
    paths = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{Path.cwd()}{os.pathsep}{paths}"}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def _end(process: subprocess.Popen[bytes]) -> None:
    """End one process by its id and wait for it."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def serve_llama() -> None:
    """Serve until ended; the first line of output is the address."""
    import xllamacpp
    from tests.small_model import gguf_path

    wanted = xllamacpp.CommonParams()
    wanted.model.path = str(gguf_path())
    wanted.n_ctx, wanted.n_parallel = POSITIONS, 1
    wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = 1
    wanted.n_gpu_layers = 0
    wanted.hostnames, wanted.port = ["127.0.0.1"], 0
    server = xllamacpp.Server(wanted)
    print(server.listening_address, flush=True)  # noqa: T201 - the way to say where it listens
    signal.pause()


if __name__ == "__main__":
    serve_llama()
