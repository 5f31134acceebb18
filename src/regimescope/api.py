"""The stages composed, a few lines each: what the command line does, as Python calls."""

from __future__ import annotations

import re
import uuid
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from regimescope.analysis.regimes import conclude
from regimescope.engines.registry import get_engine
from regimescope.errors import RunFolderError, UserError
from regimescope.feasible import (
    check_capabilities,
    check_limits,
    check_positions,
    resolved_search,
)
from regimescope.host.facts import host_facts, versions, without_home
from regimescope.importers.case import read_case
from regimescope.importers.case_file import looks_like_case
from regimescope.importers.generic import read_table
from regimescope.importers.merging import merged
from regimescope.measure.isolation import inspect_model
from regimescope.plan import make_plan
from regimescope.records import SCHEMA_VERSION, Event, ModelFacts, Run, RunHeader
from regimescope.report.html import write_report
from regimescope.report.lasting import LastingObserver
from regimescope.report.progress import SilentObserver
from regimescope.results import Conclusion
from regimescope.run import Observer, Scan, engine_request
from regimescope.spec import ScanSpec, check_spec, to_command
from regimescope.stats.epidemic import R_MIN
from regimescope.store import RunFolder, check_free, is_run_folder, load_header
from regimescope.store import load_run as load_run
from regimescope.units import count, utc_now

REPORT = "report.html"
# A slowdown of a thousand is past any that was reported; larger margins are slips.
MOST_MARGIN = 1000.0


def scan(
    spec: ScanSpec | None = None,
    *,
    out: str | Path | None = None,
    observer: Observer | None = None,
    given: dict[str, Any] | None = None,
) -> Run:
    """Measure latency against decoding budget and return the run, which is on disk by then.

    Args:
        spec: What to measure; the default spec measures a built-in GPT-2 with random weights.
        out: The run folder to make; by default a new one under ``runs/``.
        observer: Someone who watches.
        given: The spec as the user gave it, where that differs from ``spec``.

    Raises:
        UserError: The request cannot be met; nothing has been measured.
        MeasurementError: Measuring failed; finished trials are in the folder.
    """
    spec = spec or ScanSpec()
    path = Path(out) if out is not None else default_folder(spec)
    check_free(path)
    if not spec.identify:
        options = without_home(spec.engine_options)
        spec = replace(spec, model=without_home(spec.model), engine_options=options)
    given = msgspec.to_builtins(spec) if given is None else given
    resolved, model = _resolve(spec)
    header = RunHeader(
        schema_version=SCHEMA_VERSION,
        run=path.name,
        created_utc=utc_now(),
        axis=spec.axis,
        versions=versions() | model.versions,
        command=to_command(resolved),
        spec_given=given if spec.identify else without_home(given),
        spec=resolved,
        host=host_facts(identify=spec.identify),
        model=model,
        plan=make_plan(resolved),
    )
    return _execute(RunFolder.create(path, header), observer)


def resume(path: str | Path, *, observer: Observer | None = None) -> Run:
    """Finish a run that was cut short, without repeating a finished trial.

    Raises:
        RunFolderError: It is no run folder of a scan, or a fact that decides the timing differs
            from when it was begun.
        UserError: The request cannot be met any more.
        MeasurementError: Measuring failed; finished trials are in the folder.
    """
    folder = RunFolder.reopen(Path(path))
    header = load_header(folder.path)
    if header.spec is None or header.plan is None or header.model is None:
        raise RunFolderError(
            f"{path} holds imported measurements, not a scan.", remedy="There is nothing to resume."
        )
    watcher = LastingObserver(observer or SilentObserver())
    taken_up = _taken_up(header.spec)
    # Before anything is loaded: the folder may come from a stranger.
    watcher.event(taken_up)
    _refuse_other_conditions(header, _resolve(header.spec)[1])
    return _execute(folder, watcher, taken_up=taken_up)


def analyze(source: Run | str | Path, *, margin: float = R_MIN, **columns: str) -> Conclusion:
    """Return the verdict on a run, a run folder, a case file, or a table of measurements.

    Args:
        source: A run in memory, the path of a run folder, or the path of a file.
        margin: Least slowdown that counts, above 1; a search has its own.
        columns: ``x`` and ``y`` name the columns of a table.

    Raises:
        UserError: The source cannot be read or cannot be a measurement.
    """
    if not 1 < margin <= MOST_MARGIN:
        raise UserError(
            f"A margin of {margin:g} is no slowdown.",
            remedy=f"Give a ratio above 1 and up to {MOST_MARGIN:g}, for example 1.25.",
        )
    return conclude(source if isinstance(source, Run) else load(source, **columns), r_min=margin)


def load(source: str | Path, *more: str | Path, x: str | None = None, y: str | None = None) -> Run:
    """Return a run folder, a case file, or a table of measurements as a run.

    Args:
        source: A run folder, a case file (TOML, recognized by its content), or a CSV file.
        more: Further files of the same sweep, each an occasion of its own.
        x: Column of the decoding budget; tables only.
        y: Column of the latency in seconds; tables only.

    Raises:
        UserError: A source does not exist, cannot be read, or the columns are not named.
    """
    paths = [Path(source), *map(Path, more)]
    folders = [path for path in paths if is_run_folder(path)]
    if not more and folders:
        return load_run(paths[0])
    if folders:
        raise UserError(
            f"{folders[0]} is a run folder, and several files are given.",
            remedy="Analyze run folders one at a time.",
        )
    return merged([_load_file(path, x, y) for path in paths])


def _load_file(path: Path, x: str | None, y: str | None) -> Run:
    """Return a file of measurements made elsewhere as a run."""
    if not path.exists():
        raise UserError(f"{path} does not exist.", remedy="Name a run folder or a file.")
    if path.is_dir():
        raise RunFolderError(
            f"{path} is no run folder.", remedy="Name one that a scan has written."
        )
    if x is not None and y is not None:
        return read_table(path, x=x, y=y)
    if looks_like_case(path):
        return read_case(path)
    raise UserError(
        f"Which columns of {path} hold budget and latency?",
        remedy="Name them, for example --x budget --y latency_s.",
    )


def publish(run: Run, conclusion: Conclusion, folder: str | Path) -> Path:
    """Write ``report.html`` into a folder and return its path.

    Raises:
        MissingDependencyError: The libraries that draw it are not installed.
        RunFolderError: The folder cannot be written.
    """
    path = Path(folder) / REPORT
    try:
        write_report(run, conclusion, path)
    except OSError as error:
        raise RunFolderError(
            f"{path} cannot be written: {error.strerror}.", remedy="Make the folder writable."
        ) from error
    return path


def default_folder(spec: ScanSpec) -> Path:
    """Return a path under ``runs/`` that is named after model, device and time and is free."""
    named = spec.model if spec.identify else without_home(spec.model)
    model, device = (
        re.sub(r"[^A-Za-z0-9._-]+", "-", name.replace(":", "")).strip("-.") or other
        for name, other in ((named, "model"), (spec.device, "device"))
    )
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    path = Path("runs") / f"{model[-60:]}-{device[:20]}-{stamp}"
    number = 2
    candidate = path
    while candidate.exists():
        candidate = path.with_name(f"{path.name}-{number}")
        number += 1
    return candidate


def _resolve(spec: ScanSpec) -> tuple[ScanSpec, ModelFacts]:
    """Check everything that can be checked before measuring, cheapest first.

    Returns:
        The spec with everything filled in that was left open, and the facts of the model.
    """
    check_spec(spec)
    check_limits(spec)
    capabilities = get_engine(spec.engine).capabilities()
    check_capabilities(spec, capabilities)
    model = inspect_model(spec.engine, engine_request(spec), inline=_inline(spec))
    resolved = resolved_search(replace(spec, device=model.device, dtype=model.dtype), model)
    check_positions(resolved, model)
    return resolved, model


def _inline(spec: ScanSpec) -> bool:
    """Return whether to measure in this process: only where time is virtual, unless told not to."""
    return spec.isolation != "process" and get_engine(spec.engine).capabilities().virtual_clock


def _execute(folder: RunFolder, observer: Observer | None, taken_up: Event | None = None) -> Run:
    """Measure what is left of a run folder's plan and return the whole run."""
    with folder.locked() as torn:
        if taken_up is not None:
            _go_on(folder, torn, taken_up)
        run = load_run(folder.path)
        if run.header.spec is None:
            raise RunFolderError(f"{folder.path} holds no spec.", remedy="Start a new scan.")
        Scan(
            folder,
            run,
            occasion=uuid.uuid4().hex[:12],
            inline=_inline(run.header.spec),
            observer=LastingObserver(observer or SilentObserver()),
        ).execute()
    return load_run(folder.path)


def _taken_up(spec: ScanSpec) -> Event:
    """Return the event that says what a resumed run will measure, as its own spec has it."""
    options = "".join(f", {name}={value}" for name, value in spec.engine_options.items())
    message = f"taken up again: model {spec.model} on engine {spec.engine}{options}"
    return Event(kind="resume", at_utc=utc_now(), message=message)


def _go_on(folder: RunFolder, torn: int, taken_up: Event) -> None:
    """Write down that a run is taken up again, and what its last invocation left half-written."""
    if torn:
        message = f"{count(torn, 'half-written line')} of an earlier invocation was cut off"
        folder.append_event(Event(kind="torn_line", at_utc=utc_now(), message=message))
    folder.append_event(taken_up)


def _refuse_other_conditions(header: RunHeader, model: ModelFacts) -> None:
    """Refuse to add trials to a run whose conditions no longer hold; never pool silently."""
    now = versions() | model.versions
    differences = [
        f"{name} was {old}, is {now.get(name, 'absent')}"
        for name, old in header.versions.items()
        if now.get(name) != old
    ]
    if header.model is not None:
        if header.model.description != model.description:
            differences.append(f"device was {header.model.description}, is {model.description}")
        differences += [
            f"{name} was {old}, is {model.settings.get(name, 'absent')}"
            for name, old in header.model.settings.items()
            if model.settings.get(name) != old
        ]
    if differences:
        raise RunFolderError(
            f"{header.run} was begun under other conditions: {'; '.join(differences)}.",
            remedy="Restore them, or start a new scan.",
        )
