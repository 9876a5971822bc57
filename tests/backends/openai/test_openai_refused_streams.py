"""A stream that the upstream refuses before its first token is answered with the HTTP status of the refusal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from websockets.asyncio.client import connect

from gateway_testing.grammar import fold, parse_sse
from gateway_testing.server import run_gateway

pytestmark = pytest.mark.anyio
APIS = ["/responses", "/chat/completions", "/messages"]
MODELS = ["chat", "responses"]
SAID = {"message": "Odd.", "type": "invalid_request_error", "param": "top_p", "code": "odd"}


class Front:
    """A gateway in front of the stub. It is started in a thread, since the stub lives on the loop of the test."""

    def __init__(self, stub: Any, folder: Path) -> None:
        self._stub = stub
        self._folder = folder
        self._opened: Any = None
        self.gateway: Any = None

    async def start(self, **server: Any) -> None:
        told = {"model": "m", "base_url": self._stub.url, "health_path": ""}
        models = {
            api: {"engine": "openai", "openai": {**told, "api": api, "wait_for_replica": 0.2}}
            for api in MODELS
        }
        self._opened = run_gateway({"models": models, "server": server}, self._folder)
        self.gateway = await asyncio.to_thread(self._opened.__enter__)

    async def stop(self) -> None:
        if self._opened is not None:
            await asyncio.to_thread(self._opened.__exit__, None, None, None)

    async def ask(self, api: str, model: str = "chat", **more: Any) -> httpx.Response:
        said = [{"role": "user", "content": "Hi"}]
        body: dict[str, Any] = {"model": model, "stream": True, **more}
        body["input" if api == "/responses" else "messages"] = said
        if api == "/messages":
            body["max_tokens"] = 9
        async with httpx.AsyncClient(timeout=60) as client:
            return await client.post(f"{self.gateway.base_url}{api}", json=body)


@pytest.fixture
async def front(stub: Any, tmp_path: Path) -> AsyncIterator[Front]:
    made = Front(stub, tmp_path)
    yield made
    await made.stop()


@pytest.mark.parametrize("status", [400, 404, 413, 422, 429, 503])
async def test_a_refused_stream_has_the_status_and_the_envelope_of_an_error(
    stub: Any, front: Front, status: int
) -> None:
    stub.refuses(status, {"error": SAID}, **{"retry-after": "7"})
    expected = 400 if status == 422 else status
    await front.start()
    for model in MODELS:
        for api in APIS:
            answer = await front.ask(api, model)
            wanted = 529 if (api, status) == ("/messages", 503) else expected
            assert answer.status_code == wanted, (api, model, answer.text)
            assert answer.headers["content-type"] == "application/json"
            error = answer.json()["error"]
            if status == 429:
                assert 1 <= int(answer.headers["retry-after"]) <= 7
            elif status < 500:
                assert "Odd." in error["message"]
            plain = await front.ask(api, model, stream=False)
            assert plain.status_code == wanted
            assert plain.json()["error"] == error or status in (429, 503)


async def test_the_beginning_goes_out_if_the_upstream_says_nothing_for_long(
    stub: Any, front: Front
) -> None:
    told = asyncio.Event()

    async def answer(_request: web.Request) -> web.StreamResponse:
        await told.wait()
        return web.json_response({"error": SAID}, status=400)

    stub.answer = answer
    await front.start(ping_interval=0.2)
    body = {"model": "chat", "stream": True, "input": "Hi"}
    url = f"{front.gateway.base_url}/responses"
    async with (
        httpx.AsyncClient(timeout=60) as client,
        client.stream("POST", url, json=body) as got,
    ):
        assert got.status_code == 200
        parts = got.aiter_bytes()
        received = b""
        while b"event: response.in_progress\n" not in received:  # comments may come before
            received += await anext(parts)
        told.set()
        received += b"".join([part async for part in parts])
    events = parse_sse(received)
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "response.failed",
    ]
    assert [event["sequence_number"] for event in events] == [0, 1, 2]
    assert fold(events)["error"]["code"] == "invalid_prompt"


async def test_a_refusal_after_the_first_token_is_an_event(stub: Any, front: Front) -> None:
    stub.says(stub.chunk(content="It begins"), {"error": SAID})
    await front.start()
    answer = await front.ask("/responses")
    assert answer.status_code == 200
    final = fold(parse_sse(answer.content))
    assert final["status"] == "failed"
    assert final["output"][0]["content"][0]["text"] == "It begins"


async def test_an_error_in_place_of_the_first_token_is_a_status_too(
    stub: Any, front: Front
) -> None:
    await front.start()
    stub.says({"error": SAID})
    for api in APIS:
        answer = await front.ask(api)
        assert answer.status_code == 400
        assert "Odd." in answer.json()["error"]["message"]


async def test_a_refused_stream_is_stored_as_failed_and_holds_nothing(
    stub: Any, front: Front
) -> None:
    stub.refuses(400, {"error": SAID})
    await front.start()
    for _ in range(20):
        assert (await front.ask("/responses")).status_code == 400
    model = front.gateway.services.models["chat"]
    assert (model.admission.running, model.admission.waiting) == (0, 0)


async def test_background_runs_and_websockets_have_their_events_as_before(
    stub: Any, front: Front
) -> None:
    stub.refuses(400, {"error": SAID})
    await front.start()
    answer = await front.ask("/responses", background=True, store=True)
    assert answer.status_code == 200
    assert [event["type"] for event in parse_sse(answer.content)] == [
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.failed",
    ]
    address = front.gateway.base_url.replace("http", "ws", 1) + "/responses"
    async with connect(address) as socket:
        await socket.send(json.dumps({"type": "response.create", "model": "chat", "input": "Hi"}))
        kinds = [json.loads(await socket.recv())["type"] for _ in range(3)]
    assert kinds == ["response.created", "response.in_progress", "response.failed"]
