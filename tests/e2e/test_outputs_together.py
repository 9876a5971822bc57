"""A plain answer, whose outputs are parsed many at once, is what a stream ends with."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

from gateway import hookimpl
from gateway.services import Run
from gateway.wire.response import Response
from gateway_testing.grammar import fold, parse_sse
from gateway_testing.server import RunningGateway, run_gateway
from tests.waiting import wait_until

SAME = ("status", "output", "usage", "error", "incomplete_details")

LONG = {
    "when": "long",
    "chunk": 3,
    "repeat": 70,
    "pieces": [{"reasoning": "Hm, "}, {"text": "on and "}],
}
RULES = [
    LONG,
    {**LONG, "when": "too", "finish": "length"},
    {**LONG, "when": "broken", "finish": "error"},
    {"when": "goes on", "delay_ms": 1, "chunk": 1, "repeat": 100_000, "pieces": [{"text": "more "}]},
]  # fmt: skip


class Seen:
    """A plugin that keeps the responses that have ended."""

    __name__ = "gateway_seen"

    def __init__(self) -> None:
        self.responses: list[Response] = []

    @hookimpl
    def gateway_response_finished(self, response: Response) -> None:
        self.responses.append(response)


@pytest.fixture(scope="module")
def seen() -> Seen:
    return Seen()


@pytest.fixture(scope="module")
def gateway(seen: Seen, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("together")
    (folder / "scenario.json").write_text(json.dumps(RULES))
    config = {"models": {"m": {"engine": "scripted", "path": "scenario.json"}}}
    with run_gateway(config, folder, plugins=[seen]) as running:
        yield running


def ask(gateway: RunningGateway, said: str, **parameters: object) -> httpx.Response:
    body = {"model": "m", "input": said, **parameters}
    return httpx.post(f"{gateway.base_url}/responses", json=body, timeout=60)


@pytest.mark.parametrize("said", ["long", "too long", "long, in the end broken"])
def test_it_is_the_streamed_one(gateway: RunningGateway, seen: Seen, said: str) -> None:
    ask(gateway, said)
    plain = seen.responses[-1]
    streamed = fold(parse_sse(ask(gateway, said, stream=True).content))
    shown = msgspec.to_builtins(plain)
    for each in (*shown["output"], *streamed["output"]):
        del each["id"]
    assert [shown[key] for key in SAME] == [streamed[key] for key in SAME]
    assert shown["usage"]["output_tokens"] > 128, "more than are parsed at once"


def test_what_was_made_until_the_client_left_is_kept(gateway: RunningGateway, seen: Seen) -> None:
    before = len(seen.responses)
    address = urlsplit(gateway.base_url)
    body = json.dumps({"model": "m", "input": "goes on"}).encode()
    with socket.create_connection((address.hostname, address.port)) as client:
        head = f"POST /v1/responses HTTP/1.1\r\nhost: {address.netloc}\r\ncontent-type: application/json\r\n"
        client.sendall(head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: any(made(run) > 100 for run in tuple(gateway.services.runs)))
    wait_until(lambda: len(seen.responses) > before)
    [response] = seen.responses[before:]
    text = msgspec.to_builtins(response.output[0])["content"][0]["text"]
    assert response.status == "cancelled"
    assert len(text) > 100
    assert ("more " * 100_000).startswith(text)


def made(run: Run) -> int:
    """The number of tokens that a run has made so far."""
    return sum(each.run.generated for each in run.stats.generations)
