"""The HTTP engine against servers that behave: what is asked, what is counted, what is kept."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from tests.contract.openai_server import (
    Handler,
    chunk,
    prompt_tokens,
    serving,
    stream,
    usage,
    well,
)
from tests.contract.openai_trials import (
    BUDGET,
    Ticking,
    has_no_latency,
    measure,
    open_session,
    request,
)

from regimescope.errors import EngineError
from regimescope.reasons import Reason
from regimescope.records import Cell


def test_a_good_server_gives_a_trial_with_every_gap() -> None:
    with serving() as server:
        session = open_session(request(server))
        trial = measure(session)
        session.close()
    assert trial.status == "ok"
    assert trial.output_tokens == BUDGET
    assert trial.itl_s is not None
    assert len(trial.itl_s) == BUDGET - 1
    assert trial.cached_tokens == 0
    assert trial.reasons == [Reason.CLIENT_SIDE_TIMES, Reason.MISSING_PROCESS_RUN]


def test_the_request_asks_for_exact_lengths_and_no_cache() -> None:
    with serving(owner="llamacpp") as server:
        session = open_session(request(server))
        measure(session)
        session.close()
        asked = server.asked[-1]
    assert len(asked["prompt"]) == 9
    assert asked["stream_options"] == {"include_usage": True}
    expected = {"max_tokens": BUDGET, "ignore_eos": True, "cache_prompt": False, "temperature": 0}
    assert {name: asked[name] for name in expected} == expected


def test_prompts_differ_from_trial_to_trial() -> None:
    with serving() as server:
        session = open_session(request(server))
        for name in ("a", "b", "c"):
            measure(session, name=name)
        session.close()
        firsts = [tuple(body["prompt"][:3]) for body in server.asked]
    assert len(set(firsts)) == len(firsts) == 4


def test_text_prompts_have_the_length_that_was_asked() -> None:
    with serving(owner="somebody") as server:
        session = open_session(request(server))
        assert session.facts().settings["prompt"] == "text"
        trial = measure(session)
        session.close()
        assert len(server.asked[-1]["prompt"].split()) == 9
    assert trial.status == "ok"


def test_a_chat_counts_what_its_template_adds() -> None:
    def chat(handler: Handler, body: dict[str, Any]) -> None:
        if not body.get("stream"):
            said = {"message": {"content": " a"}, "finish_reason": "length"}
            counts = {"prompt_tokens": prompt_tokens(body), "completion_tokens": 1}
            handler.send_json({"choices": [said], "usage": counts})
            return
        role = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
        said = {"index": 0, "delta": {"content": "a"}, "finish_reason": None}
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
        budget = body["max_tokens"]
        stream(handler, [role, *[{"choices": [said]}] * budget, end, usage(body, budget)])

    with serving(chat) as server:
        session = open_session(request(server, api="chat"))
        assert session.facts().settings["prompt_tokens_beside"] == 5
        trial = measure(session)
        session.close()
    assert (trial.status, trial.output_tokens) == ("ok", BUDGET)


def test_words_of_several_tokens_are_left_out_of_prompts() -> None:
    def two_for_time(handler: Handler, body: dict[str, Any]) -> None:
        # Past the first word, "people" is two tokens here.
        extra = body["prompt"].split()[1:].count("people")
        body["prompt"] += " more" * extra
        well(handler, body)

    with serving(two_for_time, owner="somebody") as server:
        session = open_session(request(server))
        trials = [measure(session, name=f"t{k}") for k in range(8)]
        session.close()
    assert {trial.status for trial in trials} == {"ok"}
    assert session.facts().settings["words"] == 135 - 27


def test_chunks_of_several_tokens_are_counted_by_their_ids() -> None:
    def in_pairs(handler: Handler, body: dict[str, Any]) -> None:
        budget = body["max_tokens"]
        ids = [[1], *[[2, 3]] * ((budget - 1) // 2), *[[4]] * ((budget - 1) % 2)]
        events = [chunk("" if k % 2 else "a", token_ids=of_chunk) for k, of_chunk in enumerate(ids)]
        stream(handler, [*events, chunk("", finish="length", token_ids=[]), usage(body, budget)])

    with serving(in_pairs, owner="vllm") as server:
        session = open_session(request(server))
        assert server.asked[-1]["return_token_ids"] is True
        trial = measure(session)
        session.close()
    assert trial.status == "ok"
    assert trial.chunk_tokens == [1, 2, 2, 1]
    assert trial.itl_s is None, "gaps between chunks are none between tokens"
    assert Reason.CHUNKED_STREAM in (trial.reasons or [])
    assert trial.output_tokens == BUDGET


def test_counts_in_every_chunk_are_used_before_texts() -> None:
    def held_back(handler: Handler, body: dict[str, Any]) -> None:
        budget = body["max_tokens"]
        timings = {"cache_n": 0, "prompt_ms": 20.0, "draft_n": 2}
        events = [
            {**chunk(), "timings": {**timings, "predicted_n": n, "predicted_ms": 5.0 * n}}
            for n in (1, 2, budget)
        ]
        end = {**events[-1], **chunk("", finish="length")}
        stream(handler, [*events, end, usage(body, budget)])

    with serving(held_back, owner="llamacpp") as server:
        session = open_session(request(server))
        trial = measure(session)
        session.close()
    assert trial.chunk_tokens == [1, 1, BUDGET - 2]
    assert trial.counters is not None
    assert trial.counters["server_prefill_s"] == pytest.approx(0.020)
    assert trial.counters["server_decode_s"] == pytest.approx(0.005 * BUDGET)
    assert Reason.SPECULATIVE_DECODING in (trial.reasons or [])


def test_a_cached_prompt_leaves_no_latency() -> None:
    with serving(partial(well, cached=3)) as server:
        session = open_session(request(server))
        trial = measure(session)
        session.close()
    assert has_no_latency(trial)
    assert trial.cached_tokens == 3
    assert Reason.CACHED_PROMPT in (trial.reasons or [])


def test_a_server_that_does_not_tell_of_its_cache_is_marked() -> None:
    with serving(partial(well, cached=None)) as server:
        session = open_session(request(server))
        trial = measure(session)
        session.close()
    assert trial.status == "ok"
    assert trial.cached_tokens is None
    assert Reason.CACHED_PROMPT_UNKNOWN in (trial.reasons or [])


def test_tokens_that_arrive_all_at_once_leave_no_latency() -> None:
    with serving() as server:
        # On this clock every token is there a microsecond after it was asked for.
        session = open_session(request(server), Ticking(step_ns=1_000))
        trial = measure(session)
        session.close()
    assert has_no_latency(trial)
    assert trial.reasons == [Reason.CHUNKED_STREAM]
    assert "5 arrived together with the first one" in (trial.message or "")


def test_an_abandoned_generation_does_not_spoil_the_next() -> None:
    with serving() as server:
        session = open_session(request(server))
        steps = session.generate([5, 6, 7], Cell(budget=40, prompt_tokens=3))
        next(steps)
        steps.close()
        assert measure(session).status == "ok"
        session.close()


def test_other_requests_run_beside_the_measured_one() -> None:
    together, met = threading.Barrier(3), threading.Event()

    def meet(handler: Handler, body: dict[str, Any]) -> None:
        # Nobody gets an answer before three requests are there at once.
        if body["max_tokens"] == BUDGET and not met.is_set():
            together.wait(60)
            met.set()
        well(handler, body)

    with serving() as server:
        server.answer = meet
        met.set()
        session = open_session(request(server, concurrency=3))
        met.clear()
        trial = measure(session)
        session.close()
        prompts = {tuple(b["prompt"]) for b in server.asked if b["max_tokens"] == BUDGET}
    assert trial.status == "ok"
    assert len(prompts) == 3
    assert trial.counters is not None
    assert trial.counters["load_failed_count"] == 0


def test_a_trial_is_void_when_the_requests_beside_it_fail() -> None:
    refusals = threading.Semaphore(0)
    measured = list(range(9))

    def refuse_others(handler: Handler, body: dict[str, Any]) -> None:
        if body["max_tokens"] == BUDGET and body["prompt"] != measured:
            handler.send_json({"error": "busy"}, status=503)
            refusals.release()
            return
        if body["max_tokens"] == BUDGET:
            # A second one shows that the first was noticed.
            assert refusals.acquire(timeout=60)
            assert refusals.acquire(timeout=60)
        well(handler, body)

    with serving(refuse_others) as server:
        session = open_session(request(server, concurrency=2))
        with pytest.raises(EngineError, match="of the requests beside it failed"):
            list(session.generate(measured, Cell(budget=BUDGET, prompt_tokens=9)))
        session.close()
