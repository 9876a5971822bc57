"""What an answer was made with is gone when it is: cycles would pile up until the garbage collector comes, and cost its time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

import gateway_chat_template
import gateway_memory
import gateway_messages
import gateway_parsers
import gateway_scripted
from gateway.config import Config, ModelConfig
from gateway.http.app import app_of
from gateway.plugins.loading import load_plugins
from gateway.startup.service_opening import open_services
from gateway.wire.common import encode

INSTALLED = [
    gateway_chat_template,
    gateway_memory,
    gateway_messages,
    gateway_parsers,
    gateway_scripted,
]
SAID: Any = [{"role": "user", "content": "Hello"}]
REQUESTS: dict[str, Any] = {
    "/v1/responses": {"input": SAID, "store": False},
    "/v1/chat/completions": {"messages": SAID, "store": False},
    "/v1/messages": {"messages": SAID, "max_tokens": 20},
}


async def garbage_of(work: Callable[[], Awaitable[object]]) -> list[str]:
    """The types of what the garbage collector finds after `work`."""
    gc.disable()
    gc.collect()
    try:
        await work()
        gc.set_debug(gc.DEBUG_SAVEALL)  # kept, not thrown away
        gc.collect()
        return [type(each).__name__ for each in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


class Cycle:
    """One request, made without a server. As with uvicorn, what the application receives and sends by knows the scope."""

    def __init__(self, scope: dict[str, Any], body: bytes) -> None:
        self.scope = scope
        self.status = 0
        self._answered = asyncio.Event()
        self._parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive(self) -> dict[str, Any]:
        if self._parts:
            return self._parts.pop()
        await self._answered.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif not message.get("more_body"):
            self._answered.set()


async def ask(app: Any, path: str, body: bytes) -> int:
    """The status of one request."""
    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": path,
        "raw_path": path.encode(), "root_path": "", "query_string": b"", "state": {},
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
        "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
    }  # fmt: skip
    cycle = Cycle(scope, body)
    await app(cycle.scope, cycle.receive, cycle.send)
    return cycle.status


@pytest.mark.anyio
@pytest.mark.parametrize("path", REQUESTS)
@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_leaves_nothing_for_the_garbage_collector(path: str, stream: bool) -> None:
    await check_garbage(path, {"model": "m", "stream": stream, **REQUESTS[path]}, 200)


@pytest.mark.anyio
@pytest.mark.parametrize("path", REQUESTS)
async def test_nor_does_a_refused_request(path: str) -> None:
    await check_garbage(path, {"model": "unknown", **REQUESTS[path]}, 404)


async def check_garbage(path: str, request: dict[str, Any], status: int) -> None:
    """Check that the answer to a request, which has this status, leaves no garbage."""
    body = encode(request)
    model = ModelConfig(engine="scripted", renderer="chat_template", parser="plain")
    plugins = load_plugins(extra=INSTALLED, installed=False)
    async with AsyncExitStack() as stack:
        app = app_of(await open_services(Config(models={"m": model}), plugins, stack))

        async def answer() -> None:
            assert await ask(app, path, body) == status

        await answer()  # the first fills caches
        # Threads of other tests' servers may leave something meanwhile. What an answer leaves, each answer leaves.
        for _ in range(20):
            garbage = await garbage_of(answer)
            if not garbage:
                break
        assert garbage == []
