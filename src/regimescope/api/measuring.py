"""Scans begun and taken up again."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from regimescope.engines.registry import get_engine
from regimescope.errors import RunFolderError, UserError
from regimescope.feasible import (
    check_capabilities,
    check_limits,
    check_positions,
    resolved_search,
)
from regimescope.host.facts import host_facts, versions, without_home, without_identity
from regimescope.journal import Observer
from regimescope.measure.isolation import inspect_model
from regimescope.opening import engine_request
from regimescope.plan import make_plan
from regimescope.records import SCHEMA_VERSION, Event, ModelFacts, Run, RunHeader
from regimescope.report.lasting import LastingObserver
from regimescope.report.progress import SilentObserver
from regimescope.run import Scan
from regimescope.spec import ScanSpec, check_spec, to_command
from regimescope.store import RunFolder, check_free, load_header
from regimescope.store import load_run as load_run
from regimescope.units import count, utc_now


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
    return _execute(RunFolder.create(path, header, told=_told(spec)), observer)


def resume(
    path: str | Path,
    *,
    observer: Observer | None = None,
    trust_remote_code: bool = False,
    max_tokens: int | None = None,
    max_seconds: float | None = None,
) -> Run:
    """Finish a run that was cut short, without repeating a finished trial.

    Args:
        path: The run folder.
        observer: Someone who watches.
        trust_remote_code: Whether code that comes with the model may be run where the run asks
            for it. Its folder may come from a stranger, so its own word does not count.
        max_tokens: Tokens that the whole run may decode from now on; absent for those of its spec.
        max_seconds: Seconds that this and later invocations may take; absent for the same.

    Raises:
        RunFolderError: It is no run folder of a scan, or a fact that decides the timing differs
            from when it was begun.
        UserError: The request cannot be met any more.
        MeasurementError: Measuring failed; finished trials are in the folder.
    """
    header = load_header(Path(path))
    if header.spec is None or header.plan is None or header.model is None:
        raise RunFolderError(
            f"{path} holds imported measurements, not a scan.", remedy="There is nothing to resume."
        )
    if header.spec.engine_options.get("trust_remote_code") and not trust_remote_code:
        raise UserError(
            f"{path} asks to run code that comes with the model {header.spec.model}.",
            remedy="Read that code; if you trust it, add --trust-remote-code.",
        )
    folder = RunFolder.reopen(Path(path), told=_told(header.spec))
    watcher = LastingObserver(observer or SilentObserver())
    spec = _with_limits(header.spec, max_tokens, max_seconds)
    taken_up = _taken_up(spec, header.spec)
    # Before anything is loaded: the folder may come from a stranger.
    watcher.event(taken_up)
    _refuse_other_conditions(header, _resolve(header.spec)[1])
    return _execute(folder, watcher, taken_up=taken_up)


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


def _told(spec: ScanSpec) -> Callable[[Any], Any]:
    """Return what is stored of a message: engines name paths and hosts when they fail."""
    return (lambda value: value) if spec.identify else without_identity


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


def _with_limits(spec: ScanSpec, max_tokens: int | None, max_seconds: float | None) -> ScanSpec:
    """Return a spec with other limits, where such are given.

    Raises:
        SpecError: A limit is no limit.
    """
    spec = spec if max_tokens is None else replace(spec, max_tokens=max_tokens)
    spec = spec if max_seconds is None else replace(spec, max_seconds=max_seconds)
    check_spec(spec)
    return spec


def _taken_up(spec: ScanSpec, before: ScanSpec) -> Event:
    """Return the event that says what a resumed run will measure, and with which new limits."""
    options = "".join(f", {name}={value}" for name, value in spec.engine_options.items())
    message = f"taken up again: model {spec.model} on engine {spec.engine}{options}"
    changed = {
        name: getattr(spec, name)
        for name in ("max_tokens", "max_seconds")
        if getattr(spec, name) != getattr(before, name)
    }
    message += "".join(f", {name.replace('_', ' ')} {value:,}" for name, value in changed.items())
    return Event(kind="resume", at_utc=utc_now(), message=message, facts=changed or None)


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
