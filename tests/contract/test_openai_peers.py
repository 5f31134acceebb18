"""The HTTP engine against servers that people run: llama.cpp's own, mlx_lm.server, and ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.contract.openai_peers import POSITIONS, llama_server, mlx_server
from tests.contract.openai_trials import Ticking

from regimescope.engines.base import EngineRequest
from regimescope.engines.openai_http import OpenAIEngine, OpenAISession
from regimescope.errors import CapabilityError
from regimescope.measure.trial import Timing, generate, prompt
from regimescope.records import Cell
from regimescope.testing import assert_engine
from regimescope.testing.local_server import local_server

PROMPT = 12


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    with llama_server() as url:
        yield url


@pytest.fixture(scope="module")
def mlx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mlx_server(tmp_path_factory.mktemp("mlx")) as url:
        yield url


def request_of(url: str, **options: Any) -> EngineRequest:
    return EngineRequest(
        model="server", device="auto", dtype="float32", seed=0, options={"url": url, **options}
    )


def engine() -> OpenAIEngine:
    """Return the engine; whether tokens come one by one is up to a busy machine, so not tested."""
    return OpenAIEngine(Ticking())


def open_session(url: str, **options: Any) -> OpenAISession:
    return engine().open(request_of(url, **options))


def measured(session: OpenAISession, budget: int, name: str, length: int = PROMPT) -> Timing:
    ids = prompt(1, name, length, session.facts().vocabulary)
    return generate(session, ids, Cell(budget=budget, prompt_tokens=length))


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    with local_server("tiny", "--device", "cpu") as url:
        yield f"{url}/v1"


def test_llama_cpp_takes_ids_and_tells_everything(llama: str) -> None:
    session = open_session(llama)
    facts = session.facts()
    assert (facts.settings["server"], facts.settings["prompt"]) == ("llama.cpp", "ids")
    assert (facts.vocabulary, facts.positions) == (49_152, POSITIONS - 1)
    timing = measured(session, 10, "a")
    known = session.last_generation()
    session.close()
    assert timing.chunk_tokens == [1] * 10
    assert known.cached_tokens == 0
    assert known.readings["server_prefill_s"] > 0
    assert known.readings["server_decode_s"] > 0


def test_llama_cpp_caches_no_prompt_even_when_it_comes_twice(llama: str) -> None:
    session = open_session(llama)
    for _ in range(2):
        measured(session, 3, "same")
        assert session.last_generation().cached_tokens == 0
    session.close()


def test_llama_cpp_reaches_its_last_position_and_no_further(llama: str) -> None:
    session = open_session(llama)
    length = POSITIONS - 8
    assert sum(measured(session, 8, "edge", length).chunk_tokens) == 8
    with pytest.raises(CapabilityError, match="positions"):
        measured(session, 9, "past", length)
    session.close()


def test_llama_cpp_as_a_chat_counts_its_template(llama: str) -> None:
    session = open_session(llama, api="chat")
    beside = session.facts().settings["prompt_tokens_beside"]
    timing = measured(session, 5, "chat", beside + 4)
    session.close()
    assert beside > 5
    assert sum(timing.chunk_tokens) == 5


def test_llama_cpp_goes_on_after_a_generation_that_was_abandoned(llama: str) -> None:
    session = open_session(llama)
    steps = session.generate(list(range(100, 110)), Cell(budget=200, prompt_tokens=10))
    next(steps)
    steps.close()
    assert sum(measured(session, 4, "after").chunk_tokens) == 4
    session.close()


def test_mlx_is_made_to_give_exact_lengths(mlx: str) -> None:
    session = open_session(mlx)
    settings = session.facts().settings
    assert (settings["server"], settings["prompt"]) == ("mlx_lm", "text")
    assert settings["forced"] == "logit_bias"
    for budget in (2, 7, 300):
        timing = measured(session, budget, f"m{budget}")
        assert timing.chunk_tokens == [1] * budget
        assert session.last_generation().cached_tokens == 0
    session.close()


def test_mlx_counts_prompts_as_we_do(mlx: str) -> None:
    session = open_session(mlx)
    # A count that differed from the one asked for would raise.
    for length in (1, 2, 50, 200):
        assert sum(measured(session, 2, f"l{length}", length).chunk_tokens) == 2
    session.close()


@pytest.mark.parametrize("peer", ["llama", "mlx", "ours"])
def test_the_engine_keeps_the_contract_over_every_server(
    peer: str, request: pytest.FixtureRequest
) -> None:
    wanted = request_of(request.getfixturevalue(peer))
    results = assert_engine(engine(), wanted)
    assert {r.name for r in results if r.applicable} >= {"exact-budget", "last-generation", "batch"}
