"""The Redis store: the contract, on one Redis and on a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.testing import ResponseStoreContract, check_plugin
from gateway_redis import RedisConfig, open_redis
from gateway_redis.store import RedisStore

pytestmark = pytest.mark.anyio


class TestRedisStore(ResponseStoreContract):
    @pytest.fixture(scope="class")
    async def store(self, redis_process) -> AsyncIterator[RedisStore]:
        async with open_redis(RedisConfig(url=redis_process.url, connect_timeout=30)) as store:
            yield store


class TestRedisStoreInACluster(ResponseStoreContract):
    many = 1000

    @pytest.fixture(scope="class")
    async def store(self, redis_cluster) -> AsyncIterator[RedisStore]:
        async with open_redis(RedisConfig(url=redis_cluster, connect_timeout=30)) as store:
            yield store


def test_it_is_an_installed_plugin() -> None:
    assert check_plugin("redis").offers == ["store redis"]
