"""The header of a GGUF file: what it holds, and whether the file holds all of it.

Layer: ``engines``. Read here and not by a library because a damaged file should be told apart from
one of another kind in plain words, before any of them is loaded. The layout is that of the GGUF
specification of the ggml project, versions 2 and 3.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import NamedTuple

from regimescope.errors import UserError

MAGIC = b"GGUF"
# Version 1 was in use for weeks in 2023 and has other widths.
VERSIONS = (2, 3)
# A tensor has four dimensions at most in ggml (GGML_MAX_DIMS).
MOST_DIMENSIONS = 4
# Where the file does not name its own.
DEFAULT_ALIGNMENT = 32
# More than any model has, so that a damaged count ends the reading and not the memory.
MOST_TENSORS = MOST_KEYS = 1_000_000

# Types of metadata: number of the type, bytes of a value.
_FIXED = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
# Unsigned integers by their width, which is how the keys read here are stored.
_UNSIGNED = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}

# Element types of ggml: elements and bytes of a block. Types that are not listed are newer; how
# long their tensors are is then not checked.
_BLOCKS = {
    0: (1, 4),  # F32
    1: (1, 2),  # F16
    2: (32, 18),  # Q4_0
    3: (32, 20),  # Q4_1
    6: (32, 22),  # Q5_0
    7: (32, 24),  # Q5_1
    8: (32, 34),  # Q8_0
    9: (32, 40),  # Q8_1
    10: (256, 84),  # Q2_K
    11: (256, 110),  # Q3_K
    12: (256, 144),  # Q4_K
    13: (256, 176),  # Q5_K
    14: (256, 210),  # Q6_K
    15: (256, 292),  # Q8_K
    16: (256, 66),  # IQ2_XXS
    17: (256, 74),  # IQ2_XS
    18: (256, 98),  # IQ3_XXS
    19: (256, 50),  # IQ1_S
    20: (32, 18),  # IQ4_NL
    21: (256, 110),  # IQ3_S
    22: (256, 82),  # IQ2_S
    23: (256, 136),  # IQ4_XS
    24: (1, 1),  # I8
    25: (1, 2),  # I16
    26: (1, 4),  # I32
    27: (1, 8),  # I64
    28: (1, 8),  # F64
    29: (256, 56),  # IQ1_M
    30: (1, 2),  # BF16
    34: (256, 54),  # TQ1_0
    35: (256, 66),  # TQ2_0
    39: (32, 17),  # MXFP4
    40: (64, 36),  # NVFP4
    41: (128, 18),  # Q1_0
}


class GgufHeader(NamedTuple):
    """What a GGUF file says of itself.

    Attributes:
        architecture: Name of the model family, as ggml has it.
        parameters: Elements of all tensors.
        tensors: How many tensors there are.
        needed_bytes: Least length of the file that holds them all.
        tensor_bytes: Bytes of all tensors with the gaps between them.
        metadata: Strings and numbers by their key, without the lists; a number that is no unsigned
            integer stands as the one that has the same bytes.
    """

    architecture: str
    parameters: int
    tensors: int
    needed_bytes: int
    tensor_bytes: int
    metadata: dict[str, str | int]


def is_gguf(path: Path) -> bool:
    """Return whether a file begins as GGUF files do.

    Raises:
        UserError: The file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise _unreadable(path, error) from error


def read_header(path: Path) -> GgufHeader:
    """Read the header of a GGUF file and check that the file is long enough for its tensors.

    Raises:
        UserError: It is no GGUF file, one of an unknown version, one of several parts, damaged or
            cut short.
    """
    if not is_gguf(path):
        raise UserError(
            f"{path} is no GGUF file: it does not begin with the letters GGUF.",
            remedy="Name a GGUF file, or a folder that holds config.json and the weights.",
        )
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            header = _read(path, _Cursor(view, len(view)))
            length = len(view)
    except OSError as error:
        raise _unreadable(path, error) from error
    except _Damaged as error:
        raise UserError(
            f"{path} is damaged or cut short: {error}.", remedy="Fetch the file again."
        ) from error
    if length < header.needed_bytes:
        raise UserError(
            f"{path} is cut short: its {header.tensors} tensors take {header.needed_bytes:,} "
            f"bytes, the file has {length:,}.",
            remedy="Fetch the file again.",
        )
    return header


def read_strings(path: Path, key: str) -> list[str]:
    """Return a list of strings among the metadata of a file; empty where there is no such list.

    Args:
        path: A file that ``read_header`` has read without complaint.
        key: Name of the list.

    Raises:
        UserError: The file cannot be read.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            cursor = _Cursor(view, len(view))
            cursor.skip(4 + 8)  # version and number of tensors
            return _find_strings(cursor, key)
    except OSError as error:
        raise _unreadable(path, error) from error


class _Damaged(Exception):
    """The bytes are not those of a header."""


class _Cursor:
    """A place in the bytes of a file."""

    def __init__(self, view: mmap.mmap, length: int) -> None:
        """Start behind the magic."""
        self._view = view
        self._length = length
        self.at = len(MAGIC)

    def skip(self, count: int) -> int:
        """Go on by ``count`` bytes and return where they began."""
        start = self.at
        if count > self._length - start:
            raise _Damaged(f"the header goes past the end at byte {self._length:,}")
        self.at += count
        return start

    def unsigned(self, width: int) -> int:
        """Read an unsigned integer of ``width`` bytes."""
        (value,) = struct.unpack_from(_UNSIGNED[width], self._view, self.skip(width))
        return int(value)

    def peek(self, width: int) -> int:
        """Read an unsigned integer and stay before it."""
        value = self.unsigned(width)
        self.at -= width
        return value

    def text(self) -> str:
        """Read a string."""
        length = self.unsigned(8)
        start = self.skip(length)
        return self._view[start : start + length].decode("utf-8", errors="replace")

    def limited(self, most: int, what: str) -> int:
        """Read a count of at most ``most``."""
        count = self.unsigned(8)
        if count > most:
            raise _Damaged(f"it claims {count:,} {what}")
        return count


def _read(path: Path, cursor: _Cursor) -> GgufHeader:
    """Read a header."""
    version = cursor.unsigned(4)
    if version not in VERSIONS:
        raise UserError(
            f"{path} has version {version} of the GGUF format; versions 2 and 3 can be read.",
            remedy="Convert the model again with a current tool.",
        )
    tensors = cursor.limited(MOST_TENSORS, "tensors")
    table = _read_metadata(cursor, cursor.limited(MOST_KEYS, "metadata keys"))
    parts = table.get("split.count", 1)
    if isinstance(parts, int) and parts > 1:
        raise UserError(
            f"{path} is one of {parts} parts of a model.",
            remedy="Join the parts with llama-gguf-split --merge and name the result.",
        )
    architecture = table.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise _Damaged("it names no architecture")
    parameters, end = _read_tensors(cursor, tensors)
    alignment = table.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise _Damaged(f"its alignment is {alignment}")
    data = math.ceil(cursor.at / alignment) * alignment
    return GgufHeader(architecture, parameters, tensors, data + end, end, table)


def _read_metadata(cursor: _Cursor, keys: int) -> dict[str, str | int]:
    """Return the strings and unsigned integers among the metadata, passing over the rest."""
    table: dict[str, str | int] = {}
    for _ in range(keys):
        key = cursor.text()
        kind = cursor.unsigned(4)
        if kind == _STRING:
            table[key] = cursor.text()
        elif kind == _ARRAY:
            _skip_array(cursor)
        elif kind in _FIXED:
            table[key] = cursor.unsigned(_FIXED[kind])
        else:
            raise _Damaged(f"metadata {key[:60]!r} has an unknown type {kind}")
    return table


def _find_strings(cursor: _Cursor, wanted: str) -> list[str]:
    """Return the list of strings of a key, passing over the others."""
    for _ in range(cursor.unsigned(8)):
        key, kind = cursor.text(), cursor.unsigned(4)
        if kind == _STRING:
            cursor.text()
        elif kind != _ARRAY:
            cursor.skip(_FIXED[kind])
        elif key == wanted and cursor.peek(4) == _STRING:
            cursor.skip(4)
            return [cursor.text() for _ in range(cursor.unsigned(8))]
        else:
            _skip_array(cursor)
    return []


def _skip_array(cursor: _Cursor) -> None:
    """Pass over a list of values of one type; lists of lists do not occur in the files of ggml."""
    kind, count = cursor.unsigned(4), cursor.unsigned(8)
    if kind == _STRING:
        for _ in range(count):
            cursor.skip(cursor.unsigned(8))
    elif kind in _FIXED:
        cursor.skip(count * _FIXED[kind])
    else:
        raise _Damaged(f"a list has elements of an unknown type {kind}")


def _read_tensors(cursor: _Cursor, tensors: int) -> tuple[int, int]:
    """Return the elements of all tensors, and where the last of them ends in the data."""
    parameters = end = 0
    for _ in range(tensors):
        name, dimensions = cursor.text(), cursor.unsigned(4)
        if dimensions > MOST_DIMENSIONS:
            raise _Damaged(f"tensor {name[:60]!r} has {dimensions} dimensions")
        elements = math.prod(cursor.unsigned(8) for _ in range(dimensions))
        kind, offset = cursor.unsigned(4), cursor.unsigned(8)
        block, size = _BLOCKS.get(kind, (1, 0))
        parameters += elements
        end = max(end, offset + math.ceil(elements / block) * size)
    return parameters, end


def _unreadable(path: Path, error: OSError) -> UserError:
    """Return the error for a file that the system does not hand over."""
    return UserError(f"{path} cannot be read: {error.strerror}.", remedy="Make the file readable.")
