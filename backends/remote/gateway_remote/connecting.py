"""What engines over HTTP share, whatever API their servers speak: connections, health checks, status and metrics."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

from msgspec import Struct

from gateway.sdk import (
    ConfigurationError,
    EngineOutput,
    EngineRequest,
    MetricSample,
    ModelInfo,
    Unsupported,
)
from gateway.sdk.processes import running_task
from gateway_remote.client import Meaning, ReplicaClient, StreamedReply, headers_of, tls_context
from gateway_remote.config import PoolConfig
from gateway_remote.dispatch import Dispatcher, EncodedRequest, ReplyStream
from gateway_remote.health import HealthMonitor
from gateway_remote.pool import Pool
from gateway_remote.samples import describe, samples
from gateway_remote.stalls import StallMonitor


class ReplicaConnections(Struct, frozen=True):
    """The client and the replicas of one model."""

    client: ReplicaClient
    pool: Pool
    stalls: StallMonitor


@asynccontextmanager
async def connections(
    config: PoolConfig, name: str, *, key: str | None, meaning: Meaning | None = None
) -> AsyncIterator[ReplicaConnections]:
    """A client and an empty pool for the model `name`. Raises `ConfigurationError` for an unreadable `ca_file`.

    See `ReplicaClient` for `meaning`.
    """
    stalls = StallMonitor(config.stall_timeout, time.monotonic)
    try:
        tls = await asyncio.to_thread(tls_context, config.ca_file, verify=config.tls_verify)
    except OSError as error:
        raise ConfigurationError(f"ca_file {config.ca_file}: {error.strerror or error}.") from error
    client = ReplicaClient(
        stalls,
        headers=headers_of(config.headers, key),
        connect_timeout=config.connect_timeout,
        tls=tls,
        clock=time.monotonic,
        meaning=meaning,
    )
    pool = Pool(
        name,
        config.pool_settings(),
        clock=time.monotonic,
        # Randomness only spreads load; nothing depends on it being unpredictable.
        rng=random.Random(),  # noqa: S311
    )
    try:
        yield ReplicaConnections(client, pool, stalls)
    finally:
        pool.close()
        client.close()


@asynccontextmanager
async def monitored(monitor: HealthMonitor) -> AsyncIterator[None]:
    """Check the replicas once, and then until the context is left."""
    await monitor.first_check()
    async with running_task(monitor.run()):
        yield


class ReplicaEngine:
    """The parts of `gateway.sdk.Engine` that depend on the replicas alone."""

    def __init__(self, info: ModelInfo, pool: Pool, dispatcher: Dispatcher) -> None:
        self.info = info
        self._pool = pool
        self._dispatcher = dispatcher

    def describe(self) -> list[dict[str, object]]:
        """One row of status for each replica, for `gateway models`."""
        return describe(self._pool.replicas)

    def metrics(self) -> list[MetricSample]:
        """Current values of all metrics."""
        dispatcher = self._dispatcher
        return samples(self._pool, retries=dispatcher.retries, hedges=dispatcher.hedges)

    async def health(self) -> None:
        """Return if some replica can serve; otherwise raise `EngineUnavailable` with the reasons."""
        self._dispatcher.healthy()

    def may_refuse(self, request: EngineRequest) -> bool:
        """Whether a server may refuse what `check` has accepted: always, for the servers have the last word."""
        return True

    def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        """Generate for `request`; see `Dispatcher.generate`."""
        return self._dispatcher.generate(request, lambda output: False)

    def generate_pushing(
        self, request: EngineRequest, push: Callable[[EngineOutput], bool]
    ) -> AsyncGenerator[EngineOutput, None]:
        """See `PushingEngine`."""
        return self._dispatcher.generate(request, push)


class NoGeneration:
    """The `Language` of an engine that never generates. `refusal` makes the error of a request to generate."""

    def __init__(self, refusal: Callable[[], Unsupported]) -> None:
        self._refusal = refusal

    async def prepare(self, request: EngineRequest) -> None:
        raise self._refusal()

    def call(self, request: EngineRequest) -> EncodedRequest:
        raise self._refusal()

    def read(self, call: EncodedRequest, reply: StreamedReply) -> ReplyStream:
        raise self._refusal()
