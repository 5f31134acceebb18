"""Every check of the suite catches the engines that break its rule, and passes a sound one."""

import pytest
from msgspec.structs import replace
from tests.unit.testing import faults_of_generation, faults_of_requests, faults_of_sessions
from tests.unit.testing.faults import FAULTS
from tests.unit.testing.sound_engine import EVERYTHING, LITTLE, REQUEST, SoundEngine

from regimescope.engines.base import EngineRequest
from regimescope.engines.registry import get_engine
from regimescope.errors import SpecError
from regimescope.testing import CHECK_NAMES, NotConforming, assert_engine, check_engine

# Imported for what they put into FAULTS.
SOURCES = (faults_of_requests, faults_of_generation, faults_of_sessions)


def failed(engine, **how):
    return {result.name for result in check_engine(engine, REQUEST, **how) if not result.passed}


@pytest.mark.parametrize(("check", "engine"), FAULTS)
def test_a_check_catches_engines_that_break_its_rule(check, engine):
    assert failed(engine(), only=[check]) == {check}


def test_there_is_an_engine_to_be_caught_by_every_check():
    assert {param.values[0] for param in FAULTS} == set(CHECK_NAMES)


@pytest.mark.parametrize("can", [EVERYTHING, LITTLE, replace(EVERYTHING, virtual_clock=True)])
def test_a_sound_engine_passes(can):
    engine = SoundEngine()
    engine.can = can
    # What the session can do beyond the claims is no fault of the other checks.
    expected = set() if can.synthetic_depth else {"fill-is-claimed"}
    assert failed(engine) == expected


def test_what_does_not_apply_is_listed_with_its_reason():
    engine = SoundEngine()
    engine.can = LITTLE
    results = {result.name: result for result in check_engine(engine, REQUEST)}
    assert list(results) == list(CHECK_NAMES)
    skipped = {name for name, result in results.items() if not result.applicable}
    assert skipped == {"unstamped", "cache-changes-no-token", "cache-kinds"}
    assert all(results[name].passed and results[name].detail for name in skipped)


def test_one_error_names_everything_that_fails():
    class Both(faults_of_generation.OneTooFew):
        def counters(self):
            return {"used": -1}

    engine = SoundEngine()
    engine.Session = Both
    with pytest.raises(NotConforming, match="exact-budget") as caught:
        assert_engine(engine, REQUEST)
    assert {"exact-budget", "counters"} <= {result.name for result in caught.value.results}
    assert "counter used reads -1" in str(caught.value)


def test_an_unknown_check_lists_the_known_ones():
    with pytest.raises(SpecError, match="exact-bugdet") as caught:
        check_engine(SoundEngine(), REQUEST, only=["exact-bugdet"])
    assert "exact-budget" in caught.value.remedy


@pytest.mark.parametrize("name", CHECK_NAMES)
@pytest.mark.parametrize("model", ["smooth", "paper"])
def test_the_simulated_engine_passes(model, name):
    request = EngineRequest(model=model, device="virtual", dtype="float32", seed=1)
    assert_engine(get_engine("simulated"), request, only=[name])
