"""The one way of streamed answers: what leaves when, and what is told where the answer fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar.types import Message

import gateway_chat_template
import gateway_memory
import gateway_parsers
import gateway_scripted
from benchmarks import null_engine
from gateway.answers.run_scope import RunScope
from gateway.base.errors import EngineError, GatewayError
from gateway.config import Config, ModelConfig, ServerConfig
from gateway.generation.sinks import ByteSink
from gateway.http.answers import JsonAnswer
from gateway.http.body_slices import SLICE
from gateway.http.stream_body import StreamBody
from gateway.http.streaming import StreamedAnswer
from gateway.plugins.loading import load_plugins
from gateway.services import Services
from gateway.startup.service_opening import open_services
from gateway_testing.server import run_gateway
from tests.gateway.http.stream_clients import HEADERS, LARGE, Client, Connection, uvicorn_send
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

PLUGINS = [gateway_chat_template, gateway_memory, gateway_parsers, gateway_scripted]
Make = Callable[[ByteSink], Awaitable[bytes]]


async def test_a_large_json_answer_is_sent_in_slices() -> None:
    connection = Connection()
    send = uvicorn_send(connection)
    scope: Any = {"type": "http"}
    await JsonAnswer(LARGE, 200)(scope, Client().receive, send)
    head, *parts = connection.written
    assert b"content-length: %d" % len(LARGE) in head
    assert b"".join(parts) == LARGE
    assert max(map(len, connection.written)) < SLICE + 1024


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    model = ModelConfig(engine="scripted", renderer="chat_template", parser="plain")
    config = Config(server=ServerConfig(ping_interval=0.02), models={"m": model})
    async with AsyncExitStack() as stack:
        plugins = load_plugins(extra=PLUGINS, installed=False)
        yield await open_services(config, plugins, stack)


class Answer(StreamedAnswer):
    """Made by a function."""

    def __init__(self, services: Services, make: Make) -> None:
        scope = RunScope(services, name="a test", api="test")
        scope.reserve(services.models["m"])
        super().__init__(scope, services, headers=HEADERS)
        self._make = make

    async def make(self, body: StreamBody) -> bytes:
        return await self._make(body.write)

    def fail(self, error: GatewayError) -> bytes:
        return b"failed: " + error.message.encode()


async def answered(services: Services, make: Make) -> Client:
    client = Client()
    await Answer(services, make)({"type": "http"}, client.receive, client.send)  # type: ignore[arg-type]
    assert services.models["m"].admission.waiting == 0
    return client


async def test_what_fails_at_once_is_a_status_and_later_the_last_part(services: Services) -> None:
    async def at_once(write: ByteSink) -> bytes:
        raise EngineError("gone")

    async def later(write: ByteSink) -> bytes:
        await write(b"one")
        raise EngineError("gone")

    refused = await answered(services, at_once)
    assert refused.statuses == [EngineError("gone").status]
    assert b'"gone"' in b"".join(refused.parts)
    failed = await answered(services, later)
    assert (failed.statuses, failed.parts) == ([200], [b"one", b"failed: gone"])


async def test_an_answer_that_is_silent_begins_with_a_comment(services: Services) -> None:
    """Both where a server writes at once, and where sending takes its time."""

    async def fails_late(write: ByteSink) -> bytes:
        await asyncio.sleep(0.05)
        raise EngineError("gone")

    for seconds in (0.0, 0.1):
        client = Client(seconds)
        answer = Answer(services, fails_late)
        await answer({"type": "http"}, client.receive, client.send)  # type: ignore[arg-type]
        assert client.statuses == [200]
        assert client.parts[0] == b": keep-alive\n\n"
        assert client.parts[-1] == b"failed: gone"


async def test_a_client_that_leaves_takes_the_first_comment_with_it(services: Services) -> None:
    sending = asyncio.Event()

    async def send(message: Message) -> None:
        sending.set()
        await asyncio.Event().wait()

    async def leave() -> Any:
        await sending.wait()
        return {"type": "http.disconnect"}

    async def never(write: ByteSink) -> bytes:
        await asyncio.Event().wait()
        return b""

    before = asyncio.all_tasks()
    await Answer(services, never)({"type": "http"}, leave, send)  # type: ignore[arg-type]
    assert asyncio.all_tasks() <= before


async def test_silence_is_broken_by_comments(services: Services) -> None:
    connection = Connection()
    send = uvicorn_send(connection)
    written = connection.written

    def signs() -> int:
        return sum(b": keep-alive" in each for each in written)

    async def slow(write: ByteSink) -> bytes:
        await wait_until_async(lambda: signs() >= 1)
        await write(b"one")
        before = signs()
        await wait_until_async(lambda: signs() > before)
        return b"two"

    async def receive() -> Any:
        await asyncio.Event().wait()

    await Answer(services, slow)({"type": "http", "gateway.send": send}, receive, send)  # type: ignore[arg-type]
    assert written[1] == b"e\r\n: keep-alive\n\n\r\n"
    at = written.index(b"3\r\none\r\n")
    assert any(b": keep-alive" in each for each in written[at:])


def test_events_that_repeat_large_instructions_come_whole_and_in_order(tmp_path: Path) -> None:
    said = "Answer briefly. " * 60_000
    body = {"model": "m", "input": "a", "instructions": said, "stream": True, "store": False}
    model = {"engine": "null", "renderer": "chat_template", "parser": "plain"}
    with run_gateway({"models": {"m": model}}, tmp_path, plugins=[null_engine]) as gateway:
        answer = httpx.post(f"{gateway.base_url}/responses", json=body)
    *frames, done, rest = answer.text.split("\n\n")
    events = [json.loads(frame.partition("\ndata: ")[2]) for frame in frames]
    assert (done, rest) == ("data: [DONE]", "")
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
    repeating = [each["type"] for each in events if each.get("response", {}).get("instructions") == said]  # fmt: skip
    assert repeating == ["response.created", "response.in_progress", events[-1]["type"]]
