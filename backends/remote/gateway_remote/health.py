"""Background tasks: health checks, discovery and stall detection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from gateway_remote.client import ReplicaClient
from gateway_remote.config import PoolConfig
from gateway_remote.discovery import Discovery
from gateway_remote.failures import ReplicaFailure
from gateway_remote.pool import Pool
from gateway_remote.replica import Endpoint, Replica
from gateway_remote.stalls import StallMonitor

logger = logging.getLogger("gateway.remote")


class HealthMonitor:
    """Keeps the state of the pool's replicas current. `run` runs until it is cancelled."""

    def __init__(
        self,
        pool: Pool,
        client: ReplicaClient,
        config: PoolConfig,
        discovery: Discovery,
        stalls: StallMonitor,
        *,
        path: str | None = "/health",
        check: Callable[[Endpoint], Awaitable[str | None]] | None = None,
    ) -> None:
        """`path` is the health check path. If None, only the outcomes of requests are used. `check` replaces the check: it
        returns what is wrong, or None."""
        self._pool = pool
        self._client = client
        self._config = config
        self._discovery = discovery
        self._stalls = stalls
        self._path = path
        self._check_of = check
        self._problems: list[str] = []

    async def first_check(self) -> None:
        """Check all replicas once; those that fail get no requests until they pass. Takes at most `health_timeout`."""
        if self._path is not None:
            replicas = tuple(self._pool.replicas)
            path = self._path
            await asyncio.gather(*(self._monitor_replica(each, path, 1) for each in replicas))

    async def run(self) -> None:
        """Run all three tasks at their own intervals."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._check_connections())
            if self._path is not None:
                group.create_task(self._check(self._path))
            if self._discovery.changes:
                group.create_task(self._discover())

    async def _check_connections(self) -> None:
        pause = min(1.0, self._config.stall_timeout / 4)
        while True:
            await asyncio.sleep(pause)
            self._stalls.end_stalled()
            self._client.trim()

    async def _check(self, path: str) -> None:
        while True:
            await asyncio.sleep(self._config.health_interval)
            threshold = self._config.health_failures
            replicas = tuple(self._pool.replicas)
            await asyncio.gather(
                *(self._monitor_replica(each, path, threshold) for each in replicas)
            )

    async def _monitor_replica(self, replica: Replica, path: str, threshold: int) -> None:
        was = replica.down
        problem = await self._problem(replica, path)
        if problem is None:
            self._pool.check_passed(replica)
        else:
            self._pool.check_failed(replica, problem, threshold=threshold)
        if (was is None) != (replica.down is None):
            state = f"is away: {replica.down}" if replica.down else "is back"
            logger.warning("%s %s", replica.endpoint, state)

    async def _problem(self, replica: Replica, path: str) -> str | None:
        if self._check_of is not None:
            return await self._check_of(replica.endpoint)
        try:
            status = await self._client.status(
                replica.endpoint, path, within=self._config.health_timeout
            )
        except ReplicaFailure as failure:
            return str(failure)
        return f"{path} answers {status}" if status >= 400 else None

    async def _discover(self) -> None:
        while True:
            await asyncio.sleep(self._config.discovery_interval)
            self._pool.update(await self._discovery.find())
            if self._discovery.problems != self._problems:
                self._problems = self._discovery.problems
                for problem in self._problems:
                    logger.warning("the replicas stay as they were: %s", problem)
