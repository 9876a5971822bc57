"""Connections that are re-established: reconnecting with backoff, and the sessions of responses on them."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from mcp.types import CallToolResult

from gateway.sdk import ToolCall, ToolResult
from gateway_mcp.connection import Dial, McpConnection, ServerFailure, SessionGone
from gateway_mcp.content import result_of
from gateway_mcp.output_check import OutputCheck

logger = logging.getLogger("gateway.mcp")

FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0
"""Maximum seconds between two attempts to connect. The pause doubles with each failure."""


class ServerLink:
    """A server to which connections are made on demand, repeatedly if needed."""

    def __init__(
        self,
        dials: Sequence[Dial],
        *,
        connect_timeout: float,
        tools_changed: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`dials` are tried in turn; the first that works is kept. `tools_changed` is also called for each new
        connection, because a restarted server may have other tools."""
        self._dials = list(dials)
        self._timeout = connect_timeout
        self._tools_changed = tools_changed
        self._clock = clock
        self._opening = asyncio.Lock()
        self._connection: McpConnection | None = None
        self._wait = 0.0
        self._retry_at = 0.0
        self.calls = 0
        """Number of running calls."""

    async def connected(self) -> McpConnection:
        """The live connection; connects if there is none. Raises `ServerFailure`, immediately during the pause before
        the next attempt."""
        async with self._opening:
            if self._connection is not None:
                if not self._connection.lost:
                    return self._connection
                await self._connection.close()
                self._connection = None
            if (left := self._retry_at - self._clock()) > 0:
                raise ServerFailure(f"it is not reachable; the next attempt is in {left:.1f} s")
            try:
                connection = await self._connect()
            except ServerFailure:
                self._wait = min(LONGEST_WAIT, self._wait * 2 or FIRST_WAIT)
                # Jitter, so that the replicas of a gateway do not reconnect at the same moment.
                jittered = self._wait * random.uniform(0.75, 1.0)  # noqa: S311 (no secret)
                self._retry_at = self._clock() + jittered
                raise
            self._wait = self._retry_at = 0.0
            self._connection = connection
            if self._tools_changed is not None:
                self._tools_changed()
            return connection

    async def call(self, call: ToolCall) -> CallToolResult:
        """Call a tool. Raises `ServerFailure`. Retries only calls that were certainly not carried out."""
        self.calls += 1
        try:
            connection = await self.connected()
            try:
                return await connection.call(call)
            except SessionGone:
                return await (await self.connected()).call(call)
        finally:
            self.calls -= 1

    async def close(self) -> None:
        """Disconnect. Does not raise."""
        async with self._opening:
            if self._connection is not None:
                await self._connection.close()
                self._connection = None

    async def _connect(self) -> McpConnection:
        failure: ServerFailure | None = None
        for dial in self._dials:
            connection = McpConnection(dial, self._tools_changed)
            try:
                await connection.open(seconds=self._timeout)
            except ServerFailure as error:
                failure = failure or error
            else:
                self._dials = [dial]
                return connection
        assert failure is not None, "there is a way to dial"
        raise failure


class LinkSession:
    """One response's calls; each uses the least busy of `links`."""

    def __init__(self, links: Sequence[ServerLink], output: OutputCheck) -> None:
        self._links = links
        self._output = output

    async def call(self, call: ToolCall) -> ToolResult:
        link = min(self._links, key=lambda each: each.calls)
        try:
            result = await link.call(call)
        except ServerFailure as error:
            return ToolResult(text=f"The tool failed: {error}", failed=True)
        if problem := await self._output.problem(call.name, result):
            return ToolResult(text=f"The tool failed: {problem}", failed=True)
        return result_of(result)


class ClosingConnections:
    """Connections that are being closed in the background. Only the shutdown of the gateway waits for them: a server
    may take its time."""

    def __init__(self) -> None:
        self._closing: set[asyncio.Task[None]] = set()

    def close(self, link: ServerLink) -> None:
        """Disconnect in the background."""
        task = asyncio.create_task(link.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def wait_closed(self) -> None:
        """Wait until all are closed. Does not raise."""
        await asyncio.gather(*self._closing, return_exceptions=True)


@asynccontextmanager
async def private_session(
    link: ServerLink, closing_connections: ClosingConnections, output: OutputCheck
) -> AsyncIterator[LinkSession]:
    """A session on a connection of its own, which is closed on exit."""
    try:
        yield LinkSession([link], output)
    finally:
        closing_connections.close(link)
