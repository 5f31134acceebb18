"""The files of a model folder, checked before a library reads them. Layer: ``engines``.

Readers say of a damaged file what went wrong inside them. Here the usual damages are told in the
words of the user: which file, what is wrong with it, what to do. Only headers are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from regimescope.errors import UserError
from regimescope.units import listing

CONFIG = "config.json"
SAFETENSORS, PICKLED = "model.safetensors", "pytorch_model.bin"
INDEX = ".index.json"

_FETCH = "Fetch the model again."

Shapes = Mapping[str, tuple[int, ...]]


def check_config(folder: Path) -> None:
    """Check that a folder has a readable configuration.

    Raises:
        UserError: It is missing, no JSON object, or names no model type.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise UserError(
            f"{folder} holds no {CONFIG}.",
            remedy="Name the folder that holds config.json and the weights.",
        )
    if "model_type" not in _object(path):
        raise UserError(f"{path} names no model_type.", remedy=_FETCH)


def check_weights(folder: Path, expected: Shapes) -> None:
    """Check that a folder holds all its weights, whole, and of the shapes that are expected.

    Pickled weights are checked for presence only, as reading them means running them.

    Args:
        folder: The model folder.
        expected: Shapes by tensor name. Names that only one side has are passed over: libraries
            rename, and what is missing in the end is found when the weights are loaded.

    Raises:
        UserError: A file is missing, cut short or damaged, or a tensor has another shape.
    """
    for path in _weight_files(folder):
        if path.suffix != ".safetensors":
            continue
        for name, shape in _safetensors_shapes(path):
            wanted = expected.get(name, shape)
            if wanted != shape:
                raise UserError(
                    f"{path} does not fit {CONFIG}: tensor {name} is {_product(shape)}, "
                    f"the configuration asks for {_product(wanted)}.",
                    remedy=f"Fetch {CONFIG} and the weights from the same place again.",
                )


def _weight_files(folder: Path) -> list[Path]:
    """Return the files that hold the weights, in the order in which transformers looks for them.

    Raises:
        UserError: There are none, or one that an index names is missing.
    """
    for name in (SAFETENSORS, PICKLED):
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}{INDEX}"
        if index.is_file():
            return _shards(index)
    raise UserError(
        f"{folder} holds no weights.",
        remedy=f"Fetch the model with its weights: {SAFETENSORS}, or {SAFETENSORS}{INDEX} "
        "and the files it names.",
    )


def _shards(index: Path) -> list[Path]:
    """Return the files that an index names.

    Raises:
        UserError: The index is damaged, or a file is missing.
    """
    table = _object(index).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise UserError(f"{index} names no files.", remedy=_FETCH)
    names = sorted({str(name) for name in table.values()})
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise UserError(
            f"{len(missing)} of {len(names)} weight files that {index} names are missing: "
            f"{listing(missing, most=3)}.",
            remedy=_FETCH,
        )
    return [index.parent / name for name in names]


def _safetensors_shapes(path: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and shape of every tensor of a file.

    Raises:
        UserError: The file is cut short, damaged or cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping, it cannot be iterated itself
                yield name, tuple(file.get_slice(name).get_shape())
    except SafetensorError as error:
        size = path.stat().st_size
        raise UserError(
            f"{path} is damaged or cut short at {size:,} bytes: {error}.", remedy=_FETCH
        ) from error
    except OSError as error:
        raise _unreadable(path, error) from error


def _object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        UserError: It cannot be read or is no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:
        raise UserError(f"{path} is no JSON: {error}.", remedy=_FETCH) from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is no JSON object.", remedy=_FETCH)
    return content


def _product(shape: tuple[int, ...]) -> str:
    """Return a shape as people write it."""
    return " x ".join(map(str, shape)) or "a single number"


def _unreadable(path: Path, error: OSError) -> UserError:
    """Return the error for a file that the system does not hand over."""
    return UserError(f"{path} cannot be read: {error.strerror}.", remedy="Make the file readable.")
