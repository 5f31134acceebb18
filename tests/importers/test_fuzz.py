"""Damaged files of every tool: a named error or measurements, nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.importers.tool_files import SAMPLES

from regimescope.errors import UserError
from regimescope.importers.content import read_content
from regimescope.importers.foreign import Hints
from regimescope.importers.recognized import read_recognized, recognize

# What breaks readers: brackets, numbers out of range, other types, separators, controls.
PIECES = (
    b"", b"null", b"-1", b"0", b"1e999", b"9" * 400, b"NaN", b"true", b'"', b"{", b"}", b"[", b"]",
    b",", b":", b"|", b"\n", b"\r", b"\x00", b"\xff", b"\x1b[31m", b"[[" * 80, b'{"a":' * 70,
    b"\xef\xbb\xbf", "٣".encode(), b"\\u0000", b"'", b"@", b"=",
)  # fmt: skip
LENGTHS = {"budget": 128, "prompt_tokens": 32}


@st.composite
def damage(draw: st.DrawFn) -> list[tuple[float, int, bytes]]:
    """Return edits: where, as a share of the file, how many bytes go, what comes instead."""
    edit = st.tuples(st.floats(0, 1, allow_nan=False), st.integers(0, 12), st.sampled_from(PIECES))
    return draw(st.lists(edit, min_size=1, max_size=4))


@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.iterdir()))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(edits=damage())
@example(edits=[(1.0, 0, b"")])
def test_a_damaged_file_is_refused_by_name_or_read(
    sample: str, edits: list[tuple[float, int, bytes]], tmp_path: Path
) -> None:
    data = (SAMPLES / sample).read_bytes()
    for where, gone, piece in edits:
        start = int(where * len(data))
        data = data[:start] + piece + data[start + gone :]
    path = tmp_path / sample
    path.write_bytes(data)
    refused: UserError | None = None
    try:
        content = read_content(path)
        form = recognize(content)
        if form is None:
            return
        found = form.read(content, Hints(LENGTHS))
        # Whatever was read is a measurement: no time of zero or less got through.
        for trial in found.trials:
            for value in (trial.ttft_s, trial.decode_s, trial.e2e_s, *(trial.itl_s or ())):
                assert value is None or 0 < value < float("inf")
        read_recognized([path], Hints(LENGTHS), None)
    except UserError as error:
        refused = error
    assert refused is None or (refused.message and refused.remedy)
