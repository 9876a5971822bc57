"""Opens a `RedisStore` from the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.sdk import (
    ChosenPlugins,
    ConfigurationError,
    OpenStore,
    Register,
    StoreUnavailable,
    hookimpl,
)
from gateway.sdk.configuration import without_credentials
from gateway_redis.config import RedisConfig

if TYPE_CHECKING:
    from gateway_redis.store import RedisStore


@asynccontextmanager
async def open_redis(config: RedisConfig) -> AsyncIterator[RedisStore]:
    """The store in the Redis of `config`. Redis must be reachable at start-up; later outages are tolerated."""
    # Imported here, so that listing plugins does not import a Redis client.
    from gateway_redis.location import make_client
    from gateway_redis.server import BLOCK, RedisServer, check_rights, default_max_bytes, reason_of
    from gateway_redis.store import RedisStore

    address = without_credentials(config.url)
    server = RedisServer(
        make_client(config),
        make_client(config, waits=BLOCK),
        address=address,
        max_connections=config.max_connections,
        timeout=config.timeout,
    )
    try:
        async with asyncio.timeout(config.connect_timeout):
            await server.command("PING")
    except (StoreUnavailable, TimeoutError) as error:
        await server.close()
        reason = reason_of(error.__cause__)
        raise ConfigurationError(
            f"The store 'redis' cannot be reached at {address}: {reason}. Start it, or correct url under [stores.redis]."
        ) from None
    try:
        await check_rights(server, config.prefix)
    except ConfigurationError:
        await server.close()
        raise
    max_bytes = config.max_bytes or await default_max_bytes(server)
    store = RedisStore(server, config, max_bytes=max_bytes)
    try:
        yield store
    finally:
        await store.close()
        await server.close()


@hookimpl
def gateway_check_configuration(chosen: ChosenPlugins) -> None:
    config = chosen.table("store", "redis", RedisConfig)
    if config is not None:
        from gateway_redis.location import make_client

        make_client(config)  # connects to nothing yet


@hookimpl
def gateway_register_stores(register: Register[OpenStore]) -> None:
    register(
        "redis",
        open_redis,
        config=RedisConfig,
        summary="in Redis, shared by many replicas: responses, event logs and conversations",
    )
