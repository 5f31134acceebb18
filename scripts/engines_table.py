"""Measure ways of decoding and models, and write the tables of docs/engines.md.

    python scripts/engines_table.py [--only PATTERN] [--processes 5] [--max-seconds 7200] ...

Every row is a scan with a fixed plan in a run folder of its own under ``--runs``. Rows that are
finished are read, one that was interrupted goes on, so the script can be stopped and started at
will; ``--max-seconds`` stops it between two rows. A number in a table is the mean over processes
with its 95 % interval, geometric for times; the processes of a row are its replicates.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace
from scipy import stats

from regimescope import Run, ScanSpec, Trial, load_run, resume, scan
from regimescope.errors import RegimescopeError
from regimescope.host.facts import processor_name
from regimescope.metrics import tpot_s
from regimescope.testing.local_server import local_server
from regimescope.units import count

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "engines.md"
PROMPT_TOKENS = 64
# Tokens of context between the first step and the last, over which the slope is taken.
BUDGET = 192
# One thread each: on shared cores a second one spins while it waits, and MLX offers no choice.
THREADS = 1
LEVEL = 0.95
FAMILIES = ("distilgpt2", "gpt2", "gpt2-medium", "gpt2-large", "bloom-560m", "opt-350m")
Floats = npt.NDArray[np.float64]


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        table: Name of the table.
        labels: What the row is called there.
        spec: What is measured for it.
        served: The model that our own server serves meanwhile, if any.
    """

    table: str
    labels: tuple[str, ...]
    spec: ScanSpec
    served: str = ""

    @property
    def key(self) -> str:
        """The name of its run folder."""
        return re.sub(r"[^a-z0-9.-]+", "-", "-".join((self.table, *self.labels)).lower())


class Figure(NamedTuple):
    """A mean over processes with its interval."""

    mean: float
    low: float
    high: float


class Figures(NamedTuple):
    """What a row shows: seconds to the first token, per token, and per 1000 tokens of context."""

    processes: int
    ttft_s: Figure
    tpot_s: Figure
    slope_s: Figure


HEADINGS = {
    "ways": ("engine", "cache", "attention", "dtype"),
    "families": ("model", "parameters"),
}


# Kinds of cache and attention in transformers, by element type. Half precision is emulated on most
# processors, and without a cache every step reads the whole text: one row of each is enough.
HF_WAYS = {
    "float32": (
        *(("dynamic", kernel) for kernel in ("eager", "sdpa", "math", "flash", "efficient")),
        *(("static", kernel) for kernel in ("eager", "sdpa")),
        ("quantized", "sdpa"),
        ("offloaded", "sdpa"),
        ("off", "sdpa"),
    ),
    "bfloat16": (
        *(("dynamic", kernel) for kernel in ("eager", "sdpa")),
        ("static", "sdpa"),
        ("quantized", "sdpa"),
    ),
}
# Without a cache MLX takes more than seven seconds a token on a processor: not a row but an hour.
MLX_WAYS = {"float32": ("growing", "quantized"), "bfloat16": ("growing", "quantized")}
LLAMA_CPP_WAYS = (("f16", "on"), ("f16", "off"), ("q8_0", "on"))


def way_rows(base: ScanSpec, gguf: str | None) -> list[Row]:
    """Return a row for each engine, kind of cache, attention and element type.

    Args:
        base: What all rows have in common.
        gguf: A file with the same architecture for llama.cpp, which makes no random weights.
    """
    rows = []
    for dtype, ways in HF_WAYS.items():
        for cache, attention in ways:
            options = {
                "cache": "dynamic" if cache == "off" else cache,
                "attention": attention,
                "threads": THREADS,
            }
            rows.append(_way(base, "hf", (cache, attention, dtype), options))
    for dtype, kinds in MLX_WAYS.items():
        for kind in kinds:
            cached = {} if kind == "growing" else {"cache": kind}
            rows.append(_way(base, "mlx", (kind, "fused", dtype), cached))
    if gguf is not None:
        file = _changed(base, model=gguf)
        for kind, flash in LLAMA_CPP_WAYS:
            way = (kind, "flash" if flash == "on" else "plain", "file")
            server = {"cache_type": kind, "flash_attention": flash, "threads": THREADS}
            rows.append(_way(file, "llama_cpp", way, server))
    over_http = _way(
        _changed(base, model="server", device="auto"), "openai", ("dynamic", "sdpa", "float32"), {}
    )
    return [*rows, over_http._replace(served=base.model)]


def family_rows(base: ScanSpec) -> list[Row]:
    """Return a row for each model."""
    return [
        Row(
            "families",
            (model,),
            _changed(base, model=model, engine="hf", engine_options={"threads": THREADS}),
        )
        for model in FAMILIES
    ]


def measured(row: Row, runs: Path) -> Run:
    """Return the run of a row: finished before, gone on with, or begun.

    Raises:
        RegimescopeError: It cannot be measured here.
        ValueError: Its folder holds a run of other settings.
    """
    folder = runs / row.key
    if row.served:
        return served(row, runs)
    if not folder.exists():
        return scan(row.spec, out=folder)
    run = load_run(folder)
    if run.header.spec is None or not _same(run.header.spec, row.spec):
        raise ValueError(f"{folder} was measured with other settings; give another --runs")
    return run if any(event.kind == "done" for event in run.events) else resume(folder)


def served(row: Row, runs: Path) -> Run:
    """Return one run of several starts of our own server, each the process of its trials.

    Raises:
        ValueError: A start was interrupted; its server had another port.
    """
    spec = _changed(row.spec, processes=1)
    options = (f"--engine-option=threads={THREADS}", "--engine-option=attention=sdpa")
    starts = []
    for number in range(row.spec.processes):
        folder = runs / f"{row.key}-{number}"
        if not folder.exists():
            with local_server(row.served, "--device", "cpu", *options) as url:
                scan(_changed(spec, engine_options={"url": f"{url}/v1"}), out=folder)
        run = load_run(folder)
        if not any(event.kind == "done" for event in run.events):
            raise ValueError(f"{folder} was interrupted; remove it")
        starts.append([replace(trial, process_run=number) for trial in run.trials])
    return replace(run, trials=type(run.trials)(chain.from_iterable(starts)))


def figures(run: Run) -> Figures:
    """Return what a row shows.

    Raises:
        ValueError: Fewer than two processes have measured anything.
    """
    by_process: dict[int, list[Trial]] = {}
    for trial in run.trials:
        if trial.status == "ok" and not trial.warmup and not trial.sentinel and trial.itl_s:
            by_process.setdefault(trial.process_run or 0, []).append(trial)
    if len(by_process) < 2:
        raise ValueError(f"{run.header.run}: an interval needs two processes")
    ttft, tpot, slope = np.array([_of_process(trials) for trials in by_process.values()]).T
    # Times differ by factors, so their interval is one of factors; a slope may be zero or less.
    return Figures(len(by_process), factor_interval(ttft), factor_interval(tpot), interval(slope))


def interval(values: Floats) -> Figure:
    """Return a mean with its t interval; values of shape (processes,), two or more."""
    half = stats.t.ppf(0.5 + LEVEL / 2, values.size - 1) * stats.sem(values)
    mean = float(values.mean())
    return Figure(mean, mean - float(half), mean + float(half))


def factor_interval(values: Floats) -> Figure:
    """Return a geometric mean with its interval; values above zero, shape (processes,)."""
    return Figure(*np.exp(interval(np.log(values))).tolist())


def _of_process(trials: Sequence[Trial]) -> tuple[float, float, float]:
    """Return TTFT, TPOT and slope per 1000 tokens of one process, medians over its trials."""
    found = [
        (trial.ttft_s, tpot_s(trial.ttft_s, trial.e2e_s, trial.output_tokens), _slope_s(trial))
        for trial in trials
        if trial.ttft_s is not None and trial.e2e_s is not None and trial.output_tokens
    ]
    ttft, tpot, slope = np.median(np.array(found, dtype=np.float64), axis=0)
    return float(ttft), float(tpot), float(slope)


def _slope_s(trial: Trial) -> float:
    """Return seconds of a step per 1000 tokens of context, from the gaps of one generation.

    The median of the slopes of all pairs (Theil-Sen): a few disturbed steps do not move it.
    """
    gaps = np.asarray(trial.itl_s, dtype=np.float64)
    return 1000 * float(stats.theilslopes(gaps, np.arange(gaps.size)).slope)


def table(rows: Sequence[tuple[Row, Run | str]]) -> str:
    """Return rows of one table as Markdown; what could not be measured says why."""
    name = rows[0][0].table
    heading = (*HEADINGS[name], "processes", "TTFT, ms", "TPOT, ms", "ms per 1000 of context")
    lines = [f"| {' | '.join(heading)} |", "|" + "---|" * len(heading)]
    for row, found in rows:
        if isinstance(found, str):
            cells = [*_labels(row, None), "0", found, "", ""]
        else:
            shown = figures(found)
            cells = [*_labels(row, found), str(shown.processes)]
            cells += map(_milliseconds, (shown.ttft_s, shown.tpot_s, shown.slope_s))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def with_table(page: str, name: str, text: str) -> str:
    """Return a page with a text between the two marks of a table."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    head, mark, rest = page.partition(begin)
    _, closing, tail = rest.partition(end)
    if not mark or not closing:
        raise ValueError(f"{PAGE.name} has no place for the table {name}")
    return f"{head}{begin}\n\n{text}\n\n{end}{tail}"


def main() -> None:
    """Measure what is asked for and not there yet, and write the tables."""
    asked = _arguments().parse_args()
    base = ScanSpec(
        device="cpu",
        model=asked.model,
        budgets=(asked.budget // 2, asked.budget),
        mode="nested",
        prompt_tokens=PROMPT_TOKENS,
        processes=asked.processes,
        repeats=asked.repeats,
        sentinel_every=0,
        warm_up_s=asked.warm_up,
        seed=asked.seed,
    )
    rows = [
        row
        for row in way_rows(base, asked.gguf) + family_rows(base)
        if re.search(asked.only, row.key)
    ]
    if asked.list:
        print(*(row.key for row in rows), sep="\n")
        return
    page = PAGE.read_text(encoding="utf-8")
    found = _measure_all(rows, asked.runs, asked.max_seconds)
    for name in HEADINGS:
        mine = [(row, run) for row, run in found if row.table == name]
        if mine:
            page = with_table(page, name, f"{_conditions(base, mine)}\n\n{table(mine)}")
    if asked.dry:
        print(page)
    else:
        PAGE.write_text(page, encoding="utf-8")


def _measure_all(
    rows: Sequence[Row], runs: Path, max_seconds: float
) -> list[tuple[Row, Run | str]]:
    """Measure rows one after the other until time is up; say what each came to."""
    found: list[tuple[Row, Run | str]] = []
    end = time.monotonic() + max_seconds
    for row in rows:
        if time.monotonic() > end and not (runs / row.key).exists():
            print(f"{row.key}: no time left", flush=True)
            continue
        try:
            found.append((row, measured(row, runs)))
            print(f"{row.key}: measured", flush=True)
        except RegimescopeError as error:
            # What a library adds after a colon is for those who run the row, not for the page.
            first_line = str(error).splitlines()[0].split(": ")[0].rstrip(".") + "."
            found.append((row, f"not here: {first_line}"))
            print(f"{row.key}: {first_line}", flush=True)
    return found


def _conditions(base: ScanSpec, rows: Sequence[tuple[Row, Run | str]]) -> str:
    """Return the sentence above a table: machine, versions, plan."""
    runs = [run for _, run in rows if not isinstance(run, str)]
    versions = dict(pair for run in runs for pair in run.header.versions.items())
    threads = {str(r.header.model.settings.get("threads")) for r in runs if r.header.model}
    libraries = ", ".join(
        f"{name} {versions[name]}"
        for name in ("torch", "transformers", "mlx", "mlx_lm", "xllamacpp", "regimescope")
        if name in versions
    )
    model = f"{base.model}, " if rows[0][0].table == "ways" else ""
    return (
        f"{model}random weights, {processor_name()}, {os.cpu_count()} cores, "
        f"threads {' or '.join(sorted(threads - {'None'}))}; {libraries}; "
        f"prompt {base.prompt_tokens}, {base.budgets[-1]} tokens, "
        f"{count(base.repeats, 'generation')} in each process. `python scripts/engines_table.py`."
    )


def _labels(row: Row, run: Run | None) -> tuple[str, ...]:
    """Return the first cells of a row."""
    if row.table != "families":
        return row.labels
    settings = run.header.model.settings if run is not None and run.header.model else {}
    parameters = settings.get("parameters")
    return (*row.labels, f"{parameters / 1e6:.0f} M" if parameters else "")


def _milliseconds(figure: Figure) -> str:
    """Return a figure with its interval in milliseconds."""
    mean, low, high = (_digits(1e3 * value) for value in figure)
    return f"{mean} ({low} to {high})"


def _digits(value: float) -> str:
    """Return a number with three significant digits, whole from a hundred on."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _way(
    base: ScanSpec, engine: str, way: tuple[str, str, str], options: Mapping[str, object]
) -> Row:
    """Return the row of one way of decoding: cache, attention, element type."""
    kv_cache = "off" if way[0] == "off" else "on"
    spec = _changed(
        base, engine=engine, dtype=way[2], kv_cache=kv_cache, engine_options=dict(options)
    )
    return Row("ways", (engine, *way), spec)


def _changed(spec: ScanSpec, **changes: object) -> ScanSpec:
    """Return a spec with other values."""
    values = {name: getattr(spec, name) for name in spec.__struct_fields__}
    return ScanSpec(**(values | changes))


def _same(stored: ScanSpec, wanted: ScanSpec) -> bool:
    """Return whether a stored run measured what is wanted."""
    return all(
        getattr(stored, name) == getattr(wanted, name)
        for name in stored.__struct_fields__
        if name not in ("isolation", "max_tokens", "max_seconds", "high")
        # A file names its own element type, which the stored spec has in its place.
        and not (name == "dtype" and wanted.dtype == "file")
    )


def _arguments() -> argparse.ArgumentParser:
    """Return the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows whose key this pattern finds")
    parser.add_argument("--list", action="store_true", help="list the keys of the rows")
    parser.add_argument("--model", default="smollm2-135m", help="architecture of the table of ways")
    parser.add_argument("--gguf", help="file of that architecture, for llama.cpp")
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--warm-up", type=float, default=3.0, help="seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-seconds", type=float, default=4 * 3600.0)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "engines")
    parser.add_argument("--dry", action="store_true", help="print the page instead of writing it")
    return parser


if __name__ == "__main__":
    main()
