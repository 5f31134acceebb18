"""Files of measurements made elsewhere as one run, whatever wrote them. Layer: ``importers``.

A case file and the file of a known tool are recognized by content; of any other table the user
names the columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regimescope.errors import RunFolderError, SpecError, UserError
from regimescope.importers.case import read_case
from regimescope.importers.case_file import looks_like_case, no_case
from regimescope.importers.content import read_content
from regimescope.importers.foreign import Hints
from regimescope.importers.generic import Columns, read_table
from regimescope.importers.merging import merged, refuse_copies
from regimescope.importers.recognized import FORMATS, read_recognized, recognize
from regimescope.importers.table_rows import is_parquet
from regimescope.records import Run
from regimescope.spec import Axis
from regimescope.units import listing

# On these a file of another tool can be read.
AXES: tuple[Axis, ...] = ("budget", "prompt", "context", "batch")


class Asked(NamedTuple):
    """What the user says of files.

    Attributes:
        x: Column of the decoding budget; tables only.
        y: Column of the latency; tables only.
        more: What else is said of a table, by the names of ``generic.Columns``.
        axis: Axis to read; files of known tools only.
        hints: Lengths that such files do not tell.
    """

    x: str | None = None
    y: str | None = None
    axis: str | None = None
    hints: Hints = Hints()
    more: Mapping[str, Any] = {}

    @property
    def names_columns(self) -> bool:
        """Whether any column is named."""
        return self.x is not None or self.y is not None or bool(self.more)

    @property
    def is_of_tools(self) -> bool:
        """Whether anything is said that only files of known tools need."""
        return self.axis is not None or bool(self.hints.lengths) or self.hints.pattern is not None


def read_files(paths: Sequence[Path], asked: Asked) -> Run:
    """Return files of one sweep as one run.

    Raises:
        UserError: A file cannot be read or is of no known form, two are the same, or they are of
            different forms.
    """
    for path in paths:
        _refuse_absent(path)
    refuse_copies(paths)
    axis = next((each for each in AXES if each == asked.axis), None)
    if asked.axis is not None and axis is None:
        raise SpecError(
            f"--axis {asked.axis!r} is not known.", remedy=f"Choose one of: {listing(AXES)}."
        )
    if not asked.names_columns and any(_is_of_tool(path) for path in paths):
        return read_recognized(paths, asked.hints, axis)
    if asked.is_of_tools:
        raise UserError(
            f"{paths[0]} is of no known tool; --axis, --pattern and lengths are for such files.",
            remedy=f"Leave them out. Known tools: {listing((f.name for f in FORMATS), most=20)}.",
        )
    return merged([_read_file(path, asked) for path in paths])


def no_table(path: Path, what: str) -> UserError:
    """Return the error for columns that are named where there are none."""
    return UserError(
        f"{path} is {what}; --x and --y name columns of a table.", remedy="Leave them out."
    )


def _refuse_absent(path: Path) -> None:
    """Refuse what is no file."""
    if not path.exists():
        raise UserError(f"{path} does not exist.", remedy="Name a run folder or a file.")
    if path.is_dir():
        raise RunFolderError(
            f"{path} is no run folder.", remedy="Name one that a scan has written."
        )


def _is_of_tool(path: Path) -> bool:
    """Return whether a file is of a known tool."""
    if is_parquet(path) or looks_like_case(path):
        return False
    return recognize(read_content(path)) is not None


def _read_file(path: Path, asked: Asked) -> Run:
    """Return a case file or a table as a run."""
    if looks_like_case(path):
        if asked.names_columns:
            raise no_table(path, "a case file, which names its own axis")
        return read_case(path)
    if asked.x is not None and asked.y is not None:
        return read_table(path, Columns(asked.x, asked.y, **asked.more))
    if path.suffix.lower() == ".toml":
        raise no_case(path)
    raise UserError(
        f"Which columns of {path} hold budget and latency?",
        remedy="Name both, for example --x budget --y latency_s.",
    )
