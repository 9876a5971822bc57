"""Several choices that are stopped while their client is slow to read: what they had written is sent before the error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
from litestar.types import Message

import gateway_chat_template
import gateway_memory
import gateway_parsers
import gateway_scripted
from gateway.answers.chat.output import chat_answer
from gateway.answers.chat.plan import make_chat_plan
from gateway.base.errors import DeadlineExceeded
from gateway.config import Config, ModelConfig
from gateway.generation.sinks import ByteSink
from gateway.http.streaming import SSE_COMMENT, ByteStream
from gateway.plugins.loading import load_plugins
from gateway.services import Services
from gateway.startup.service_opening import open_services
from gateway.wire.chat import decode_chat_request
from gateway_testing.chat_grammar import parse_chunks
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio
PLUGINS = [gateway_chat_template, gateway_memory, gateway_parsers, gateway_scripted]


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    model = ModelConfig(engine="scripted", renderer="chat_template", parser="plain")
    async with AsyncExitStack() as stack:
        plugins = load_plugins(extra=PLUGINS, installed=False)
        yield await open_services(Config(models={"m": model}), plugins, stack)


class Noted:
    """A choice whose written parts are noted."""

    def __init__(self, choice: Any, written: list[bytes]) -> None:
        self._choice = choice
        self._written = written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._choice, name)

    async def run(self, sink: ByteSink) -> bytes:
        async def noted(part: bytes) -> None:
            self._written.append(part)
            await sink(part)

        last: bytes = await self._choice.run(noted)
        return last


async def test_what_waits_for_its_turn_when_the_run_is_stopped_is_sent(services: Services) -> None:
    body = msgspec.json.encode(
        {"model": "m", "messages": [{"role": "user", "content": "word " * 50}], "stream": True, "n": 3}
    )  # fmt: skip
    plan = await make_chat_plan(
        decode_chat_request(body, strict=False), services, size=len(body), owner="", trace_headers=None, model_name=None
    )  # fmt: skip
    run = chat_answer(plan, services)
    await run.prepare()
    written: list[bytes] = []
    run.output.choices = [Noted(choice, written) for choice in run.output.choices]  # type: ignore[misc]
    sent: list[bytes] = []
    reads, answered = asyncio.Event(), asyncio.Event()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            if sent:
                await reads.wait()
            sent.append(message["body"])
            if not message["more_body"]:
                answered.set()

    async def receive() -> Any:
        await answered.wait()
        return {"type": "http.disconnect"}

    answer = asyncio.ensure_future(ByteStream(run)({"type": "http"}, receive, send))  # type: ignore[arg-type, typeddict-item]
    await wait_until_async(lambda: sent and len(written) >= 4, "all choices wait for the client")
    run.scope.stop(DeadlineExceeded("It took too long."))
    reads.set()
    async with asyncio.timeout(60):
        await answer
    whole = b"".join(sent)
    for part in written:
        assert part in whole
    told, _, error = whole.replace(SSE_COMMENT, b"").rpartition(b'data: {"error"')
    assert b"It took too long." in error
    assert len(told) == sum(map(len, written))
    assert {choice["index"] for chunk in parse_chunks(told + b"data: [DONE]\n\n") for choice in chunk["choices"]} == {0, 1, 2}  # fmt: skip
