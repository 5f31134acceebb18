"""Attention kernels, the loop of transformers, compiled steps: the ways to decode, on the CPU."""

import sys
import threading
import warnings

import pytest
import torch
from msgspec.structs import replace
from transformers import GPT2LMHeadModel

from regimescope.engines import hf_attention, hf_compile
from regimescope.engines.base import EngineRequest
from regimescope.engines.hf import HfEngine
from regimescope.errors import CapabilityError, EngineError
from regimescope.records import Cell

PROMPT = [5, 96, 1, 2, 40, 41, 7]
BUDGET = 12
REQUEST = EngineRequest(model="tiny", device="cpu", dtype="float32", seed=3)


def opened(**options):
    return HfEngine().open(replace(REQUEST, options=options))


def output(session, prompt=PROMPT, **cell):
    cell = {"budget": BUDGET, "prompt_tokens": len(prompt)} | cell
    steps = list(session.generate(prompt, Cell(**cell)))
    assert [step.tokens for step in steps] == [1] * cell["budget"]
    return session.output_ids()


@pytest.fixture(scope="module")
def expected():
    session = opened()
    yield output(session)
    session.close()


@pytest.fixture(scope="module")
def generating():
    session = opened(loop="generate")
    yield session
    session.close()


# --- attention ------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", ["steps", "generate"])
@pytest.mark.parametrize("attention", ["eager", "sdpa", "math", "flash"])
def test_every_attention_of_the_processor_gives_the_same_tokens(expected, attention, loop):
    session = opened(attention=attention, loop=loop)
    assert output(session) == expected
    assert output(session, kv_cache="off") == expected


@pytest.mark.parametrize("loop", ["steps", "generate"])
@pytest.mark.parametrize(("attention", "others"), [("math", "flash"), ("flash", "math")])
def test_only_the_forced_kernel_may_compute_within_a_generation(
    monkeypatch, attention, others, loop
):
    enabled = {
        "math": torch.backends.cuda.math_sdp_enabled,
        "flash": torch.backends.cuda.flash_sdp_enabled,
    }
    seen = []
    attend = torch.nn.functional.scaled_dot_product_attention

    def watched(*args, **keywords):
        seen.append((enabled[attention](), enabled[others]()))
        return attend(*args, **keywords)

    session = opened(attention=attention, loop=loop)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    output(session)
    assert set(seen) == {(True, False)}
    assert enabled["math"]()
    assert enabled["flash"](), "the choice must end with the generation"


def test_abandoned_generation_gives_the_choice_of_kernels_back():
    session = opened(attention="math")
    generation = session.generate(PROMPT, Cell(budget=4))
    next(generation)
    assert not torch.backends.cuda.flash_sdp_enabled()
    generation.close()
    assert torch.backends.cuda.flash_sdp_enabled()


@pytest.mark.parametrize("attention", ["efficient", "cudnn"])
def test_kernel_that_the_device_refuses_names_those_that_work(attention):
    for method in (HfEngine().inspect, HfEngine().open):
        with warnings.catch_warnings(), pytest.raises(CapabilityError, match=attention) as caught:
            method(replace(REQUEST, options={"attention": attention}))
        assert "math, flash, sdpa, eager" in caught.value.remedy
        assert attention not in caught.value.remedy


def test_kernel_that_only_the_model_refuses_is_found_when_it_is_opened(monkeypatch):
    request = replace(REQUEST, options={"attention": "math"})

    def refuse(*args, **keywords):
        raise RuntimeError("No available kernel. Aborting execution.\nmore")

    HfEngine().inspect(request)
    monkeypatch.setattr(GPT2LMHeadModel, "forward", refuse)
    with pytest.raises(
        CapabilityError, match=r"'math' and a dynamic cache: .*No available kernel"
    ) as caught:
        HfEngine().open(request)
    assert "sdpa" in caught.value.remedy


def test_shape_that_a_forced_kernel_cannot_compute_is_said_to_be_its_limit(monkeypatch):
    session = opened(attention="math")

    def refuse(*args, **keywords):
        raise RuntimeError("No available kernel. Aborting execution.")

    with monkeypatch.context() as patch:
        patch.setattr(GPT2LMHeadModel, "forward", refuse)
        with pytest.raises(CapabilityError, match="forced attention kernel cannot compute this"):
            output(session)
    assert output(session)


def test_model_without_fused_attention_has_no_kernel_to_force():
    request = replace(REQUEST, model="bloom-560m", options={"attention": "math"})
    with pytest.raises(CapabilityError, match="sdpa") as caught:
        HfEngine().inspect(request)
    assert "eager" in caught.value.remedy


def test_choice_without_a_kernel_is_not_tried(monkeypatch):
    monkeypatch.setattr(hf_attention, "_refusal", lambda *args: "always")
    hf_attention.check_kernel("eager", "cpu", "float32", 16)
    with pytest.raises(CapabilityError, match="always"):
        hf_attention.check_kernel("math", "cpu", "float32", None)


# --- the loop of transformers ---------------------------------------------------------------------


@pytest.mark.parametrize("cell", [{}, {"kv_cache": "off"}, {"budget": 1}, {"batch": 3}])
def test_generate_gives_the_tokens_of_the_explicit_loop(generating, cell):
    assert output(generating, **cell) == output(opened(), **cell)


def test_token_of_generate_is_on_the_host_when_its_step_is_handed_over(generating):
    generation = generating.generate(PROMPT, Cell(budget=3))
    for count in (1, 2, 3):
        next(generation)
        assert [len(row) for row in generating.output_ids()] == [count]
    with pytest.raises(StopIteration):
        next(generation)


def test_generate_waits_after_each_token_until_the_next_is_wanted(monkeypatch):
    session = opened(loop="generate")
    passes = []
    forward = session._loop._model.forward

    def counted(*args, **keywords):
        passes.append(1)
        return forward(*args, **keywords)

    monkeypatch.setattr(session._loop._model, "forward", counted)
    generation = session.generate(PROMPT, Cell(budget=6))
    next(generation)
    next(generation)
    generation.close()
    assert len(passes) == 2
    session.close()


def test_generate_without_stamps_gives_the_same_tokens_in_two_steps(generating):
    stamped = output(generating)
    cell = Cell(budget=BUDGET)
    steps = list(generating.generate(PROMPT, cell, stamped=False))
    assert [step.tokens for step in steps] == [1, BUDGET - 1]
    assert generating.output_ids() == stamped
    only = generating.generate(PROMPT, Cell(budget=1), stamped=False)
    assert [step.tokens for step in only] == [1]


def test_abandoned_generate_leaves_the_session_usable(generating):
    whole = output(generating)
    for stamped in (True, False):
        generation = generating.generate(PROMPT, Cell(budget=BUDGET), stamped=stamped)
        next(generation)
        generation.close()
        assert output(generating) == whole


def test_all_generations_run_in_one_thread(generating, monkeypatch):
    """Compiled plans of some devices belong to a thread."""
    threads = set()
    forward = generating._loop._model.forward

    def watched(*args, **keywords):
        threads.add(threading.get_ident())
        return forward(*args, **keywords)

    monkeypatch.setattr(generating._loop._model, "forward", watched)
    output(generating)
    output(generating)
    assert len(threads) == 1


def test_thread_of_generate_ends_with_the_session():
    session = opened(loop="generate")
    output(session)
    assert any(thread.name.startswith("generate") for thread in threading.enumerate())
    before = sum(thread.name.startswith("generate") for thread in threading.enumerate())
    session.close()
    after = sum(thread.name.startswith("generate") for thread in threading.enumerate())
    assert after == before - 1


def test_failure_inside_generate_is_an_engine_error(monkeypatch):
    session = opened(loop="generate")
    whole = output(session)

    def run_out(*args, **keywords):
        raise torch.OutOfMemoryError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(session._loop._model, "forward", run_out)
        for stamped in (True, False):
            with pytest.raises(EngineError, match="out of memory"):
                list(session.generate(PROMPT, Cell(budget=4), stamped=stamped))
    assert output(session) == whole
    session.close()


# --- compiled steps -------------------------------------------------------------------------------


@pytest.fixture
def traced(monkeypatch):
    """Compile by tracing alone, which takes a second where making machine code takes thirty."""
    compile_plain = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda model, **settings: compile_plain(model, backend="eager")
    )
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")
def test_compiled_steps_give_the_same_tokens_and_the_counts_are_read(expected):
    """Makes machine code once: a static cache needs one piece of it."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    session = opened(compile=True, cache="static")
    assert session.facts().settings["compile"] is True
    before = session.counters()
    assert output(session, capacity=64) == expected
    after = session.counters()
    assert after["compiles_count"] == before.get("compiles_count", 0) + 1
    assert output(session, capacity=64) == expected
    again = session.counters()
    assert again["compiles_count"] == after["compiles_count"]
    assert again["recompiles_count"] == 0
    assert again["compile_fallbacks_count"] == 0
    assert again["graph_breaks_count"] == 0
    torch._dynamo.reset()


@pytest.mark.parametrize("loop", ["steps", "generate"])
def test_growing_cache_is_compiled_twice_and_then_no_more(traced, expected, loop):
    session = opened(compile=True, loop=loop)
    assert output(session) == expected
    first = session.counters()
    assert (first["compiles_count"], first["recompiles_count"]) == (2, 1)
    assert output(session) == expected
    assert session.counters()["recompiles_count"] == 1


def test_steps_without_a_cache_are_compiled_too(traced, expected):
    session = opened(compile=True)
    assert output(session, kv_cache="off", budget=3)[0] == expected[0][:3]
    assert session.counters()["compiles_count"] >= 1


def test_prompts_are_not_compiled(traced):
    session = opened(compile=True)
    for length in (3, 4, 5):
        output(session, PROMPT[:length], budget=1)
    assert session.counters().get("compiles_count", 0) == 0


def test_reached_limit_of_the_compiler_is_reported(traced, expected, monkeypatch):
    """From then on PyTorch runs new lengths uncompiled and says so in a log only."""
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 1)
    session = opened(compile=True)
    assert output(session) == expected
    assert session.counters()["compile_fallbacks_count"] >= 1


def test_sessions_that_do_not_compile_count_nothing_of_it():
    assert not any(name.startswith("compile") for name in opened().counters())


def test_counts_are_absent_in_a_process_that_never_compiled(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._dynamo.convert_frame", raising=False)
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    assert hf_compile.compile_readings() == {}


def test_missing_compiler_is_said_before_anything_is_loaded(monkeypatch):
    monkeypatch.setattr(hf_compile.shutil, "which", lambda name: None)
    with pytest.raises(CapabilityError, match=r"C\+\+ compiler") as caught:
        HfEngine().inspect(replace(REQUEST, options={"compile": True}))
    assert "g++" in caught.value.remedy


def test_missing_triton_is_said_for_a_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(CapabilityError, match="Triton") as caught:
        hf_compile.check_compiler("cuda:1")
    assert "pip install triton" in caught.value.remedy
