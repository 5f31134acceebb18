"""Counts of the benchmark on disk: one line for some sweeps of one cell, appended as they end."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
from benchmarks.detection.cells import SEED
from benchmarks.detection.scoring import OURS, Score

Key = tuple[str, str, str, str]  # noise, column, method, input
Scores = dict[Key, Score]

DESIGN = 1  # raised when the design changes; counts of another design are left aside


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


def load(path: Path) -> tuple[Scores, set[Task]]:
    """Sum the stored counts by cell and method, and name the tasks that they come from."""
    scores: Scores = {}
    done: set[Task] = set()
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in filter(None, lines):
        try:
            stored = msgspec.json.decode(line)
        except msgspec.DecodeError:  # the last line of a run that was killed
            continue
        if (stored["design"], stored["seed"]) != (DESIGN, SEED):
            continue
        task = Task(stored["noise"], stored["column"], stored["first"], stored["compare"])
        if task in done:
            continue
        for row in stored["rows"]:
            key: Key = (task.noise, task.column, row.pop("method"), row.pop("input"))
            # A task may have run twice, with and without the baselines; count each method once.
            if (task._replace(compare=not task.compare)) in done and key[2] == OURS:
                continue
            scores.setdefault(key, Score()).add(Score(**row))
        done.add(task)
    return scores, done


def store(path: Path, task: Task, found: dict[tuple[str, str], Score]) -> None:
    """Append the counts of a task."""
    rows = [{"method": m, "input": i, **s.as_row()} for (m, i), s in found.items()]
    line = {"design": DESIGN, "seed": SEED, **task._asdict(), "rows": rows}
    # Unbuffered: one write a line, so that two runs can share the file. The line break comes first,
    # so that a line cut short by a kill does not take the next one with it.
    with path.open("ab", buffering=0) as file:
        file.write(b"\n" + msgspec.json.encode(line))
