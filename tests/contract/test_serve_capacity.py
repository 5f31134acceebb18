"""The server with a fixed capacity, and with longer positions than published."""

from collections.abc import Iterator

import httpx
import pytest

from regimescope.errors import CapabilityError
from regimescope.serve import run_server
from regimescope.spec import ScanSpec
from regimescope.testing.local_server import local_server

CAPACITY = 64


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    options = ("--engine-option", "cache=static", "--capacity", str(CAPACITY))
    with local_server("tiny", "--device", "cpu", *options) as url:
        yield url


@pytest.mark.parametrize(("budget", "status"), [(CAPACITY - 9, 200), (CAPACITY - 8, 400)])
def test_a_request_gets_the_whole_capacity_and_no_more(url: str, budget: int, status: int) -> None:
    body = {"prompt": list(range(1, 11)), "max_tokens": budget}
    answer = httpx.post(f"{url}/v1/completions", json=body, timeout=120)
    assert answer.status_code == status
    if status == 200:
        assert answer.json()["usage"]["completion_tokens"] == budget
    else:
        assert f"the capacity is {CAPACITY}" in answer.json()["error"]["message"]


def test_the_capacity_is_told_to_clients(url: str) -> None:
    (model,) = httpx.get(f"{url}/v1/models", timeout=120).json()["data"]
    assert model["meta"]["n_ctx"] == CAPACITY


def test_positions_beyond_the_published_ones_are_served() -> None:
    with local_server("tiny", "--device", "cpu", "--positions", "1200") as url:
        (model,) = httpx.get(f"{url}/v1/models", timeout=120).json()["data"]
        body = {"prompt": [1] * 1150, "max_tokens": 51}
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=120)
    assert model["meta"]["n_ctx"] == 1200
    assert answer.json()["usage"]["completion_tokens"] == 51


@pytest.mark.parametrize(
    ("engine", "model", "remedy"),
    [("hf", "tiny", "cache=static"), ("mlx", "tiny", "Leave out --capacity")],
)
def test_a_capacity_that_cannot_be_chosen_is_refused_before_anything_is_loaded(
    engine: str, model: str, remedy: str
) -> None:
    given = ScanSpec(engine=engine, model=model, capacity=CAPACITY)
    with pytest.raises(CapabilityError) as refused:
        run_server(
            given, host="127.0.0.1", port=8000, token_env=None, max_waiting=1, say=pytest.fail
        )
    assert remedy in (refused.value.remedy or "")
