"""Counts of the benchmark on disk.

While it runs, a line for some sweeps of one cell, appended as they end. What is kept with the code,
so that the next machine goes on where the last one stopped, has a line for all sweeps of one cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from benchmarks.detection.cells import SEED
from benchmarks.detection.scoring import OURS, Score

Key = tuple[str, str, str, str]  # noise, column, method, input
Scores = dict[Key, Score]

# Raised when the design or a result of the statistics changes; other counts are left aside.
DESIGN = 2


class Task(NamedTuple):
    """Some sweeps of one cell.

    Attributes:
        noise: name of the noise cell.
        column: what is true.
        first: number of the first sweep.
        compare: whether the baselines run as well.
    """

    noise: str
    column: str
    first: int
    compare: bool


def load(path: Path, kept: Path | None = None) -> tuple[Scores, set[Task]]:
    """Sum the stored counts by cell and method, and name the tasks that they come from.

    Args:
        path: Counts of runs on this machine; may not exist.
        kept: Counts kept with the code, from ``keep``.
    """
    scores: Scores = {}
    done: set[Task] = set()
    for stored in _lines(kept) if kept is not None else ():
        cell = (stored["noise"], stored["column"])
        done |= {Task(*cell, first, stored["compare"]) for first in stored["tasks"]}
        for row in stored["rows"]:
            _add(scores, cell, row)
    for stored in _lines(path):
        task = Task(stored["noise"], stored["column"], stored["first"], stored["compare"])
        if task in done:
            continue
        for row in stored["rows"]:
            # A task may have run twice, with and without the baselines; count each method once.
            if (task._replace(compare=not task.compare)) in done and row["method"] == OURS:
                continue
            _add(scores, (task.noise, task.column), row)
        done.add(task)
    return scores, done


def keep(path: Path, scores: Scores, done: set[Task]) -> None:
    """Write all counts in the short form, in an order that does not depend on how they came.

    A cell's counts stand in one line even where some of its sweeps ran without the baselines.
    """
    lines = []
    for noise, column in sorted({(task.noise, task.column) for task in done}):
        rows = [
            {"method": method, "input": given, **score.as_row()}
            for (n, c, method, given), score in sorted(scores.items())
            if (n, c) == (noise, column)
        ]
        for compare in (True, False):
            tasks = sorted(t.first for t in done if t == Task(noise, column, t.first, compare))
            if tasks:
                cell = {"noise": noise, "column": column, "compare": compare, "tasks": tasks}
                lines.append({"design": DESIGN, "seed": SEED, **cell, "rows": rows})
                rows = []
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file that belong to this design."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in filter(None, lines):
        try:
            stored = msgspec.json.decode(line)
        except msgspec.DecodeError:  # the last line of a run that was killed
            continue
        if (stored["design"], stored["seed"]) == (DESIGN, SEED):
            yield stored


def _add(scores: Scores, cell: tuple[str, str], row: dict[str, Any]) -> None:
    """Add the counts of one method in one cell."""
    key: Key = (*cell, row.pop("method"), row.pop("input"))
    scores.setdefault(key, Score()).add(Score(**row))


def store(path: Path, task: Task, found: dict[tuple[str, str], Score]) -> None:
    """Append the counts of a task."""
    rows = [{"method": m, "input": i, **s.as_row()} for (m, i), s in found.items()]
    line = {"design": DESIGN, "seed": SEED, **task._asdict(), "rows": rows}
    # Unbuffered: one write a line, so that two runs can share the file. The line break comes first,
    # so that a line cut short by a kill does not take the next one with it.
    with path.open("ab", buffering=0) as file:
        file.write(b"\n" + msgspec.json.encode(line))
