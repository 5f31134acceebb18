"""What a child is told before its first trial. Layer: below ``run``."""

from __future__ import annotations

from regimescope.engines.base import EngineRequest
from regimescope.feasible import largest_cell
from regimescope.measure.messages import Open
from regimescope.records import ModelFacts, Series
from regimescope.spec import Arm, ScanSpec


def engine_request(spec: ScanSpec, *, process_run: int = 0) -> EngineRequest:
    """Return the part of a spec that an engine needs to load a model."""
    return EngineRequest(
        model=spec.model,
        device=spec.device,
        dtype=spec.dtype,
        seed=spec.seed,
        process_run=process_run,
        largest=largest_cell(spec),
        options=spec.engine_options,
    )


def series_of(spec: ScanSpec, model: ModelFacts, arm: Arm) -> Series:
    """Return what the trials of an arm have in common."""
    return Series(
        engine=spec.engine,
        model=spec.model,
        dtype=model.dtype,
        device=model.device,
        arm=arm,
        mode=spec.mode,
    )


def open_request(spec: ScanSpec, series: Series, occasion: str, process_run: int) -> Open:
    """Return what a child needs to know."""
    return Open(
        engine=spec.engine,
        request=engine_request(spec, process_run=process_run),
        occasion=occasion,
        process_run=process_run,
        series=series,
        seed=spec.seed,
        warm_up_s=spec.warm_up_s,
        counters_every=spec.counters_every,
    )
