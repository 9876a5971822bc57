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
        label: str = "",
        goes_on: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`fetch` lists the tools, or raises `ServerFailure`. `ttl` and `clock` are in seconds. `label` names the server in
        log lines. `goes_on`: a list that nobody waits for any more is fetched all the same, until `close`."""
        self._label = label
        self._fetch = fetch
        self._ttl = ttl
        self._goes_on = goes_on
        self._clock = clock
        self._tools: Sequence[ServerTool] | None = None
        self._fresh_until = 0.0
        self._changes = 0
        self._fetching: asyncio.Task[Sequence[ServerTool]] | None = None
        self._began = 0.0
        self._waiting = 0
        self.tried = False
        """Whether an attempt to fetch the list has ended."""

    def changed(self) -> None:
        """Mark the cached list as out of date."""
        self._changes += 1
        self._fresh_until = 0.0

    def repeatable(self, name: str) -> bool:
        """Whether the server says of a tool that calling it twice changes no more than calling it once."""
        return any(
            tool.definition.name == name
            and (tool.hints.get("readOnlyHint") is True or tool.hints.get("idempotentHint") is True)
            for tool in self._tools or ()
        )

    async def get(self, patience: float | None = None) -> Sequence[ServerTool]:
        """The tools. Concurrent callers share one request. While the server is unavailable, returns the last known
        tools, also if the request was sent `patience` seconds ago and has no answer.

        Raises `ServerFailure` if the server was never reached.
        """
        if self._tools is not None and self._clock() < self._fresh_until:
            return self._tools
        if self._fetching is None:
            self._began = self._clock()
            self._fetching = asyncio.create_task(self._refreshed(), name="mcp tool list")
            self._fetching.add_done_callback(self._ended)
        fetching = self._fetching
        left = None if patience is None else max(self._began + patience - self._clock(), 0.0)
        self._waiting += 1
        try:
            await asyncio.wait({fetching}, timeout=left)
        finally:
            self._waiting -= 1
            if not (fetching.done() or self._waiting or self._goes_on):
                fetching.cancel()
                if self._fetching is fetching:
                    self._fetching = None
        if fetching.done() and not fetching.cancelled():
            return fetching.result()
        if self._tools is None:
            raise ServerFailure("it has not answered yet")
        return self._tools

    async def close(self) -> None:
        """Stop fetching. Does not raise."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait({self._fetching})

    def _ended(self, task: asyncio.Task[Sequence[ServerTool]]) -> None:
        if self._fetching is task:
            self._fetching = None
        if not task.cancelled():
            self.tried = True
            task.exception()  # retrieved: nobody may be waiting for it

    async def _refreshed(self) -> Sequence[ServerTool]:
        kept = self._tools
        try:
            # A change that is reported during the request may be missing from its result, so the tools are listed again.
            for _ in range(3):
                changes = self._changes
                kept = self._tools = await self._fetch()
                if changes == self._changes:
                    self._fresh_until = self._clock() + self._ttl
                    break
        except ServerFailure as error:
            if kept is None:
                raise
            logger.warning(
                "an old list of tools is used, as the MCP server %s is away: %s", self._label, error
            )
        assert kept is not None, "it was listed"
        return kept
