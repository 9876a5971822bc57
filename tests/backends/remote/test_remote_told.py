"""What the log says of replicas that are not there."""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from gateway.base.errors import ConfigurationError
from gateway.plugins.hookspecs import EngineContext
from gateway_remote import RemoteConfig, open_remote
from tests.backends.remote.http_stubs import serve_stub
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio


async def test_a_start_that_waits_for_an_engine_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        config = RemoteConfig(urls=[url], start_timeout=0.6)
        with pytest.raises(ConfigurationError, match="No engine of the model 'm' answers"):
            async with open_remote(config, EngineContext(name="m", path=None)):
                pass
    [waits] = [record.getMessage() for record in caplog.records if record.name == "gateway.remote"]
    assert waits.startswith(f"no engine of the model 'm' answers yet ({url}: ")
    assert waits.endswith("; waiting up to 0.6 s for one")


async def test_a_replica_that_goes_is_said_to_be_away(
    stubs: Callable[..., Awaitable[list[Any]]], vocabulary: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "gateway.remote")
    [stub] = await stubs(1)
    config = RemoteConfig(
        urls=[stub.url], tokenizer=vocabulary, health_interval=0.05, health_timeout=0.5
    )
    async with open_remote(config, EngineContext(name="m", path=None)):
        await stub.stop()
        await wait_until_async(lambda: caplog.records)
    assert caplog.messages[0].startswith(f"{stub.url} is away: ")


async def test_a_server_of_another_kind_is_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Other:
        async def models(self, _request: web.Request) -> web.Response:
            return web.json_response({"data": [{"id": "gpt", "owned_by": "example"}]})

        async def health(self, _request: web.Request) -> web.Response:
            return web.Response()

    async with AsyncExitStack() as stack:
        url = await serve_stub(stack, Other(), "/v1/responses", Other().health)
        config = RemoteConfig(urls=[url], start_timeout=3600)
        with pytest.raises(ConfigurationError, match=r"owned by 'example'.*openai"):
            async with open_remote(config, EngineContext(name="m", path=None)):
                pass
    assert not caplog.records
