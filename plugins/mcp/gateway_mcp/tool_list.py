"""A server's tools, cached until they change or expire."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from gateway.sdk import ServerTool
from gateway_mcp.connection import ServerFailure

logger = logging.getLogger("gateway.mcp")


class ToolList:
    """One server's tools."""

    def __init__(
        self,
        fetch: Callable[[], Awaitable[Sequence[ServerTool]]],
        *,
        ttl: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`fetch` lists the tools, or raises `ServerFailure`. `ttl` and `clock` are in seconds."""
        self._fetch = fetch
        self._ttl = ttl
        self._clock = clock
        self._tools: Sequence[ServerTool] | None = None
        self._fresh_until = 0.0
        self._changes = 0
        self._fetching = asyncio.Lock()

    def changed(self) -> None:
        """Mark the cached list as out of date."""
        self._changes += 1
        self._fresh_until = 0.0

    async def get(self) -> Sequence[ServerTool]:
        """The tools. Concurrent callers share one request. While the server is unavailable, returns the last known
        tools.

        Raises `ServerFailure` if the server was never reached.
        """
        async with self._fetching:
            if self._tools is not None and self._clock() < self._fresh_until:
                return self._tools
            kept = self._tools
            try:
                # A change that is reported during the request may be missing from its result, so the tools are listed
                # again.
                for _ in range(3):
                    changes = self._changes
                    kept = self._tools = await self._fetch()
                    if changes == self._changes:
                        self._fresh_until = self._clock() + self._ttl
                        break
            except ServerFailure as error:
                if kept is None:
                    raise
                logger.warning("an old list of tools is used, as the server is away: %s", error)
            assert kept is not None, "it was listed"
            return kept
