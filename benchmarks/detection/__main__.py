"""Run the benchmark and write its section of docs/benchmarks.md.

    python -m benchmarks.detection [--quick] [--sweeps 300] [--clean-sweeps 2000] [--minutes 60]

Counts are appended to build/detection/results.jsonl as they come, so that a run that was stopped
goes on where it was, and later runs add sweeps; ``--keep`` adds them to benchmarks/detection/
counts.jsonl, from where another machine goes on. ``--render`` writes the page from what there is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, process_time

from benchmarks.detection.cells import (
    CLEAN_COLUMNS,
    EDGE_COLUMNS,
    REGIME_COLUMNS,
    draw_case,
    noises,
)
from benchmarks.detection.evaluation import evaluate
from benchmarks.detection.methods import Detector, baselines
from benchmarks.detection.otava_process import Otava, start_otava
from benchmarks.detection.page import otava_words, write_page
from benchmarks.detection.penalties import load_penalties
from benchmarks.detection.results import Task, keep, load, store
from benchmarks.detection.scoring import Score

BUILD = Path("build") / "detection"
KEPT = Path(__file__).with_name("counts.jsonl")
CHUNK = 10  # sweeps a line of the file
QUICK_NOISES = ("gauss", "heavy")
QUICK_SWEEPS = 10
COMPARED = ("clean", "step2", *REGIME_COLUMNS)  # columns in which baselines run


class _Bench:
    """What a process needs for its tasks."""

    def __init__(self, build: Path, compare: bool, stack: ExitStack) -> None:
        self.noises = noises()
        self.otava: str | None = None
        self.child: Otava | None = None
        self.detectors: dict[str, Detector] = {}
        if compare:
            penalties = load_penalties(build / "penalties.json")
            child = start_otava(build / "otava")
            if isinstance(child, str):
                self.otava = child
                self.detectors = baselines(penalties, None)
            else:
                self.child = stack.enter_context(child)
                self.detectors = baselines(penalties, child)

    def clock(self) -> float:
        """Processor seconds spent so far, those of the child included."""
        return process_time() + (self.child.cpu_s if self.child else 0.0)

    def run(self, task: Task) -> dict[tuple[str, str], Score]:
        """Score all methods of a task."""
        found: dict[tuple[str, str], Score] = {}
        for number in range(task.first, task.first + CHUNK):
            case = draw_case(task.noise, self.noises[task.noise], task.column, number)
            for row in evaluate(case, self.detectors if task.compare else None, self.clock):
                found.setdefault((row.method, row.input), Score()).add(row.score)
        return found


_STACK = ExitStack()
_WORKERS: list[_Bench] = []


def _start_worker(build: Path, compare: bool) -> None:
    _WORKERS.append(_Bench(build, compare, _STACK))


def _work(task: Task) -> tuple[Task, dict[tuple[str, str], Score]]:
    return task, _WORKERS[0].run(task)


def planned(asked: argparse.Namespace) -> Iterator[Task]:
    """All tasks, round after round over the cells, so that a run cut short is even."""
    names = asked.noises or list(noises())
    columns = asked.columns or [*CLEAN_COLUMNS, *REGIME_COLUMNS, *EDGE_COLUMNS]
    sizes = {c: asked.clean_sweeps if c == "clean" else asked.sweeps for c in columns}
    for first in range(0, max(sizes.values()), CHUNK):
        for noise in names:
            for column in columns:
                if first < sizes[column]:
                    near = column in COMPARED and first < asked.compare
                    yield Task(noise, column, first, near)


def measure(asked: argparse.Namespace, path: Path) -> str | None:
    """Run what is planned and not stored yet; return why Otava did not run, or None."""
    _, done = load(path, KEPT)
    tasks = [
        task
        for task in planned(asked)
        if task not in done and not (not task.compare and task._replace(compare=True) in done)
    ]
    end = monotonic() + 60 * asked.minutes
    compare = any(task.compare for task in tasks)
    with ExitStack() as stack:
        bench = _Bench(asked.build, compare, stack)
        if asked.jobs == 1:
            for task in tasks:
                if monotonic() > end:
                    break
                store(path, task, bench.run(task))
            return bench.otava
        pool = stack.enter_context(
            ProcessPoolExecutor(asked.jobs, None, _start_worker, (asked.build, compare))
        )
        rest = iter(tasks)
        while monotonic() < end:
            batch = [task for task, _ in zip(rest, range(asked.jobs), strict=False)]
            if not batch:
                break
            for task, found in pool.map(_work, batch):
                store(path, task, found)
        return bench.otava


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detection")
    parser.add_argument("--quick", action="store_true", help="few sweeps, two noise cells")
    parser.add_argument("--sweeps", type=int, default=300, help="per cell with anything on it")
    parser.add_argument("--clean-sweeps", type=int, default=2000, help="per clean cell")
    parser.add_argument("--compare", type=int, default=300, help="of these, with the baselines")
    parser.add_argument("--noises", nargs="*", help="noise cells; all by default")
    parser.add_argument("--columns", nargs="*", help="columns; all by default")
    parser.add_argument("--minutes", type=float, default=24 * 60.0, help="stop after")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--render", action="store_true", help="only write the page")
    parser.add_argument("--keep", action="store_true", help="keep the counts with the code")
    parser.add_argument("--build", type=Path, default=BUILD, help="folder of the counts")
    asked = parser.parse_args(given)
    if asked.quick:
        asked.sweeps = asked.clean_sweeps = asked.compare = QUICK_SWEEPS
        asked.noises = asked.noises or list(QUICK_NOISES)
    return asked


def main() -> int:
    """Measure, then write the page."""
    asked = arguments()
    asked.build.mkdir(parents=True, exist_ok=True)
    path = asked.build / "results.jsonl"
    reason = None if asked.render else measure(asked, path)
    scores, done = load(path, KEPT)
    if asked.keep:
        keep(KEPT, scores, done)
    ran = any(key[2].startswith("Otava") for key in scores)
    print(write_page(scores, otava_words(None if ran else reason or "no cell asked for it")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
