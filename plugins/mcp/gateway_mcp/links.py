"""Connections that come back: reconnecting with backoff, and the sessions of responses on them."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from mcp.types import CallToolResult

from gateway.protocols import ToolResult
from gateway_mcp.connection import Connection, Dial, ServerFailure, SessionGone
from gateway_mcp.content import result_of

logger = logging.getLogger("gateway.mcp")

FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0
"""Seconds between two attempts to connect, doubled from the first to the longest while they fail."""


class Link:
    """A server, connected to when it is needed, again and again."""

    def __init__(
        self,
        dials: Sequence[Dial],
        *,
        connect_timeout: float,
        tools_changed: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`dials` are tried in turn; the one that works is kept. `tools_changed` is also called for each new connection:
        a server that was started anew may have others.
        """
        self._dials = list(dials)
        self._timeout = connect_timeout
        self._tools_changed = tools_changed
        self._clock = clock
        self._opening = asyncio.Lock()
        self._connection: Connection | None = None
        self._wait = 0.0
        self._retry_at = 0.0
        self.calls = 0
        """How many run now."""

    async def connected(self) -> Connection:
        """The live connection, made where there is none. Raises `ServerFailure`, at once while it waits for the next try."""
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
                # Not all replicas of a gateway shall come back at one moment.
                jittered = self._wait * random.uniform(0.75, 1.0)  # noqa: S311 (no secret)
                self._retry_at = self._clock() + jittered
                raise
            self._wait = self._retry_at = 0.0
            self._connection = connection
            if self._tools_changed is not None:
                self._tools_changed()
            return connection

    async def call(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool. Raises `ServerFailure`. Only a call that was surely not carried out is made twice."""
        self.calls += 1
        try:
            connection = await self.connected()
            try:
                return await connection.call(name, arguments)
            except SessionGone:
                return await (await self.connected()).call(name, arguments)
        finally:
            self.calls -= 1

    async def close(self) -> None:
        """Disconnect. Does not raise."""
        async with self._opening:
            if self._connection is not None:
                await self._connection.close()
                self._connection = None

    async def _connect(self) -> Connection:
        failure: ServerFailure | None = None
        for dial in self._dials:
            connection = Connection(dial, self._tools_changed)
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
    """One response's calls, each on the least busy of `links`."""

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = links

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        link = min(self._links, key=lambda each: each.calls)
        try:
            result = await link.call(name, arguments)
        except ServerFailure as error:
            return ToolResult(text=f"The tool failed: {error}", failed=True)
        return result_of(result)


class Farewells:
    """Connections that are being closed, which nobody waits for but the end of the gateway: a server may take its time."""

    def __init__(self) -> None:
        self._closing: set[asyncio.Task[None]] = set()

    def close(self, link: Link) -> None:
        """Disconnect, beside what goes on."""
        task = asyncio.create_task(link.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def over(self) -> None:
        """Wait until all are closed. Does not raise."""
        await asyncio.gather(*self._closing, return_exceptions=True)


@asynccontextmanager
async def own_link(link: Link, farewells: Farewells) -> AsyncIterator[LinkSession]:
    """A session on a connection that nobody else has, closed after it."""
    try:
        yield LinkSession([link])
    finally:
        farewells.close(link)
