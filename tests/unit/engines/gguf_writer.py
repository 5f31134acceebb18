"""GGUF files made byte by byte, so that the reader is tested against the layout itself."""

import struct

# Numbers of types in the metadata.
UINT8, UINT32, FLOAT32, BOOL, STRING, ARRAY, UINT64 = 0, 4, 6, 7, 8, 9, 10
F32, Q4_0, Q4_K, UNKNOWN = 0, 2, 12, 99


def text(value):
    """Return a string as GGUF has it."""
    return struct.pack("<Q", len(value.encode())) + value.encode()


def key(name, kind, value):
    """Return one entry of the metadata; ``value`` is its bytes."""
    return text(name) + struct.pack("<I", kind) + value


def string_list(*values):
    """Return a list of strings, without its key."""
    return struct.pack("<IQ", STRING, len(values)) + b"".join(map(text, values))


def tensor(name, shape, kind, offset):
    """Return one entry of the table of tensors."""
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + dimensions + struct.pack("<IQ", kind, offset)


ARCHITECTURE = key("general.architecture", STRING, text("llama"))


def gguf(keys=(ARCHITECTURE,), tensors=(), data=b"", version=3, counts=None):
    """Return a file: header, padding to 32 bytes, data.

    ``counts`` overrides how many tensors and keys it claims.
    """
    claimed = counts or (len(tensors), len(keys))
    head = b"GGUF" + struct.pack("<IQQ", version, *claimed)
    head += b"".join(keys) + b"".join(tensors)
    return head + b"\0" * (-len(head) % 32) + data
