"""The HTTP engine against servers that do not behave.

Whatever a server does, a trial ends in a named status; a latency stands only where every token was
accounted for.
"""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
from tests.contract.openai_server import (
    Handler,
    chunk,
    serving,
    status,
    stream,
    usage,
    well,
)
from tests.contract.openai_trials import BUDGET, KEY, has_no_latency, measure, open_session, request

from regimescope.reasons import Reason


def html(code: int) -> Any:
    page = b"<!DOCTYPE html><html><body>proxy</body></html>"
    return lambda handler, body: handler.send_body(page, "text/html", code)


def broken_off(handler: Handler, body: dict[str, Any]) -> None:
    handler.begin_stream()
    handler.send_event(chunk())
    handler.send_event(chunk())
    handler.break_off()


def ended_without_end(handler: Handler, body: dict[str, Any]) -> None:
    handler.begin_stream()
    handler.send_event(chunk())
    handler.end_stream()


def no_http(handler: Handler, body: dict[str, Any]) -> None:
    handler.wfile.write(b"\x00\x01\x02 what?\r\n\r\n")
    handler.break_off()


def long_header(handler: Handler, body: dict[str, Any]) -> None:
    handler.begin_stream(x_long="a" * 200_000)
    handler.end_stream()


def endless(handler: Handler, body: dict[str, Any]) -> None:
    handler.begin_stream()
    for _ in range(40):
        handler.send_part(b"x" * 100_000)


def compressed(handler: Handler, body: dict[str, Any]) -> None:
    handler.begin_stream(content_encoding="gzip")
    handler.end_stream()


def events_of(*made: object, produced: int | None = BUDGET) -> Any:
    """Answer with these events, and the counts at the end unless there are none."""

    def answer(handler: Handler, body: dict[str, Any]) -> None:
        end = [] if produced is None else [usage(body, produced)]
        stream(handler, [*made, *end])

    return answer


TOKENS = [chunk()] * (BUDGET - 1)
LAST = chunk(finish="length")


def long_prompt(handler: Handler, body: dict[str, Any]) -> None:
    end = usage(body, BUDGET)
    end["usage"]["prompt_tokens"] += 1
    stream(handler, [*TOKENS, LAST, end])


HOSTILE = {
    "400": (status(400, {"error": {"message": "too\nlong"}}), r"refused the request .*too long"),
    "401": (status(401, {"error": f"bad key {KEY}"}), r"wants another API key .*bad key \[key\]"),
    "429": (status(429, {"error": {"message": "slow down"}}), r"limits requests .*slow down"),
    "500": (status(500, {"detail": "boom"}), r"failed \(status 500\): boom"),
    "500 html": (html(500), r"failed \(status 500\): it sent an HTML page"),
    "200 html": (html(200), r"answered with text/html, not with a stream"),
    "broken off": (broken_off, r"broke off"),
    "no end": (ended_without_end, r"ended before its generation did"),
    "no http": (no_http, r"broke off or speaks no HTTP|the connection failed"),
    "long header": (long_header, r"broke off or speaks no HTTP|the connection failed"),
    "endless": (endless, r"sent more than"),
    "compressed": (compressed, r"compressed its answer"),
    "no json": (events_of(chunk(), "{not json"), r"no completion chunk"),
    "no object": (events_of(chunk(), "17"), r"no completion chunk"),
    "wrong type": (events_of({"choices": [{"text": 5}]}), r"no completion chunk"),
    "error": (events_of(chunk(), {"error": {"message": f"OOM {KEY}"}}), r"answer: OOM \[key\]"),
    "two": (events_of({"choices": [{"index": 0}, {"index": 1}]}), r"more than one answer"),
    "other index": (events_of({"choices": [{"index": 1, "text": "a"}]}), r"more than one answer"),
    "early": (events_of(chunk(), chunk(finish="stop"), produced=2), r"stopped after 2 of 6"),
    "too many": (events_of(*TOKENS, chunk(), LAST), r"more than the 6 tokens"),
    "several": (events_of(*TOKENS[:3], LAST), r"4 tokens arrived in chunks, .* counts 6"),
    "no counts": (events_of(*TOKENS, LAST, produced=None), r"tells no token counts"),
    "first of two": (events_of(chunk(token_ids=[1, 2])), r"first chunk holds 2 tokens"),
    "backwards": (
        events_of(*[{**chunk(), "timings": {"predicted_n": n}} for n in (1, 2, 1)]),
        r"counts its tokens backwards",
    ),
    "other prompt": (long_prompt, r"counts 10 tokens in a prompt of 9"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_misbehaving_server_makes_a_failed_trial_without_a_latency(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    answer, message = HOSTILE[case]
    with serving() as server:
        session = open_session(request(server))
        server.answer = answer
        before = len(server.seen)
        trial = measure(session)
        assert len(server.seen) == before + 1, "nothing is sent twice"
        assert has_no_latency(trial)
        assert re.search(message, trial.message or "")
        assert KEY not in (trial.message or "")
        server.answer = well
        assert measure(session, name="next").status == "ok", "the session lives on"
        session.close()


def test_early_ends_and_unknown_counts_carry_their_reason() -> None:
    with serving() as server:
        session = open_session(request(server))
        found = {}
        for case in ("early", "too many", "several", "no counts"):
            server.answer = HOSTILE[case][0]
            found[case] = measure(session).reasons
        session.close()
    assert found == {
        "early": [Reason.TOKEN_COUNT_MISMATCH],
        "too many": [Reason.TOKEN_COUNT_MISMATCH],
        "several": [Reason.CHUNKED_STREAM],
        "no counts": [Reason.TOKENS_NOT_VERIFIED],
    }


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_redirects_are_not_followed(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving() as elsewhere, serving() as server:
        session = open_session(request(server))
        server.answer = status(code, None, location=elsewhere.url + "/completions")
        trial = measure(session)
        session.close()
        assert elsewhere.seen == []
    assert has_no_latency(trial)
    assert "redirects elsewhere" in (trial.message or "")


def test_a_silent_server_ends_the_trial() -> None:
    over = threading.Event()

    def silent(handler: Handler, body: dict[str, Any]) -> None:
        handler.begin_stream()
        handler.send_event(chunk())
        over.wait(60)

    with serving() as server:
        session = open_session(request(server, timeout_s=2))
        server.answer = silent
        trial = measure(session)
        session.close()
        over.set()
    assert has_no_latency(trial)
    assert "silent for 2" in (trial.message or "")
