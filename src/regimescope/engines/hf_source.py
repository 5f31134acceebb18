"""What the name of a model means to the transformers engine. Layer: ``engines``."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import NamedTuple

from regimescope.engines.architectures import ARCHITECTURES, Architecture
from regimescope.engines.gguf_file import is_gguf, read_header
from regimescope.errors import CapabilityError, SpecError
from regimescope.units import listing

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class Source(NamedTuple):
    """Where a model comes from.

    Attributes:
        name: What transformers loads: the path or the hub id; the name of a built-in.
        architecture: The built-in architecture, if it is one.
        local: Nothing may be downloaded.
        gguf: Name of the GGUF file in the folder ``name`` that holds the model, if one does.
        trusted: Code that comes with the model may be run.
    """

    name: str
    architecture: Architecture | None
    local: bool
    gguf: str | None = None
    trusted: bool = False

    @property
    def path(self) -> str:
        """What to call it in front of people."""
        return str(Path(self.name) / self.gguf) if self.gguf else self.name


def find_source(model: str, *, positions: int | None = None, trusted: bool = False) -> Source:
    """Return what a model name means: a built-in, a folder or GGUF file that exists, a hub id.

    Args:
        model: The name.
        positions: Longest context to build random weights for; by default the published one.
        trusted: Whether code that comes with the model may be run.

    Raises:
        SpecError: It is none of these.
        CapabilityError: The positions of the model cannot be moved.
        UserError: A GGUF file is damaged or cut short.
    """
    source = _find(model, trusted)
    if positions is None:
        return source
    if source.architecture is None:
        raise CapabilityError(
            f"The positions of {model} are those its weights were trained with.",
            remedy="Leave out --positions, or measure a built-in model with random weights.",
        )
    return source._replace(architecture=source.architecture.with_positions(positions))


def _find(model: str, trusted: bool) -> Source:
    """Return what a model name means.

    Raises:
        SpecError: It is no model.
        UserError: A GGUF file is damaged or cut short.
    """
    if model in ARCHITECTURES:
        return Source(model, ARCHITECTURES[model], local=True)
    path = Path(model).expanduser()
    if model and path.is_dir():
        return Source(str(path), None, local=True, trusted=trusted)
    if path.is_file():
        return _gguf_source(path)
    if _HUB_ID.fullmatch(model) and path.suffix != ".gguf":
        return Source(model, None, local=False, trusted=trusted)
    if "/" in model or "\\" in model or model.startswith((".", "~")) or path.suffix == ".gguf":
        raise SpecError(
            f"{model} does not exist.", remedy="Name an existing model folder or GGUF file."
        )
    close = difflib.get_close_matches(model.lower(), ARCHITECTURES, n=1)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    raise SpecError(
        f"There is no built-in model {model!r}.",
        remedy=f"{hint}Built-in models: {listing(ARCHITECTURES, most=20)}. Or name a model "
        "folder, a GGUF file, or a hub id such as HuggingFaceTB/SmolLM2-135M.",
    )


def _gguf_source(path: Path) -> Source:
    """Return the source for a file, which must be a GGUF.

    Raises:
        SpecError: It is a file of another kind.
        UserError: It is damaged or cut short.
    """
    if path.suffix != ".gguf" and not is_gguf(path):
        raise SpecError(
            f"{path} is a file, and no GGUF file.",
            remedy="Name a GGUF file, or the folder that holds config.json and the weights.",
        )
    read_header(path)
    # Resolved, since transformers would take the folder "" of a bare file name for a hub id.
    path = path.resolve()
    return Source(str(path.parent), None, local=True, gguf=path.name)
