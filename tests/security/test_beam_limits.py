"""A beam search takes no more than it may, and ends when its client leaves."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from gateway_testing.server import RunningGateway, run_gateway
from tests.beam_engine import TableEngine, TablePlugin
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    config = {"models": {"m": {"engine": "table"}}}
    with run_gateway(config, tmp_path_factory.mktemp("b"), plugins=[TablePlugin()]) as running:
        yield running


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"best_of": 10**6}, "best_of"),
        ({"best_of": 2**70}, "best_of"),
        ({"best_of": 16, "prompt": ["a"] * 65}, "best_of"),
        ({"n": 128}, "n"),
        ({"length_penalty": 1e308, "n": 2}, "length_penalty"),
        ({"length_penalty": "x", "n": 2}, "length_penalty"),
        ({"early_stopping": "soon", "n": 2}, "early_stopping"),
        ({"max_tokens": 2**70, "n": 2}, "max_tokens"),
    ],
)
def test_extremes_are_refused(gateway: RunningGateway, fields: dict[str, Any], param: str) -> None:
    body = {"model": "m", "prompt": "a", "use_beam_search": True, "max_tokens": 2, **fields}
    answer = httpx.post(
        f"{gateway.base_url}/completions", content=msgspec.json.encode(body), timeout=60,
        headers={"content-type": "application/json"},
    )  # fmt: skip
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param, answer.text


def test_a_client_that_leaves_ends_the_search(gateway: RunningGateway) -> None:
    model = gateway.services.models["m"]
    engine = model.engine
    assert isinstance(engine, TableEngine)
    body = msgspec.json.encode(
        {"model": "m", "prompt": "a", "use_beam_search": True, "n": 4, "ignore_eos": True, "max_tokens": 30_000}
    )  # fmt: skip
    url = httpx.URL(gateway.base_url)
    with socket.create_connection((url.host, url.port or 80)) as client:
        client.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        wait_until(lambda: len(engine.requests) > 20)
    wait_until(lambda: model.admission.running == 0)
    assert len(engine.requests) < 4 * 30_000
