"""Which tool wrote a file, by its content alone. Layer: ``importers``.

Source: formats, sections 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regimescope.errors import UserError
from regimescope.importers import (
    aiperf,
    asiai,
    ds4_bench,
    guidellm,
    llama_bench,
    llama_benchy,
    llama_server,
    llama_windows,
    mlx_bench,
    ollama,
    optimum_benchmark,
    paper_harness,
    vllm_latency,
    vllm_serve,
)
from regimescope.importers.content import Content, read_content
from regimescope.importers.foreign import Format, Hints
from regimescope.importers.one_sweep import FileOf, one_sweep
from regimescope.records import Run
from regimescope.spec import Axis
from regimescope.units import listing

FORMATS: tuple[Format, ...] = (
    optimum_benchmark.FORMAT,
    guidellm.FORMAT,
    aiperf.FORMAT,
    vllm_serve.FORMAT,
    vllm_latency.FORMAT,
    llama_bench.FORMAT,
    mlx_bench.FORMAT,
    llama_windows.BATCHED,
    llama_windows.SWEEP,
    llama_server.FORMAT,
    llama_benchy.FORMAT,
    ds4_bench.FORMAT,
    ollama.API,
    ollama.TABLE,
    paper_harness.FORMAT,
    asiai.FORMAT,
)


def recognize(content: Content) -> Format | None:
    """Return the format of a file, or ``None`` if it is of none of them.

    Raises:
        UserError: It has the marks of several.
    """
    fitting = [each for each in FORMATS if each.fits(content)]
    if len(fitting) > 1:
        raise UserError(
            f"{content.path} may be of {listing(each.name for each in fitting)}.",
            remedy="Keep the results of one tool in a file.",
        )
    return fitting[0] if fitting else None


def is_recognized(path: Path) -> bool:
    """Return whether a file is of a known tool."""
    return recognize(read_content(path)) is not None


def read_recognized(paths: Sequence[Path], hints: Hints, axis: Axis | None) -> Run:
    """Return the sweep that files of one tool hold together.

    Raises:
        UserError: A file is of no known tool, they are of several, or hold no sweep.
    """
    files: list[FileOf] = []
    names: dict[str, Path] = {}
    for path in paths:
        content = read_content(path)
        found = recognize(content)
        if found is None:
            raise UserError(f"{path} is of no known tool.", remedy=f"Known: {known()}.")
        names.setdefault(found.name, path)
        read = found.read(content, hints)
        if content.torn:
            read.rejected.append("the last line is cut off")
        files.append(FileOf(path.name, read, found.file_is_process))
    if len(names) > 1:
        what = listing(f"{path} of {name}" for name, path in names.items())
        raise UserError(
            f"The files are of several tools: {what}.", remedy="Analyze each by itself."
        )
    return one_sweep(next(iter(names)), files, axis)


def known() -> str:
    """Return the names of the formats, for a message."""
    return listing((each.name for each in FORMATS), most=20)
