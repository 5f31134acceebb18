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
from regimescope.host.facts import host_facts, versions
from regimescope.importers.generic import read_table
from regimescope.measure.isolation import inspect_model
from regimescope.plan import check_capabilities, check_limits, check_positions, make_plan
from regimescope.records import SCHEMA_VERSION, Event, ModelFacts, Run, RunHeader
from regimescope.report.html import write_report
from regimescope.report.progress import SilentObserver
from regimescope.results import Conclusion
from regimescope.run import Observer, Scan, engine_request
from regimescope.spec import ScanSpec, check_spec, to_command
from regimescope.store import RunFolder, check_free, is_run_folder, load_header
from regimescope.store import load_run as load_run
from regimescope.units import count, utc_now

REPORT = "report.html"


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
    model = _resolve(spec)
    resolved = replace(spec, device=model.device, dtype=model.dtype)
    header = RunHeader(
        schema_version=SCHEMA_VERSION,
        run=path.name,
        created_utc=utc_now(),
        axis=spec.axis,
        versions=versions() | model.versions,
        command=to_command(resolved),
        spec_given=msgspec.to_builtins(spec) if given is None else given,
        spec=resolved,
        host=host_facts(),
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
    _refuse_other_conditions(header, _resolve(header.spec))
    return _execute(folder, observer, resumed=True)


def analyze(source: Run | str | Path, **columns: str) -> Conclusion:
    """Return the verdict on a run, a run folder, or a table of measurements.

    Args:
        source: A run in memory, the path of a run folder, or the path of a table.
        columns: ``x`` and ``y`` name the columns of a table.

    Raises:
        UserError: The source cannot be read or cannot be a measurement.
    """
    return conclude(source if isinstance(source, Run) else load(source, **columns))


def load(source: str | Path, *, x: str | None = None, y: str | None = None) -> Run:
    """Return a run folder or a table of measurements as a run.

    Args:
        source: A run folder, or a CSV file.
        x: Column of the decoding budget; tables only.
        y: Column of the latency in seconds; tables only.

    Raises:
        UserError: The source does not exist, cannot be read, or the columns are not named.
    """
    path = Path(source)
    if is_run_folder(path):
        return load_run(path)
    if not path.exists():
        raise UserError(f"{path} does not exist.", remedy="Name a run folder or a table.")
    if path.is_dir():
        raise RunFolderError(
            f"{path} is no run folder.", remedy="Name one that a scan has written."
        )
    if x is None or y is None:
        raise UserError(
            f"Which columns of {path} hold budget and latency?",
            remedy="Name them, for example --x budget --y latency_s.",
        )
    return read_table(path, x=x, y=y)


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
    model = re.sub(r"[^A-Za-z0-9._-]+", "-", spec.model).strip("-.") or "model"
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    path = Path("runs") / f"{model[-60:]}-{spec.device.replace(':', '')}-{stamp}"
    number = 2
    candidate = path
    while candidate.exists():
        candidate = path.with_name(f"{path.name}-{number}")
        number += 1
    return candidate


def _resolve(spec: ScanSpec) -> ModelFacts:
    """Check everything that can be checked before measuring, cheapest first."""
    check_spec(spec)
    check_limits(spec)
    capabilities = get_engine(spec.engine).capabilities()
    check_capabilities(spec, capabilities)
    model = inspect_model(spec.engine, engine_request(spec), inline=_inline(spec))
    check_positions(spec, model)
    return model


def _inline(spec: ScanSpec) -> bool:
    """Return whether to measure in this process: only where time is virtual, unless told not to."""
    return spec.isolation != "process" and get_engine(spec.engine).capabilities().virtual_clock


def _execute(folder: RunFolder, observer: Observer | None, *, resumed: bool = False) -> Run:
    """Measure what is left of a run folder's plan and return the whole run."""
    with folder.locked() as torn:
        if resumed:
            _go_on(folder, torn)
        run = load_run(folder.path)
        if run.header.spec is None:
            raise RunFolderError(f"{folder.path} holds no spec.", remedy="Start a new scan.")
        Scan(
            folder,
            run,
            occasion=uuid.uuid4().hex[:12],
            inline=_inline(run.header.spec),
            observer=observer or SilentObserver(),
        ).execute()
    return load_run(folder.path)


def _go_on(folder: RunFolder, torn: int) -> None:
    """Write down that a run is taken up again, and what its last invocation left half-written."""
    if torn:
        message = f"{count(torn, 'half-written line')} of an earlier invocation was cut off"
        folder.append_event(Event(kind="torn_line", at_utc=utc_now(), message=message))
    folder.append_event(Event(kind="resume", at_utc=utc_now(), message="taken up again"))


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
