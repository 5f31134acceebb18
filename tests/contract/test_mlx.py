"""The engine mlx against mlx-lm itself, on the CPU."""

import importlib.util
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models import cache as mlx_caches
from msgspec.structs import replace
from tests.contract.mlx_models import (
    BUDGET,
    FAMILIES,
    PROMPT,
    REQUEST,
    opened,
    output,
    reference,
    save_family,
)

from regimescope.engines.base import Engine, Fills, ReadsTokens, Session, Waits
from regimescope.engines.mlx import MlxEngine
from regimescope.engines.registry import get_engine
from regimescope.errors import CapabilityError, EngineError, UserError
from regimescope.records import Cell
from regimescope.testing import assert_engine


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {family: save_family(family, tmp_path_factory.mktemp(family)) for family in FAMILIES}


@pytest.fixture(scope="module")
def tiny():
    session = MlxEngine().open(REQUEST)
    yield session
    session.close()


# --- generation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_every_loop_produces_what_mlx_lm_produces(folders, family):
    expected = reference(folders[family])
    assert len(set(expected)) > 8, "output too monotonous to prove anything"
    session = opened(folders[family])
    assert output(session) == [expected]
    assert output(session, kv_cache="off") == [expected]
    assert output(session, batch=3) == [expected] * 3
    assert output(session, batch=2, kv_cache="off") == [expected] * 2
    assert output(opened(folders[family], loop="mlx_lm")) == [expected]


@pytest.mark.parametrize("settings", [{}, {"prefill_step": 2}, {"clear_cache_every": 0}])
def test_settings_of_the_loop_change_no_token(folders, settings):
    assert output(opened(folders["llama"], **settings)) == [reference(folders["llama"])]


def test_without_stamps_the_first_token_comes_alone_and_the_rest_together(folders):
    session = opened(folders["gpt2"])
    cell = Cell(budget=BUDGET, prompt_tokens=len(PROMPT))
    steps = list(session.generate(PROMPT, cell, stamped=False))
    assert [step.tokens for step in steps] == [1, BUDGET - 1]
    assert session.output_ids() == [reference(folders["gpt2"])]
    single = session.generate(PROMPT, replace(cell, budget=1), stamped=False)
    assert [step.tokens for step in single] == [1]


@pytest.mark.parametrize(
    ("options", "cache"),
    [
        ({"cache": "concatenated"}, mlx_caches.ConcatenateKVCache),
        ({"cache": "rotating", "cache_size": 9}, lambda: mlx_caches.RotatingKVCache(9, keep=4)),
        (
            {"cache": "quantized", "cache_bits": 4, "cache_group": 32},
            lambda: mlx_caches.QuantizedKVCache(group_size=32, bits=4),
        ),
        ({"cache_step": 3}, mlx_caches.KVCache),
    ],
)
def test_each_kind_of_cache_is_that_of_mlx_lm(folders, options, cache):
    assert output(opened(folders["llama"], **options)) == [reference(folders["llama"], cache)]


def test_kinds_of_cache_that_lose_something_change_the_output(folders):
    """Otherwise the test above would prove nothing."""
    full = reference(folders["llama"])
    rotating = opened(folders["llama"], cache="rotating", cache_size=9)
    quantized = opened(folders["llama"], cache="quantized", cache_bits=2, cache_group=32)
    assert output(rotating) != [full]
    assert output(quantized) != [full]


def test_the_cache_grows_by_the_step_that_is_asked_for(folders):
    for options, expected in (({}, 256), ({"cache_step": 5}, 15), ({"cache": "concatenated"}, 13)):
        session = opened(folders["llama"], **options)
        session.fill(13)
        assert session._fill.cache[0].keys.shape == (1, 1, expected, 32)


def test_element_type_is_that_of_weights_and_cache(folders):
    for dtype in ("float16", "bfloat16"):
        session = MlxEngine().open(replace(REQUEST, model=str(folders["llama"]), dtype=dtype))
        assert len(output(session)[0]) == BUDGET
        session.fill(3)
        assert session._fill.cache[0].keys.dtype == getattr(mx, dtype)
        assert session.facts().weight_bytes == 2 * session.facts().settings["stored_elements"]


def test_an_abandoned_generation_leaves_the_session_usable(tiny):
    steps = tiny.generate(PROMPT, Cell(budget=BUDGET, prompt_tokens=len(PROMPT)))
    next(steps)
    steps.close()
    assert len(tiny.output_ids()[0]) == 1
    assert len(output(tiny)[0]) == BUDGET


# --- synthetic depth ------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"cache": "concatenated"}, {"loop": "mlx_lm"}])
def test_a_fill_serves_the_next_generation_and_only_that(folders, options):
    session = opened(folders["llama"], **options)
    plain = output(session)
    session.fill(20)
    filled = output(session, depth=20)
    assert filled != plain
    assert output(session) == plain
    with pytest.raises(EngineError, match="depth 20"):
        session.generate(PROMPT, Cell(budget=2, prompt_tokens=len(PROMPT), depth=20))


def test_the_prompt_is_appended_to_the_fill(folders):
    session = opened(folders["gpt2"])
    session.fill(20, Cell(budget=BUDGET, prompt_tokens=len(PROMPT), batch=2, depth=20))
    cache = session._fill.cache
    held = np.array(cache[1].keys[..., :20, :])
    assert output(session, batch=2, depth=20)[0]
    # All but the last token are read again.
    assert [entry.offset for entry in cache] == [20 + len(PROMPT) + BUDGET - 1] * 2
    assert np.array_equal(np.array(cache[1].keys[..., :20, :]), held)


def test_a_fill_is_taken_away_by_zero(tiny):
    tiny.fill(20)
    tiny.fill(0)
    assert output(tiny)
    with pytest.raises(CapabilityError, match="1,024 positions"):
        tiny.fill(1024)
    with pytest.raises(EngineError, match="0 or more"):
        tiny.fill(-1)


def test_a_fill_that_does_not_fit_the_cell_is_refused(tiny):
    tiny.fill(20)
    with pytest.raises(EngineError, match="batch 2"):
        tiny.generate(PROMPT, Cell(budget=2, prompt_tokens=7, depth=20, batch=2))
    tiny.fill(20)
    with pytest.raises(CapabilityError, match="Without a KV cache"):
        tiny.generate(PROMPT, Cell(budget=2, prompt_tokens=7, depth=20, kv_cache="off"))


# --- limits ---------------------------------------------------------------------------------------


def test_positions_are_used_up_to_the_last_one_and_no_further(folders):
    session = opened(folders["gpt2"])
    longest = 64 - len(PROMPT) + 1
    assert len(output(session, budget=longest)[0]) == longest
    with pytest.raises(CapabilityError, match="need 65 positions"):
        session.generate(PROMPT, Cell(budget=longest + 1, prompt_tokens=len(PROMPT)))
    session.fill(10)
    with pytest.raises(CapabilityError, match="Depth 10"):
        session.generate(PROMPT, Cell(budget=longest - 9, prompt_tokens=len(PROMPT), depth=10))


def test_the_loop_of_the_library_needs_one_position_more(folders):
    session = opened(folders["gpt2"], loop="mlx_lm")
    longest = 64 - len(PROMPT)
    assert len(output(session, budget=longest)[0]) == longest
    with pytest.raises(CapabilityError, match="need 65 positions"):
        session.generate(PROMPT, Cell(budget=longest + 1, prompt_tokens=len(PROMPT)))


@pytest.mark.parametrize(
    ("prompt", "cell", "message"),
    [
        ([], {"budget": 3}, "a prompt and a budget"),
        (PROMPT, {"budget": 0}, "a prompt and a budget"),
        ([1, 512], {"budget": 3}, "0 to 511"),
        ([-1], {"budget": 3}, "0 to 511"),
        (PROMPT, {"budget": 3, "capacity": 64}, "capacity"),
    ],
)
def test_requests_that_cannot_be_served_are_refused(tiny, prompt, cell, message):
    with pytest.raises((EngineError, CapabilityError), match=message):
        tiny.generate(prompt, Cell(**cell))


@pytest.mark.parametrize("cell", [{"kv_cache": "off"}, {"batch": 2}])
def test_the_loop_of_the_library_refuses_what_it_does_not_have(folders, cell):
    session = opened(folders["gpt2"], loop="mlx_lm")
    with pytest.raises(CapabilityError, match="loop to plain"):
        session.generate(PROMPT, Cell(budget=3, prompt_tokens=len(PROMPT), **cell))
    with pytest.raises(CapabilityError, match="loop to plain"):
        session.generate(PROMPT, Cell(budget=3, prompt_tokens=len(PROMPT)), stamped=False)


def test_a_closed_session_says_so(folders):
    session = opened(folders["gpt2"])
    session.close()
    session.close()
    with pytest.raises(EngineError, match="closed"):
        session.generate(PROMPT, Cell(budget=3, prompt_tokens=len(PROMPT)))
    with pytest.raises(EngineError, match="closed"):
        session.fill(3)


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": "cuda"}, "no device 'cuda'"),
        ({"dtype": "int8"}, "Element type 'int8'"),
        ({"options": {"threads": 3}}, "Known options: cache"),
        ({"options": {"cache": "static"}}, "Options of the engine mlx"),
        ({"options": {"cache_step": 0}}, "Options of the engine mlx"),
        ({"options": {"cache": "rotating"}}, "cache_size"),
        ({"options": {"cache": "rotating", "cache_size": 4}}, "Options of the engine mlx"),
        ({"options": {"cache_size": 40}}, "set cache to rotating"),
        ({"options": {"cache_bits": 4}}, "set cache to quantized"),
        ({"options": {"cache": "rotating", "cache_size": 40, "cache_step": 4}}, "cache_step"),
        ({"options": {"cache": "quantized"}}, "groups of 64"),
    ],
)
def test_requests_that_make_no_sense_are_refused(change, message):
    with pytest.raises(UserError, match=message) as caught:
        MlxEngine().inspect(replace(REQUEST, **change))
    assert caught.value.remedy


def test_short_names_of_element_types_are_known():
    assert MlxEngine().inspect(replace(REQUEST, dtype="bf16")).dtype == "bfloat16"


def test_options_may_come_as_text():
    request = replace(REQUEST, options={"cache_step": "64"})
    assert MlxEngine().inspect(request).settings["cache_step"] == 64


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(mx, "is_available", lambda device: device == mx.cpu)
    with pytest.raises(CapabilityError, match="no gpu here"):
        MlxEngine().inspect(replace(REQUEST, device="gpu"))
    assert MlxEngine().inspect(replace(REQUEST, device="auto")).device == "cpu"


def test_protocols_and_registry(tiny):
    engine: Engine = get_engine("mlx")
    session: Session = tiny
    assert isinstance(engine, MlxEngine)
    assert isinstance(session, Waits)
    assert isinstance(session, Fills)
    assert isinstance(session, ReadsTokens)
    tiny.wait()
    before = tiny.counters()["device_active"]
    kept = mx.zeros((1000, 1000))
    mx.eval(kept)
    assert tiny.counters()["device_active"] - before >= 4_000_000
    assert tiny.facts().versions.keys() == {"mlx", "mlx-lm"}


def test_the_engine_keeps_the_contract(folders):
    """What does not apply: nothing more is told of a generation; a loaded library stays loaded."""
    results = assert_engine(MlxEngine(), replace(REQUEST, model=str(folders["llama"])))
    skipped = {result.name for result in results if not result.applicable}
    assert skipped == {"inspect-loads-nothing", "last-generation"}


def test_nothing_heavy_is_imported_by_the_module():
    root = Path(importlib.util.find_spec("regimescope.engines.mlx").origin).parent
    for path in root.glob("mlx*.py"):
        lines = path.read_text().splitlines()
        assert not [line for line in lines if line.startswith(("import mlx", "from mlx"))]
