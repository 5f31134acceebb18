"""Names of the files of a run folder and how large they may be. Layer: ``store``.

The limits hold for writing too, so that whatever was written can be read. Nothing is ever thinned
on the way to the disk: a trial is stored whole or refused with an error that names the limit.
"""

from __future__ import annotations

from pathlib import Path

from regimescope.errors import RunFolderError

HEADER, TRIALS, EVENTS = "run.json", "trials.jsonl", "events.jsonl"

# A header holds the plan; ten thousand planned trials are about 4 MB of indented JSON.
MAX_HEADER_BYTES = 64 * 1024 * 1024
# The largest budget, 2**20 tokens, is a line of 12 MB, at 11 digits and a comma for each gap. The
# pipe from the measured process, which carries the same trial, takes no more either.
MAX_LINE_BYTES = 32 * 1024 * 1024
# Lines of one file. A trial costs about 2 kB of memory beside its gaps, so half a GB for all.
MAX_LINES = 250_000
# Values of one file: numbers, texts, lists and objects, nearly all of them gaps between tokens. A
# gap takes 32 bytes of memory, so 0.8 GB; the target of the design is an analysis of 10**7 gaps.
MAX_VALUES = 25_000_000
# Texts take memory by their length, up to four bytes a character; a gap is 12 bytes of file.
MAX_FILE_BYTES = 512 * 1024 * 1024

REMEDY_TOO_LARGE = "Split the measurements over several runs."


class Allowance:
    """What a file may still hold; every line read or written is taken off it."""

    def __init__(self, file: Path) -> None:
        """Start with a file of which no line has been seen."""
        self._file = file
        self.lines = 0
        self._values = 0
        self._bytes = 0

    def take(self, line: bytes) -> None:
        """Take a line off.

        Raises:
            RunFolderError: The line, or the file with it, is beyond a limit.
        """
        self.lines += 1
        if len(line) > MAX_LINE_BYTES:
            raise self._beyond(f"the line is longer than {MAX_LINE_BYTES:,} bytes")
        self._values += count_values(line)
        self._bytes += len(line)
        for what, number, most in (
            ("lines", self.lines, MAX_LINES),
            ("values (gaps, for the most part)", self._values, MAX_VALUES),
            ("bytes", self._bytes, MAX_FILE_BYTES),
        ):
            if number > most:
                raise self._beyond(f"a file may hold {most:,} {what}, and this is more")

    def _beyond(self, why: str) -> RunFolderError:
        """Return the error for what is too large."""
        return RunFolderError(f"{self._file}, line {self.lines}: {why}.", remedy=REMEDY_TOO_LARGE)


def count_values(text: bytes) -> int:
    """Return at least the number of values that JSON holds, without reading it.

    Each value follows a comma or opens a list or an object.
    """
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{")
