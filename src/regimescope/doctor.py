"""What this machine can measure, and what stands in the way. Layer: above ``run``.

Everything happens in this process, so that the engine can be watched from inside.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from regimescope.engines.base import (
    Clock,
    EngineRequest,
    KnowsDevice,
    MonotonicClock,
    ReadsTokens,
    Session,
    Waits,
)
from regimescope.engines.registry import describe_engines, get_engine
from regimescope.errors import SpecError
from regimescope.host import background
from regimescope.host.counters import HostCounters, host_readers
from regimescope.host.examination import (
    Busy,
    Call,
    Counters,
    EngineState,
    Examination,
    NoiseFloor,
    Synchronization,
    Timer,
    Waiting,
)
from regimescope.host.facts import versions
from regimescope.measure.sampling import MOST_SHARE, TrialCounters
from regimescope.measure.trial import Timing, generate, latency, prompt
from regimescope.records import Cell
from regimescope.spec import ScanSpec
from regimescope.stats.arrays import MAD_TO_SD
from regimescope.units import NS_PER_S, ratio, share

SCHEMA_VERSION = 1
PROMPT_TOKENS = 16
# Long enough for 15 gaps a trial, short enough for 30 trials of a small model in seconds.
BUDGET = 16
LEAST_TRIALS, MOST_TRIALS = 5, 1000
TIMER_READINGS = 10_000
SYNC_STEPS = 32
# The shortest of three, because other programs only ever make a generation longer.
SYNC_REPEATS = 3
# How often an engine that seems not to wait is examined again; all of it counts together.
SYNC_ATTEMPTS = 4
# An engine that waits leaves nothing to be waited for; a call of the driver itself is far below.
MOST_LEFT = 0.2
# Steps stamped one by one cannot take less than queued ones, except by noise.
LEAST_OF_QUEUED = 0.5
# An accident is above the scatter, and where there is none above a tenth of the latency.
ACCIDENT_SPREADS, ACCIDENT_RATIO = 3.0, 1.1
NOISY_SPREAD = 0.05
BUSY_CORES = 0.25
# One disturbed trial of five is no share of anything.
MOST_ACCIDENTS, LEAST_ACCIDENTS = 0.1, 2
# The smallest model of an engine, for which nothing has to be fetched.
EXAMPLE_MODELS = {"hf": "tiny", "mlx": "tiny", "simulated": "smooth"}


class Wanted(NamedTuple):
    """What to examine."""

    engine: str = "hf"
    device: str = "auto"
    model: str | None = None
    trials: int = 30


def examine(wanted: Wanted) -> Examination:
    """Examine an engine on a device of this machine.

    Raises:
        UserError: The engine, device or model is unknown or absent, or the trials are not between
            5 and 1000.
        EngineError: The engine failed.
    """
    if not LEAST_TRIALS <= wanted.trials <= MOST_TRIALS:
        raise SpecError(
            f"--trials {wanted.trials} is outside {LEAST_TRIALS} to {MOST_TRIALS:,}.",
            remedy="Leave it out for 30.",
        )
    engine = get_engine(wanted.engine)
    model = _model(wanted)
    # Before the model is loaded, which would itself be load.
    request = EngineRequest(model=model, device=wanted.device, dtype="float32", seed=0)
    engine.inspect(request)
    busy = tuple(
        Busy(name=used.name, pid=used.pid, cores=used.cores)
        for used in background.busy_programs(MonotonicClock.sleep)
    )
    session = engine.open(request)
    try:
        return _examined(wanted, model, session, busy)
    finally:
        session.close()


def _model(wanted: Wanted) -> str:
    """Return the model to examine with.

    Raises:
        SpecError: None is named, and the engine has none of its own.
    """
    model = wanted.model or EXAMPLE_MODELS.get(wanted.engine)
    if model is None:
        raise SpecError(
            f"The engine {wanted.engine} has no model of its own to examine with.",
            remedy="Name one with --model.",
        )
    return model


def _examined(wanted: Wanted, model: str, session: Session, busy: tuple[Busy, ...]) -> Examination:
    """Put the parts together."""
    facts = session.facts()
    capabilities = get_engine(wanted.engine).capabilities()
    _generate(session, "warm-up")
    sync = check_synchronization(session, unstamped=capabilities.unstamped)
    noise = noise_floor(session, wanted.trials)
    device_id = session.device_id() if isinstance(session, KnowsDevice) else None
    host = HostCounters(host_readers(facts.device, device_id))
    counters = _counters(session, host, noise.step_s)
    calls = _mps_calls(wanted.engine)
    found = Examination(
        schema_version=SCHEMA_VERSION,
        engine=wanted.engine,
        device=facts.device,
        description=facts.description or facts.device,
        model=model,
        versions=versions() | facts.versions,
        engines=tuple(
            EngineState(name=row.name, state=row.state, install=row.install)
            for row in describe_engines()
        ),
        devices=_devices(wanted.engine, capabilities.devices),
        timer=timer(session.clock),
        synchronization=sync,
        noise=noise,
        counters=counters,
        busy=busy,
        calls=calls,
    )
    return _with_advice(found, host)


def timer(clock: Clock) -> Timer:
    """Return the smallest step of a clock and what a reading costs; 0 for one that stands still."""
    stamps_ns = np.array([clock.now_ns() for _ in range(TIMER_READINGS)], dtype=np.int64)
    steps = np.diff(stamps_ns)
    resolution_ns = steps[steps > 0].min() if (steps > 0).any() else 0
    return Timer(
        resolution_s=float(resolution_ns) / NS_PER_S,
        cost_s=float(stamps_ns[-1] - stamps_ns[0]) / NS_PER_S / (TIMER_READINGS - 1),
    )


def check_synchronization(session: Session, *, unstamped: bool) -> Synchronization:
    """Find out whether an engine yields a step only once its token is on the host.

    After each step the device is waited for, where the session can do that: an engine that yields
    early leaves work to wait for. So does reading the tokens after the last step. And steps that
    are stamped one by one cannot take much less time than steps that are waited for at the end.

    Args:
        session: A warm session.
        unstamped: Whether the engine can generate without stamps.
    """
    stamped_s = math.inf
    queued_s = math.inf if unstamped else None
    seen: list[float] = []
    for _ in range(SYNC_ATTEMPTS):
        stamped_s = min(stamped_s, _shortest(session, stamped=True))
        if queued_s is not None:
            queued_s = min(queued_s, _shortest(session, stamped=False))
        seen += [max(found)] if (found := _leftovers(session, stamped_s)) else []
        leftover = median(seen) if seen else None
        verdict, reason = _judged(leftover, stamped_s, queued_s)
        # Only an engine that yields early does so each time; other work on the machine comes and
        # goes, and delays now these steps and now those.
        if verdict != "does not wait":
            break
    return Synchronization(
        verdict=verdict,
        reason=reason,
        steps=SYNC_STEPS,
        stamped_s=stamped_s,
        queued_s=queued_s,
        leftover_share=leftover,
    )


def _leftovers(session: Session, stamped_s: float) -> list[float]:
    """Return the shares of work left over, by each way that the session offers to see it."""
    found = []
    if isinstance(session, Waits):
        found.append(_left_after_steps(session, session.wait))
    if isinstance(session, ReadsTokens):
        found.append(_left_at_reading(session, session.output_ids, stamped_s))
    return found


def _judged(
    leftover: float | None, stamped_s: float, queued_s: float | None
) -> tuple[Waiting, str]:
    """Return whether an engine waits, and what shows it."""
    if leftover is not None and leftover > MOST_LEFT:
        return "does not wait", f"{share(leftover)} of the work was still to be done"
    if queued_s is not None and stamped_s < LEAST_OF_QUEUED * queued_s:
        reason = f"stamped steps took {ratio(stamped_s / queued_s)} the time of queued ones"
        return "does not wait", reason
    if leftover is not None:
        return "waits", "nothing was left to be done after a step"
    if queued_s is not None:
        return "waits", "stamped steps take no less time than queued ones"
    return "cannot tell", "the engine offers nothing to compare with"


def noise_floor(session: Session, trials: int) -> NoiseFloor:
    """Time short trials one after the other in this process."""
    times = []
    for number in range(trials):
        decode_s = latency(_generate(session, f"noise.{number}")).decode_s
        times.append(decode_s or 0.0)
    return noise_of(np.array(times), BUDGET)


def noise_of(decode_s: npt.NDArray[np.float64], budget: int) -> NoiseFloor:
    """Return how much latencies differ.

    Args:
        decode_s: Decode seconds, all above zero.
        budget: Tokens of each trial.
    """
    logs = np.log(decode_s)
    middle = float(np.median(logs))
    spread = MAD_TO_SD * float(np.median(np.abs(logs - middle)))
    accident = max(ACCIDENT_SPREADS * spread, math.log(ACCIDENT_RATIO))
    return NoiseFloor(
        trials=decode_s.size,
        budget=budget,
        step_s=math.exp(middle) / (budget - 1),
        spread=spread,
        accident_share=float(np.mean(logs - middle > accident)),
        visible_3=visible(spread, 3),
        visible_6=visible(spread, 6),
    )


def visible(spread: float, processes: int) -> float:
    """Return the smallest slowdown seen with one trial in each process: three standard errors.

    It leaves out how processes differ from each other, which one process cannot show.
    """
    return math.exp(3 * spread / math.sqrt(processes))


def _generate(session: Session, name: str, budget: int = BUDGET, *, stamped: bool = True) -> Timing:
    """Time one generation."""
    ids = prompt(0, name, PROMPT_TOKENS, session.facts().vocabulary)
    return generate(session, ids, _cell(budget), stamped=stamped)


def _cell(budget: int) -> Cell:
    """Return what is asked of the engine."""
    return Cell(budget=budget, prompt_tokens=PROMPT_TOKENS, kv_cache="on", batch=1)


def _shortest(session: Session, *, stamped: bool) -> float:
    """Return the decode seconds of a generation, the least disturbed of a few."""
    times = (
        latency(_generate(session, f"sync.{number}", SYNC_STEPS, stamped=stamped)).decode_s
        for number in range(SYNC_REPEATS)
    )
    return min(time or 0.0 for time in times)


def _left_after_steps(session: Session, wait: Callable[[], object]) -> float:
    """Return the median share of a step's work that was still to be done when it was yielded."""
    now_ns = session.clock.now_ns
    ids = prompt(0, "left", PROMPT_TOKENS, session.facts().vocabulary)
    shares, begin_ns = [], now_ns()
    for _ in session.generate(ids, _cell(SYNC_STEPS)):
        yielded_ns = now_ns()
        wait()
        end_ns = now_ns()
        shares.append((end_ns - yielded_ns) / max(end_ns - begin_ns, 1))
        begin_ns = end_ns
    return float(np.median(shares))


def _left_at_reading(session: Session, read: Callable[[], object], stamped_s: float) -> float:
    """Return the share of a generation's time that reading its tokens takes afterwards."""
    now_ns = session.clock.now_ns
    _generate(session, "read", SYNC_STEPS)
    start_ns = now_ns()
    read()
    read_s = (now_ns() - start_ns) / NS_PER_S
    return read_s / max(read_s + stamped_s, 1e-12)


def _counters(session: Session, host: HostCounters, step_s: float) -> Counters:
    """Return what is read, what it costs and what is absent."""
    every = ScanSpec().counters_every
    cost_s = TrialCounters(session, host, every).cost_s
    return Counters(
        read=host.given(),
        costs_s=host.costs_s,
        absent=host.absent,
        engine=tuple(session.counters()),
        sample_cost_s=cost_s,
        sampled=cost_s <= MOST_SHARE * every * step_s,
    )


def _devices(engine: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the devices that are present; those that the engine knows where it does not tell."""
    if engine != "hf":
        return known
    from regimescope.engines.hf_device import present_devices

    return tuple(f"{kind} ({number})" for kind, number in present_devices().items())


def _mps_calls(engine: str) -> tuple[Call, ...]:
    """Try the calls of MPS where there may be one."""
    if engine != "hf" or platform.system() != "Darwin":
        return ()
    from regimescope.engines.hf_memory import try_mps_calls

    return tuple(Call(name=c.name, result=c.result, works=c.works) for c in try_mps_calls())


def _with_advice(found: Examination, host: HostCounters) -> Examination:
    """Add what should be mended before a scan."""
    return replace(found, to_fix=advice(found, host.read()))


def advice(found: Examination, now: dict[str, float]) -> tuple[str, ...]:
    """Return what should be mended before a scan, one sentence each.

    Args:
        found: What was found.
        now: The counters of the machine at this moment.
    """
    lines = []
    if found.synchronization.verdict == "does not wait":
        lines.append("Do not trust times of this engine: it yields steps before their tokens exist")
    lines += [
        f"End {busy.name} (PID {busy.pid}), which uses {busy.cores:.2f} of a core"
        for busy in found.busy
        if busy.cores >= BUSY_CORES
    ]
    if found.noise.spread > NOISY_SPREAD:
        lines.append("Let the machine come to rest: short trials differ by more than 5 %")
    noise = found.noise
    disturbed = round(noise.accident_share * noise.trials)
    if noise.accident_share > MOST_ACCIDENTS and disturbed >= LEAST_ACCIDENTS:
        lines.append(
            f"Find what interrupts the machine: {disturbed} of {noise.trials} short trials "
            "were disturbed"
        )
    conditions = {
        "on_battery_flag": "Connect the machine to mains",
        "low_power_mode_flag": "Switch low power mode off",
        "gpu_other_processes_count": "End other programs on the GPU",
    }
    lines += [text for name, text in conditions.items() if now.get(name, 0) > 0]
    if now.get("memory_pressure_level", 1) > 1:
        lines.append("Free memory: the system reports memory pressure")
    lines += [f"Mend {call.name}: {call.result}" for call in found.calls if not call.works]
    if any("not installed" in reason for reason in found.counters.absent.values()):
        lines.append("Install the GPU's counters: pip install 'regimescope[energy]'")
    return tuple(lines)
