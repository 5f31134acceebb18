"""The HTTP engine before anything is measured: addresses, keys, models, options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.contract.openai_server import Handler, chunk, serving, status, stream, usage
from tests.contract.openai_trials import KEY, has_no_latency, measure, request

from regimescope import api
from regimescope.engines.base import EngineRequest
from regimescope.engines.openai_http import OpenAIEngine
from regimescope.engines.openai_overhead import CHUNKS, measure_overhead
from regimescope.engines.registry import get_engine
from regimescope.errors import CapabilityError, MeasurementError, SpecError
from regimescope.spec import ScanSpec


def test_a_server_that_is_down_is_named_with_a_remedy() -> None:
    with serving() as server:
        gone = request(server)
    with pytest.raises(CapabilityError, match=r"no connection to http://127.*\n.*url=URL"):
        OpenAIEngine().inspect(gone)


def test_a_server_that_wants_a_key_says_so() -> None:
    with serving() as server:
        server.answer = status(401, {"error": "no"})
        with pytest.raises(CapabilityError, match="wants another API key"):
            OpenAIEngine().open(request(server))


@pytest.mark.parametrize(
    "models", [None, [], "text", {"data": []}, {"data": [{"id": 5}]}, {"data": {"id": "a"}}]
)
def test_a_list_without_models_is_refused(models: object) -> None:
    with serving() as server:
        server.models = models
        with pytest.raises(CapabilityError, match="lists no models"):
            OpenAIEngine().inspect(request(server))


def test_an_unknown_model_lists_the_known_ones() -> None:
    with serving() as server:
        with pytest.raises(SpecError, match=r"no model 'big'[^\n]*\n.*small"):
            OpenAIEngine().inspect(request(server, model="big"))
        server.models["data"].append({"id": "other"})
        with pytest.raises(SpecError, match="several models"):
            OpenAIEngine().inspect(request(server))


@pytest.mark.parametrize(
    ("owner", "calls_itself", "kind"),
    [
        ("vllm", "uvicorn", "vllm"),
        ("sglang", "uvicorn", "sglang"),
        ("regimescope", "uvicorn", "regimescope"),
        ("llamacpp", "llama.cpp", "llama.cpp"),
        ("library", "", "ollama"),
        (None, "BaseHTTP/0.6 Python/3.11", "mlx_lm"),
        ("organization_owner", "", "other"),
    ],
)
def test_servers_are_recognized(owner: str | None, calls_itself: str, kind: str) -> None:
    with serving(owner=owner, calls_itself=calls_itself) as server:
        facts = OpenAIEngine().inspect(request(server))
        assert server.asked == [], "nothing is generated"
    assert facts.settings["server"] == kind


def test_told_sizes_are_read_and_absurd_ones_are_not() -> None:
    with serving(owner="vllm") as server:
        server.models["data"][0]["max_model_len"] = 2048
        assert OpenAIEngine().inspect(request(server)).positions == 2047
        for absurd in (-1, 0, 2**40, "many", 1.5, True, None):
            server.models["data"][0]["max_model_len"] = absurd
            assert OpenAIEngine().inspect(request(server)).positions is None
        assert OpenAIEngine().inspect(request(server, positions=64)).positions == 63


def test_a_budget_past_the_positions_is_refused_before_it_is_sent() -> None:
    with serving() as server:
        session = OpenAIEngine().open(request(server, positions=17))
        before = len(server.seen)
        trial = measure(session, budget=9)
        assert len(server.seen) == before
        session.close()
    assert has_no_latency(trial)
    assert "need 17 positions" in (trial.message or "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "ftp://host/v1"}, "http://"),
        ({"url": "127.0.0.1:8080"}, "http://"),
        ({"url": "http://user:pw@host/v1"}, "no user, password"),
        ({"url": "http://host/v1?key=1"}, "no user, password, query"),
        ({"url": "http://host:99999/v1"}, "no URL"),
        ({"url": "http://ho st/v1"}, "space"),
        ({"api_key_env": "NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE is not set"),
        ({"api_key_env": "sk-in the wrong place"}, "api_key_env"),
        ({"concurrency": 0}, "concurrency"),
        ({"timeout_s": -1}, "timeout_s"),
        ({"api": "chat", "prompt": "ids"}, "no prompt of token ids"),
        ({"color": "red"}, "color"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    wanted = EngineRequest(model="m", device="auto", dtype="float32", seed=0, options=options)
    with pytest.raises(SpecError, match=message):
        OpenAIEngine().inspect(wanted)


def test_what_is_the_affair_of_the_server_cannot_be_asked() -> None:
    for values in ({"device": "cuda"}, {"dtype": "float16"}):
        wanted = {"model": "m", "device": "auto", "dtype": "float32", "seed": 0} | values
        with pytest.raises(SpecError, match="by itself"):
            OpenAIEngine().inspect(EngineRequest(**wanted))


def test_the_key_is_sent_but_not_to_other_machines_in_the_clear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from regimescope.engines.openai_client import parse_address, read_key

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("MINE", KEY)
    with serving() as server:
        OpenAIEngine().inspect(request(server))
        assert {k.lower(): v for k, v in server.seen[0][1].items()}["authorization"].endswith(KEY)
    remote = parse_address("http://192.0.2.1/v1")
    assert read_key(remote, None) is None
    assert read_key(remote, "MINE") == KEY
    assert read_key(parse_address("https://192.0.2.1/v1"), None) == KEY
    monkeypatch.setenv("MINE", "two\nlines")
    with pytest.raises(SpecError, match="cannot be an API key") as refused:
        read_key(remote, "MINE")
    assert "two" not in str(refused.value)


def test_a_scan_of_a_server_that_stops_early_says_so_and_keeps_no_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stops(handler: Handler, body: dict[str, Any]) -> None:
        stream(handler, [chunk(), chunk(finish=f"stop {KEY}"), usage(body, 2)])

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(stops) as server:
        spec = ScanSpec(
            engine="openai",
            model="server",
            budgets=(8, 12),
            prompt_tokens=5,
            processes=1,
            warm_up_s=0.0,
            engine_options={"url": server.url},
        )
        with pytest.raises(MeasurementError, match=r"stopped after 2 of 12 .*stop \[key\]"):
            api.scan(spec, out=tmp_path / "run")
    run = api.load(tmp_path / "run")
    assert {trial.status for trial in run.trials} == {"failed"}
    (start, *_) = (event for event in run.events if event.kind == "process_start")
    assert start.facts is not None
    assert start.facts["device"] == "server"
    assert start.facts["settings"]["client_overhead_s"] > 0
    for path in (tmp_path / "run").rglob("*"):
        assert not path.is_file() or KEY not in path.read_text(), path


def test_the_overhead_of_the_client_is_measured_on_loopback() -> None:
    overhead_s = measure_overhead()
    assert overhead_s is not None
    assert CHUNKS > 1
    assert overhead_s > 0


def test_the_engine_is_listed_and_loads_no_library_for_its_capabilities() -> None:
    capabilities = get_engine("openai").capabilities()
    assert capabilities.devices == ("server",)
    assert not capabilities.batch
    assert json.dumps(capabilities.modes)
