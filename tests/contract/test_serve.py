"""The server: right answers, proper errors, nothing mixed up, nothing revealed."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

TOKEN = "a-secret-of-the-test"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def server() -> Iterator[httpx.Client]:
    port = free_port()
    options = ["--token-env", "SERVE_TOKEN", "--max-waiting", "16", "--engine-option", "threads=1"]
    command = [sys.executable, "-m", "regimescope.cli", "serve", "tiny", "--device", "cpu"]
    # In the background a shell lets its children ignore Ctrl-C.
    process = subprocess.Popen(
        [*command, "--port", str(port), *options],
        env=os.environ | {"SERVE_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    lines: list[bytes] = []
    assert process.stdout is not None
    reader = threading.Thread(target=lines.extend, args=(process.stdout,), daemon=True)
    reader.start()
    client = httpx.Client(
        base_url=f"http://127.0.0.1:{port}",
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=120,
        transport=httpx.HTTPTransport(retries=0),
    )
    try:
        wait_until_ready(client, process)
        yield client
    finally:
        client.close()
        end(process)
        reader.join(10)
        process.stdout.close()
    assert TOKEN.encode() not in b"".join(lines)


def end(process: subprocess.Popen[bytes]) -> None:
    """End the server by Ctrl-C, as a user would."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def wait_until_ready(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    pause = threading.Event()
    for _ in range(1200):
        assert process.poll() is None, "the server ended before it was ready"
        try:
            if client.get("/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        pause.wait(0.1)
    raise AssertionError("the server was not ready in time")


def events(client: httpx.Client, path: str, body: dict[str, object]) -> list[dict[str, object]]:
    with client.stream("POST", path, json=body) as response:
        assert response.status_code == 200
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def complete(client: httpx.Client, prompt: object, budget: int) -> dict[str, object]:
    answer = client.post("/v1/completions", json={"prompt": prompt, "max_tokens": budget})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_a_completion_has_exactly_the_tokens_asked_for(server: httpx.Client) -> None:
    answer = complete(server, [1, 2, 3], 7)
    assert len(answer["choices"][0]["token_ids"]) == 7
    assert answer["usage"]["prompt_tokens"] == 3
    assert answer["usage"]["completion_tokens"] == 7
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_streamed_tokens_are_those_of_the_whole_answer(server: httpx.Client) -> None:
    whole = complete(server, [5, 6, 7], 9)
    parts = events(
        server,
        "/v1/completions",
        {
            "prompt": [5, 6, 7],
            "max_tokens": 9,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    )
    tokens = [t for p in parts for c in p["choices"] for t in c.get("token_ids", [])]
    assert tokens == whole["choices"][0]["token_ids"]
    assert "".join(c["text"] for p in parts for c in p["choices"]) == whole["choices"][0]["text"]
    assert parts[-1]["usage"]["completion_tokens"] == 9
    assert parts[-2]["timings"]["predicted_n"] == 9


def test_a_chat_streams_deltas(server: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "stream": True}
    parts = events(server, "/v1/chat/completions", body)
    texts = [c["delta"].get("content", "") for p in parts for c in p["choices"]]
    assert len([text for text in texts if text]) == 4
    assert all("usage" not in part for part in parts)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"prompt": [1], "max_tokens": 0}, "max_tokens"),
        ({"prompt": [1], "max_tokens": 10**9}, "max_tokens"),
        ({"prompt": [1], "max_tokens": "5"}, "max_tokens"),
        ({"prompt": [1], "max_tokens": 5.5}, "max_tokens"),
        ({"prompt": [], "max_tokens": 5}, "prompt"),
        ({"prompt": "", "max_tokens": 5}, "prompt"),
        ({"prompt": [-1], "max_tokens": 5}, "prompt"),
        ({"prompt": {"a": 1}, "max_tokens": 5}, "prompt"),
        ({"max_tokens": 5}, "prompt"),
        ({"prompt": [1], "max_tokens": 5, "temperature": 0.7}, "temperature"),
        ({"prompt": [1], "max_tokens": 5, "n": 2}, "n"),
        ({"prompt": [1], "max_tokens": 5, "invented": True}, "invented"),
        ([1, 2], "body"),
        ({"prompt": [1, 999_999], "max_tokens": 5}, "token ids"),
        ({"prompt": [1], "max_tokens": 100_000}, "positions"),
    ],
)
def test_a_bad_request_names_its_fault(server: httpx.Client, body: object, names: str) -> None:
    answer = server.post("/v1/completions", json=body)
    assert answer.status_code == 400
    assert names in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"prompt": [1], "max_tokens": ' + b"9" * 5000 + b"}",
    ],
)
def test_a_malformed_body_is_answered(server: httpx.Client, content: bytes) -> None:
    answer = server.post(
        "/v1/completions", content=content, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 400
    assert "error" in answer.json()


def test_an_oversized_body_is_refused(server: httpx.Client) -> None:
    try:
        status = server.post("/v1/completions", content=b"x" * (17 * 2**20)).status_code
    except httpx.WriteError:
        # The connection is closed while the rest of the body is still being sent.
        status = 413
    assert status == 413
    assert complete(server, [1], 2)


def test_an_oversized_body_without_a_length_is_refused(server: httpx.Client) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(17):
            yield b"x" * 2**20

    try:
        status = server.post("/v1/completions", content=pieces()).status_code
    except httpx.WriteError:
        status = 413
    assert status == 413


def test_the_model_is_listed_with_what_fits_into_it(server: httpx.Client) -> None:
    (model,) = server.get("/v1/models").json()["data"]
    assert model["id"] == "tiny"
    assert model["meta"] == {"n_vocab": 512, "n_ctx": 1024}


def test_nothing_is_told_without_the_token(server: httpx.Client) -> None:
    for path in ("/v1/models", "/metrics", "/info", "/openapi.json", "/docs", "/"):
        for header in ("", "Bearer wrong", TOKEN, f"bearer {TOKEN}"):
            answer = server.get(path, headers={"Authorization": header})
            assert answer.status_code == 401
            assert TOKEN not in answer.text
    assert server.get("/health", headers={"Authorization": ""}).status_code == 200


def test_an_unknown_path_and_method_are_answered_in_the_same_form(server: httpx.Client) -> None:
    assert server.get("/v1/nothing").json()["error"]["code"] == 404
    assert server.delete("/v1/models").json()["error"]["code"] == 405


def test_errors_reveal_no_path(server: httpx.Client) -> None:
    for body in ({"prompt": [1], "max_tokens": 100_000}, {"prompt": 3}):
        text = server.post("/v1/completions", json=body).text
        assert os.sep + "src" not in text
        assert "Traceback" not in text


def test_parallel_requests_are_not_mixed_up(server: httpx.Client) -> None:
    prompts = [[n + 1, n + 2, n + 3] for n in range(16)]
    alone = [complete(server, p, 5)["choices"][0]["token_ids"] for p in prompts]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda p: complete(server, p, 5), prompts * 2))
    found = [answer["choices"][0]["token_ids"] for answer in together]
    assert found == alone * 2
    assert len({answer["id"] for answer in together}) == 32


def test_more_requests_than_may_wait_are_told_to_come_back(server: httpx.Client) -> None:
    def status(_: int) -> int:
        body = {"prompt": [1, 2], "max_tokens": 100}
        return server.post("/v1/completions", json=body).status_code

    with ThreadPoolExecutor(30) as pool:
        statuses = list(pool.map(status, range(30)))
    assert set(statuses) == {200, 429}
    assert statuses.count(200) >= 16


def test_a_client_that_goes_away_frees_the_server(server: httpx.Client) -> None:
    body = {"prompt": [1], "max_tokens": 1000, "stream": True}
    for _ in range(18):  # more than may wait, so that kept slots would show
        with server.stream("POST", "/v1/completions", json=body) as response:
            assert response.status_code == 200
            next(response.iter_lines())
    assert complete(server, [1], 3)


def test_a_slow_body_holds_nobody_up(server: httpx.Client) -> None:
    host, port = server.base_url.host, server.base_url.port
    with socket.create_connection((host, port)) as slow:
        slow.sendall(
            f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
            "Content-Length: 100\r\n\r\n{".encode()
        )
        assert complete(server, [1], 2)


def test_metrics_count_what_was_done(server: httpx.Client) -> None:
    def value(name: str) -> float:
        lines = server.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name + " "))

    before = value("regimescope_output_tokens_total")
    complete(server, [1, 2], 11)
    assert value("regimescope_output_tokens_total") == before + 11
    assert value("regimescope_requests_in_hand") == 0


def test_the_server_keeps_to_its_own_description(server: httpx.Client, tmp_path: Path) -> None:
    """Requests of every shape, valid or not, are answered as the description says.

    Left out is the check that whatever the description allows is accepted: how many positions and
    token ids the model has stands in no description.
    """
    url = f"{str(server.base_url).rstrip('/')}/openapi.json"
    options = ["--max-examples", "20", "--seed", "1", "--generation-database", "none"]
    options += ["--no-color", "--exclude-checks", "positive_data_acceptance"]
    found = subprocess.run(
        ["schemathesis", "run", url, "--header", f"Authorization: Bearer {TOKEN}", *options],
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]
    assert "Tested: 7" in found.stdout
