"""doctor: an engine that yields early is found out; noise, timer, advice, wrong requests."""

import math
from pathlib import Path

import numpy as np
import pytest
from msgspec import json
from msgspec.structs import replace
from typer.testing import CliRunner

from regimescope import doctor
from regimescope.cli import app
from regimescope.doctor import Wanted, check_synchronization, examine, noise_of, timer, visible
from regimescope.engines.base import EngineRequest, Step
from regimescope.engines.simulated import SimulatedEngine, VirtualClock
from regimescope.errors import SpecError
from regimescope.host.background import Share
from regimescope.host.examination import Busy
from regimescope.measure.sampling import Sampler, TrialCounters, why_off
from regimescope.measure.trial import generate, latency
from regimescope.records import Cell, Series, Trial

STEP_S = 0.01
QUEUEING_S = 0.001


class Device:
    """A session over a queue of work; an honest one empties it before each step is yielded."""

    def __init__(self, honest):
        self.clock, self._honest, self._left_s = VirtualClock(), honest, 0.0

    def facts(self):
        return SimulatedEngine().inspect(request())

    def generate(self, prompt_ids, cell, *, stamped=True):
        for number in range(cell.budget):
            self.clock.sleep(QUEUEING_S)
            self._left_s += STEP_S
            if number == 0 or (self._honest and stamped):
                self._empty()
            if stamped or number == 0:
                yield Step()
        if not stamped:
            self._empty()
            yield Step(tokens=cell.budget - 1)

    def counters(self):
        self.clock.sleep(0.0001)
        return {"device_reserved": 7, "ooms_count": 1}

    def _empty(self):
        self.clock.sleep(self._left_s)
        self._left_s = 0.0


class Waiting(Device):
    def wait(self):
        self._empty()


class Reading(Device):
    def output_ids(self):
        self._empty()
        return []


class Deaf(Device):
    """Offers no wait and no tokens."""


def request():
    return EngineRequest(model="smooth", device="virtual", dtype="float32", seed=0)


@pytest.mark.parametrize("kind", [Waiting, Reading, Deaf])
@pytest.mark.parametrize(("honest", "verdict"), [(True, "waits"), (False, "does not wait")])
def test_an_engine_that_yields_before_the_token_exists_is_found_out(kind, honest, verdict):
    assert check_synchronization(kind(honest), unstamped=True).verdict == verdict


@pytest.mark.parametrize("kind", [Waiting, Reading])
def test_it_is_found_out_without_queued_steps_too(kind):
    found = check_synchronization(kind(False), unstamped=False)
    assert found.verdict == "does not wait"
    assert found.queued_s is None


class Disturbed(Waiting):
    """An honest session on a machine that does other work during its first generations."""

    def __init__(self, honest, until):
        super().__init__(honest)
        self._generations, self._until = 0, until

    def generate(self, prompt_ids, cell, *, stamped=True):
        self._generations += 1
        for number, step in enumerate(super().generate(prompt_ids, cell, stamped=stamped)):
            if number == 1 and not stamped and self._generations <= self._until:
                self.clock.sleep(10 * cell.budget * STEP_S)
            yield step


@pytest.mark.parametrize("until", [0, 8, 16])
def test_other_work_on_the_machine_is_no_engine_that_does_not_wait(until):
    found = check_synchronization(Disturbed(True, until), unstamped=True)
    assert found.verdict == "waits"


def test_an_engine_that_offers_nothing_leaves_it_open():
    assert check_synchronization(Deaf(False), unstamped=False).verdict == "cannot tell"


def test_noise_is_the_robust_spread_and_the_share_of_accidents():
    noise = noise_of(np.array([1.0] * 8 + [1.1] * 9 + [3.0]), 11)
    assert noise.step_s == pytest.approx(0.11)
    # The median of 8 times log 1.1, 9 times 0 and once log(3 / 1.1), middle of ranks 9 and 10.
    assert noise.spread == pytest.approx(1.4826 * math.log(1.1) / 2)
    assert noise.accident_share == pytest.approx(1 / 18)


def test_equal_times_have_no_spread_and_what_is_within_a_tenth_of_them_is_no_accident():
    noise = noise_of(np.array([1.0] * 8 + [1.09, 1.11]), 2)
    assert noise.spread == 0
    assert noise.accident_share == pytest.approx(0.1)
    assert noise.visible_3 == 1


def test_more_processes_show_less():
    assert visible(0.1, 4) == pytest.approx(math.exp(0.15))


def test_a_clock_that_stands_still_has_no_resolution():
    assert timer(VirtualClock()).resolution_s == 0


def test_reading_between_steps_is_in_no_gap_and_is_written_down():
    session = Waiting(True)
    sampler = Sampler(session, NoCounters(), 4)
    timing = generate(session, [1], Cell(budget=10), sampler=sampler)
    assert latency(timing).itl_s == pytest.approx([STEP_S + QUEUEING_S] * 9)
    table = sampler.table()
    assert table["step"] == [0, 4, 8]
    assert table["cost_s"] == pytest.approx([0.0001] * 3)
    assert table["device_reserved_bytes"] == [7, 7, 7]


@pytest.mark.parametrize(("step_s", "sampled"), [(0.01, True), (0.0001, False)])
def test_a_trial_is_sampled_only_where_readings_are_cheap_beside_its_steps(step_s, sampled):
    counters = TrialCounters(Waiting(True), NoCounters(), 64)
    counters.begin(10)
    first = counters.finish(step_s)
    assert first.samples is None
    counters.begin(10)
    second = counters.finish(step_s)
    assert (second.samples is not None) == sampled
    assert ("sampling_off_cost_s" in second.counters) != sampled
    assert (why_off(trial(second.counters, order_index=1)) is None) == sampled
    assert why_off(trial(first.counters, order_index=0)) is None
    assert second.memory_bytes == {"device_reserved": 7}


def trial(counters, *, order_index):
    return Trial(
        trial_id="t",
        occasion="o",
        series=Series(engine="e"),
        cell=Cell(budget=10),
        status="ok",
        warmup=False,
        phase="decode",
        order_index=order_index,
        counters=counters,
    )


class NoCounters:
    """A machine that offers none."""

    def __init__(self):
        self.absent = {}

    def read(self, *, cheap=False):
        return {}

    def given(self):
        return {}


class LyingEngine(SimulatedEngine):
    name = "lying"

    def open(self, request):
        lying = Waiting(False)
        lying.close = lambda: None
        return lying


@pytest.fixture
def still(monkeypatch):
    monkeypatch.setattr(doctor.background, "busy_programs", lambda sleep: (Share("x", 4711, 0.5),))


def run(*arguments):
    return CliRunner().invoke(app, ["doctor", *arguments])


def test_the_command_fails_on_a_lying_engine_and_says_so(monkeypatch, still):
    monkeypatch.setattr(doctor, "get_engine", lambda name: LyingEngine())
    result = run("--engine", "lying", "--model", "smooth")
    assert result.exit_code == 1
    assert "FAILED" in result.stdout


def test_json_is_one_object_and_the_table_fits_80_columns(still, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    arguments = ("--engine", "simulated", "--model", "smooth")
    found = json.decode(run(*arguments, "--json").stdout)
    assert found["synchronization"]["verdict"] == "waits"
    assert "calls" not in found
    assert str(Path.home()) not in str(found)
    text = run(*arguments)
    assert text.exit_code == 0
    assert max(map(len, text.stdout.splitlines())) <= 80


def test_what_disturbs_is_named(still):
    found = examine(Wanted("simulated", "auto", "smooth", 5))
    assert found.busy == (Busy(name="x", pid=4711, cores=0.5),)
    lines = doctor.advice(found, {"on_battery_flag": 1.0, "memory_pressure_level": 4.0})
    assert any("End x (PID 4711)" in line for line in lines)
    assert any("mains" in line for line in lines)
    assert any("memory pressure" in line for line in lines)


@pytest.mark.parametrize(
    ("trials", "disturbed", "says"),
    [(5, 1, None), (30, 3, None), (30, 4, "4 of 30 short trials"), (10, 2, "2 of 10 short trials")],
)
def test_disturbed_trials_are_told_with_their_number(still, trials, disturbed, says):
    found = examine(Wanted("simulated", "auto", "smooth", 5))
    noise = replace(found.noise, trials=trials, accident_share=disturbed / trials)
    lines = [line for line in doctor.advice(replace(found, noise=noise), {}) if "short" in line]
    assert [says in line for line in lines] == ([True] if says else [])


def test_an_engine_is_examined_with_a_model_of_its_own(still):
    assert examine(Wanted("simulated", trials=5)).model == "smooth"


def test_without_a_model_of_its_own_one_must_be_named(monkeypatch, still):
    monkeypatch.setattr(doctor, "get_engine", lambda name: LyingEngine())
    with pytest.raises(SpecError, match="--model"):
        examine(Wanted("lying"))


@pytest.mark.parametrize("trials", [0, 4, 1001])
def test_too_few_or_too_many_trials_are_refused(trials):
    with pytest.raises(SpecError, match="outside 5 to 1,000"):
        examine(Wanted("simulated", "auto", "smooth", trials))
