"""A Redis that accepts connections and does not answer: each request is refused after one timeout."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.sdk import StoreUnavailable
from gateway_redis import RedisConfig
from gateway_redis.location import make_client
from gateway_redis.server import RedisServer

pytestmark = pytest.mark.anyio


class Hung:
    """Counts what it is asked."""

    def __init__(self) -> None:
        self.connections = 0
        self.asked = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await reader.read(65_536):
                self.asked.set()
        except ConnectionError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def hung_server(
    *, seconds: float, max_connections: int = 8
) -> AsyncIterator[tuple[RedisServer, Hung]]:
    hung = Hung()
    listening = await asyncio.start_server(hung.serve, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        config = RedisConfig(url=f"redis://127.0.0.1:{port}/0", timeout=seconds)
        server = RedisServer(
            make_client(config),
            make_client(config, waits=1.0),
            address="here",
            max_connections=max_connections,
            timeout=seconds,
        )
        try:
            yield server, hung
        finally:
            await server.close()


async def test_a_hung_redis_is_asked_once() -> None:
    async with hung_server(seconds=3.0) as (server, hung):
        with pytest.raises(StoreUnavailable):
            await server.command("PING")
        assert hung.asked.is_set()
        assert hung.connections == 1


async def test_the_wait_for_a_connection_is_a_part_of_the_timeout() -> None:
    """With one connection, requests do not wait for the timeouts of those before them."""
    async with hung_server(seconds=0.1, max_connections=1) as (server, hung):
        refused = await asyncio.gather(
            *(server.command("PING") for _ in range(10)), return_exceptions=True
        )
        assert all(isinstance(each, StoreUnavailable) for each in refused)
        assert hung.connections < 10  # not one timeout after the other
