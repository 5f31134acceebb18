import struct

import pytest
from tests.small_model import gguf_path
from tests.unit.engines.gguf_writer import (
    ARCHITECTURE,
    ARRAY,
    BOOL,
    F32,
    FLOAT32,
    Q4_0,
    Q4_K,
    UINT8,
    UINT32,
    UINT64,
    UNKNOWN,
    gguf,
    key,
    string_list,
    tensor,
    text,
)

from regimescope.engines.gguf_file import read_header
from regimescope.errors import UserError

OTHER_KEYS = (
    key("llama.block_count", UINT32, struct.pack("<I", 2)),
    key("llama.epsilon", FLOAT32, struct.pack("<f", 1e-5)),
    key("llama.odd", BOOL, b"\1"),
    key("llama.wide", UINT64, struct.pack("<Q", 1 << 40)),
    key("tokenizer.tokens", ARRAY, string_list("a", "", "é")),
    key("tokenizer.types", ARRAY, struct.pack("<IQ3i", 5, 3, 1, -1, 1)),
    key("tokenizer.bytes", ARRAY, struct.pack("<IQ2B", UINT8, 2, 7, 8)),
)
# 6 floats at 0, then 64 elements of Q4_0 at 32: 2 blocks of 18 bytes.
TENSORS = (tensor("norm", (6,), F32, 0), tensor("table", (32, 2), Q4_0, 32))
WHOLE = gguf((*OTHER_KEYS, ARCHITECTURE), TENSORS, b"\0" * 68)


@pytest.fixture
def file(tmp_path):
    def write(content):
        path = tmp_path / "model.gguf"
        path.write_bytes(content)
        return path

    return write


def test_header_tells_architecture_parameters_and_length(file):
    header = read_header(file(WHOLE))
    assert header.architecture == "llama"
    assert (header.parameters, header.tensors) == (6 + 64, 2)
    assert header.needed_bytes == len(WHOLE)


def test_real_file_is_as_long_as_its_header_says():
    path = gguf_path()
    header = read_header(path)
    assert header.parameters == 134_515_008
    assert header.needed_bytes == path.stat().st_size


def test_every_file_cut_short_is_told_apart_from_a_whole_one(file):
    for length in range(len(WHOLE)):
        with pytest.raises(UserError) as caught:
            read_header(file(WHOLE[:length]))
        assert "cut short" in caught.value.message or "no GGUF" in caught.value.message
        assert "\n" not in caught.value.message
        assert caught.value.remedy


def test_missing_data_is_told_with_both_lengths(file):
    with pytest.raises(UserError, match=f"2 tensors take {len(WHOLE)} bytes, .* {len(WHOLE) - 1}"):
        read_header(file(WHOLE[:-1]))


def test_alignment_of_the_file_is_honored(file):
    keys = (ARCHITECTURE, key("general.alignment", UINT32, struct.pack("<I", 4096)))
    header = read_header(file(gguf(keys, TENSORS).ljust(4096 + 68, b"\0")))
    assert header.needed_bytes == 4096 + 68


def test_last_block_counts_whole(file):
    tensors = (tensor("odd", (300,), Q4_K, 0),)
    content = gguf(tensors=tensors)
    assert read_header(file(content + b"\0" * 288)).needed_bytes == len(content) + 2 * 144


def test_length_of_a_newer_element_type_is_not_guessed(file):
    content = gguf(tensors=(tensor("new", (1024,), UNKNOWN, 64),), data=b"\0" * 64)
    assert read_header(file(content)).needed_bytes == len(content)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "no GGUF file"),
        (b"{}\n", "no GGUF file"),
        (b"ggjt" + WHOLE[4:], "no GGUF file"),
        (gguf(version=1), "version 1"),
        (gguf(version=4), "version 4"),
        (gguf(version=0x03000000), "version 50331648"),
        (gguf(counts=(1 << 60, 1)), "claims"),
        (gguf(counts=(0, 1 << 60)), "claims"),
        (gguf((b"\xff" * 24,)), "past the end"),
        (gguf(()), "names no architecture"),
        (gguf((key("general.architecture", UINT32, b"\1\0\0\0"),)), "names no architecture"),
        (gguf((key("x", 77, b""),)), "unknown type 77"),
        (gguf((key("x", ARRAY, struct.pack("<IQ", ARRAY, 1)),)), "unknown type 9"),
        (gguf((key("x", ARRAY, struct.pack("<IQ", UINT32, 1 << 62)),)), "past the end"),
        (gguf(tensors=(text("t") + struct.pack("<I", 2**31),)), "dimensions"),
        (
            gguf((ARCHITECTURE, key("general.alignment", UINT32, b"\0" * 4))),
            "its alignment is 0",
        ),
        (gguf(tensors=(tensor("far", (8,), F32, 1 << 62),)), "cut short"),
        (gguf(tensors=(tensor("huge", (1 << 60, 1 << 60), F32, 0),)), "cut short"),
    ],
)
def test_what_is_no_model_is_refused_in_one_line(file, content, named):
    with pytest.raises(UserError) as caught:
        read_header(file(content))
    assert named in caught.value.message
    assert "model.gguf" in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.remedy


def test_one_part_of_several_is_refused(file):
    keys = (ARCHITECTURE, key("split.count", UINT32, struct.pack("<I", 3)))
    with pytest.raises(UserError, match="one of 3 parts") as caught:
        read_header(file(gguf(keys)))
    assert "--merge" in caught.value.remedy


def test_folder_in_place_of_a_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        read_header(tmp_path)
