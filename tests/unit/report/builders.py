"""Runs and conclusions by hand, for the tests of the report layer."""

from __future__ import annotations

from typing import Any

from regimescope.reasons import Reason
from regimescope.records import Cell, ModelFacts, Run, RunHeader, Series, Trial
from regimescope.results import (
    Baseline,
    Certificate,
    Conclusion,
    Counts,
    Estimate,
    Grade,
    Guarantee,
    Phases,
    Point,
    Range,
    Regime,
    Verdict,
)
from regimescope.spec import ScanSpec

# The published probe (arXiv 2605.08913), seconds by budget: normal, slow, normal again.
PROBE = {
    480: 9.2,
    496: 9.5,
    512: 89.2,
    528: 83.2,
    544: 97.0,
    560: 110.1,
    576: 99.9,
    592: 99.2,
    608: 98.9,
    624: 94.4,
    640: 8.8,
    656: 8.2,
}


def make_trial(budget: int, decode_s: float | None, **changes: Any) -> Trial:
    """Return one trial; without a duration it is a failed one."""
    values: dict[str, Any] = {
        "trial_id": f"t{budget}-{changes.get('process_run', 0)}",
        "occasion": "first",
        "series": Series(engine="hf", model="gpt2-medium", dtype="float32", device="mps"),
        "cell": Cell(budget=budget, prompt_tokens=65, kv_cache="on", batch=1),
        "status": "ok" if decode_s is not None else "failed",
        "warmup": False,
        "phase": "decode",
        "process_run": 0,
        "block": 0,
        "order_index": 0,
    }
    if decode_s is not None:
        values |= {
            "output_tokens": budget,
            "ttft_s": 0.1,
            "decode_s": decode_s,
            "e2e_s": 0.1 + decode_s,
        }
    return Trial(**(values | changes))


def make_run(trials: tuple[Trial, ...] = (), events: Any = (), **header: Any) -> Run:
    """Return a run with the header of a scan."""
    spec = ScanSpec(model=header.pop("model_name", "gpt2-medium"), device="mps")
    values: dict[str, Any] = {
        "schema_version": 1,
        "run": "probe",
        "created_utc": "2026-05-01T00:00:00Z",
        "versions": {"regimescope": "0.1.0", "torch": "2.8.0"},
        "command": ["regimescope", "scan", "gpt2-medium"],
        "spec": spec,
        "host": {"system": "Darwin", "memory_bytes": 36_000_000_000},
        "model": ModelFacts(
            device="mps", dtype="float32", weights="random", vocabulary=50257, positions=1024
        ),
    }
    return Run(header=RunHeader(**(values | header)), trials=trials, events=tuple(events))


def probe_run(**header: Any) -> Run:
    """Return the published probe as a run, one trial a budget."""
    trials = tuple(
        make_trial(budget, decode_s, order_index=order)
        for order, (budget, decode_s) in enumerate(PROBE.items())
    )
    return make_run(trials, **header)


def make_points(values: dict[int, float], expected_s: float | None = 9.0) -> tuple[Point, ...]:
    """Return points with a flat expectation."""
    return tuple(
        Point(
            x=x,
            latency_s=latency_s,
            low_s=latency_s,
            high_s=latency_s,
            n=1,
            expected_s=expected_s,
            slowdown=latency_s / expected_s if expected_s else None,
        )
        for x, latency_s in values.items()
    )


def make_regime(verdict: Verdict = Verdict.SPIKE, **changes: Any) -> Regime:
    """Return the interval of the published probe."""
    values: dict[str, Any] = {
        "verdict": verdict,
        "grade": Grade.C,
        "onset": (496, 512),
        "recovery": (624, 640),
        "slowdown": Estimate(value=11.1, low=9.6, high=12.7, n=8),
        "peak": Estimate(value=12.4, n=1),
        "ratio_to_reference": 9.39,
        "lost_s": 699.9,
    }
    return Regime(**(values | changes))


def make_guarantee(**changes: Any) -> Guarantee:
    """Return the promise of a search over the published range."""
    values: dict[str, Any] = {
        "low": 64,
        "high": 1024,
        "width": 40,
        "slowdown": 1.25,
        "prevalence": 1.0,
        "false_regimes": 0.001,
        "edge_error": 0.05,
        "tokens": 38_000,
        "processes": 14,
    }
    return Guarantee(**(values | changes))


def make_conclusion(verdict: Verdict = Verdict.SPIKE, **changes: Any) -> Conclusion:
    """Return the conclusion on the published probe, its parts changed as asked."""
    values: dict[str, Any] = {
        "run": "probe",
        "axis": "budget",
        "verdict": verdict,
        "grade": Grade.C,
        "counts": Counts(trials=12, failed=0, dropped=0),
        "reasons": (Reason.NO_REPLICATION, Reason.SINGLE_PROCESS),
        "regimes": (make_regime(verdict),),
        "certificate": Certificate(value=13.4, at=560, over=656),
        "baseline": Baseline(degree=1, phase="decode", points=make_points(PROBE)),
        "phases": Phases(
            prefill_share=0.0017,
            ttft_s=Range(value=0.1, low=0.08, high=0.11, n=12),
            tpot_s=Range(value=0.16, low=0.013, high=0.2, n=12),
            by_value=tuple((x, 0.1 / (0.1 + y)) for x, y in PROBE.items()),
        ),
    }
    return Conclusion(**(values | changes))
