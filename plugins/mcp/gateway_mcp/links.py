"""Connections that are re-established: reconnecting with backoff, and the sessions of responses on them."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from mcp.types import CallToolResult, Tool

from gateway.sdk import ToolCall, ToolResult
from gateway_mcp.connection import (
    ConnectionLost,
    Dial,
    McpConnection,
    ServerFailure,
    SessionGone,
)
from gateway_mcp.content import result_of
from gateway_mcp.output_check import OutputCheck
from gateway_mcp.statuses import described

logger = logging.getLogger("gateway.mcp")

ResultT = TypeVar("ResultT")

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
        label: str | None = None,
        tools_changed: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`dials` are tried in turn; the first that works is kept. `label` names the server in log lines; there are none
        without it. `tools_changed` is also called for each new connection, because a restarted server may have other
        tools."""
        self._dials = list(dials)
        self._timeout = connect_timeout
        self._label = label
        self._tools_changed = tools_changed
        self._clock = clock
        self._opening = asyncio.Lock()
        self._connection: McpConnection | None = None
        self._left: list[McpConnection] = []
        """Sessions that the server has ended, in which requests still wait."""
        self._wait = 0.0
        self._retry_at = 0.0
        self._reason = ""
        """Why the last attempt to connect failed."""
        self.calls = 0
        """Number of running calls."""

    async def connected(self) -> McpConnection:
        """The live connection; connects if there is none. Raises `ServerFailure`, immediately during the pause before
        the next attempt."""
        async with self._opening:
            if self._connection is not None:
                if not self._connection.lost:
                    return self._connection
                await self._leave(self._connection)
                self._connection = None
            if (left := self._retry_at - self._clock()) > 0:
                raise ServerFailure(
                    f"it is not reachable ({self._reason}); the next attempt is in {left:.1f} s"
                )
            try:
                connection = await self._connect()
            except ServerFailure as error:
                self._log(error)
                self._reason = str(error)
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

    async def call(self, call: ToolCall, *, repeatable: bool = False) -> CallToolResult:
        """Call a tool. Raises `ServerFailure`. If the session ends, a new one is begun, and a call that was certainly not
        carried out is repeated once; a `repeatable` one, which changes nothing, also if that is unknown."""
        self.calls += 1
        try:
            return await self._repeated(lambda connection: connection.call(call), repeatable)
        finally:
            self.calls -= 1

    async def list_tools(self, *, seconds: float, max_bytes: int) -> list[Tool]:
        """List the tools, in a new session if the server has ended the last one. See `McpConnection.list_tools`."""
        return await self._repeated(
            lambda connection: connection.list_tools(seconds=seconds, max_bytes=max_bytes), True
        )

    async def _repeated(
        self, ask: Callable[[McpConnection], Awaitable[ResultT]], repeatable: bool
    ) -> ResultT:
        connection = await self.connected()
        try:
            return await ask(connection)
        except ServerFailure as error:
            ended = isinstance(error, SessionGone | ConnectionLost)
            if ended and self._label is not None:
                logger.info(
                    "the MCP server %s: %s; a new session is begun on demand", self._label, error
                )
            if not ended or not (repeatable or isinstance(error, SessionGone)):
                self._log(error)
                raise
        connection = await self.connected()
        try:
            return await ask(connection)
        except ServerFailure as error:
            self._log(error)
            raise

    async def _leave(self, connection: McpConnection) -> None:
        """Close a lost connection, unless requests still wait for answers: it closes itself after them."""
        self._left = [each for each in self._left if not each.closed]
        if connection.busy:
            self._left.append(connection)
        else:
            await connection.close()

    def _log(self, error: ServerFailure) -> None:
        if self._label is None or error.status is None:
            return
        if error.status in (401, 403):
            logger.warning(
                "the MCP server %s refuses the gateway's credentials (%s): renew the headers of [tools.mcp.servers.%s]",
                self._label,
                described(error.status),
                self._label,
            )
        else:
            logger.warning(
                "the MCP server %s answered with %s", self._label, described(error.status)
            )

    async def close(self) -> None:
        """Disconnect. Does not raise."""
        async with self._opening:
            connections = [*self._left, *([self._connection] if self._connection else [])]
            await asyncio.gather(*(each.close() for each in connections))
            self._left, self._connection = [], None

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

    def __init__(
        self,
        links: Sequence[ServerLink],
        output: OutputCheck,
        repeatable: Callable[[str], bool] = lambda name: False,
    ) -> None:
        """`repeatable` says of a tool's name whether calling it twice changes no more than calling it once."""
        self._links = links
        self._output = output
        self._repeatable = repeatable

    async def call(self, call: ToolCall) -> ToolResult:
        link = min(self._links, key=lambda each: each.calls)
        try:
            result = await link.call(call, repeatable=self._repeatable(call.name))
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
    link: ServerLink,
    closing_connections: ClosingConnections,
    output: OutputCheck,
    repeatable: Callable[[str], bool] = lambda name: False,
) -> AsyncIterator[LinkSession]:
    """A session on a connection of its own, which is closed on exit. See `LinkSession`."""
    try:
        yield LinkSession([link], output, repeatable)
    finally:
        closing_connections.close(link)
