"""Probes of tool servers for administrators: whether they can be reached, and which tools they offer."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from gateway.config import Config
from gateway.config.redaction import Redactor, secrets_of
from gateway.plugins.protocols import ServerTool, ToolServer
from gateway.tools.available import AvailableTools
from gateway.wire.inventory import ListedTool, ListedToolServer, ToolServerList

MAX_SERVERS: Final = 100
MAX_TOOLS: Final = 100
"""Maximum number of tools of one server in an answer."""
_LONGEST_NAME: Final = 128
_LONGEST_TEXT: Final = 400
"""Maximum characters of a description, and of the reason of a failure."""
_AT_ONCE: Final = 8
PROBE_SECONDS: Final = 10.0
"""Time limit for one server, in seconds. After it, the probe is cancelled and not waited for."""
_ALL_SECONDS: Final = 30.0


class _Found(Struct, frozen=True, kw_only=True):
    """The result of a probe."""

    state: Literal["reachable", "unreachable", "no_probe"]
    probed: float
    seconds: float | None = None
    error: str | None = None
    total: int | None = None
    tools: Sequence[ListedTool] = ()


class _Row(Struct, frozen=True, kw_only=True):
    """A tool server of the configuration."""

    table: str
    label: str
    types: Sequence[str]
    offered: bool
    server: ToolServer | None
    """None if the table has no tools."""
    tools: Sequence[ServerTool] | None = None
    """None if they are not known without a probe."""


class ToolProbes:
    """Probes tool servers, and keeps the last result of each."""

    def __init__(
        self, *, seconds: float = PROBE_SECONDS, all_seconds: float = _ALL_SECONDS
    ) -> None:
        self._seconds = seconds
        self._all_seconds = all_seconds
        self._lock = asyncio.Lock()
        self._began = -math.inf
        self._running: dict[int, asyncio.Task[Sequence[ServerTool] | None]] = {}
        """Probes that have not ended, by `id()` of the server."""
        self._found: dict[tuple[str, str], tuple[ToolServer, _Found]] = {}
        """The last results by table and label, with the probed server: a later configuration may have a different
        one."""

    def listed(self, tables: Mapping[str, AvailableTools]) -> ToolServerList:
        """List the servers of `tables`, which is keyed by the names of the tables `[tools.<name>]`. Does not probe
        them."""
        rows = list(_rows(tables))
        return ToolServerList(total=len(rows), data=list(map(self._listed, rows[:MAX_SERVERS])))

    async def probe(self, tables: Mapping[str, AvailableTools], config: Config) -> ToolServerList:
        """Probe the servers of `tables`, and list them. Calls that wait for the same probe share it."""
        asked = time.monotonic()
        async with self._lock:
            if self._began < asked:
                self._began = time.monotonic()
                await self._probe_all(list(_rows(tables))[:MAX_SERVERS], config)
        return self.listed(tables)

    async def _probe_all(self, rows: Sequence[_Row], config: Config) -> None:
        redactor = await asyncio.to_thread(lambda: Redactor(secrets_of(config, os.environ)))
        self._found = {
            key: kept
            for key, kept in self._found.items()
            if any(key == (row.table, row.label) and kept[0] is row.server for row in rows)
        }
        places = asyncio.Semaphore(_AT_ONCE)
        ends = time.monotonic() + self._all_seconds

        async def one(row: _Row, server: ToolServer) -> None:
            async with places:
                if (left := ends - time.monotonic()) <= 0:
                    return  # the last result remains
                found = await self._probe(server, min(left, self._seconds), redactor)
            self._found[row.table, row.label] = server, found

        async with asyncio.TaskGroup() as group:
            for row in rows:
                if row.server is not None and _has_probe(row.server):
                    group.create_task(one(row, row.server))

    async def _probe(self, server: ToolServer, seconds: float, redactor: Redactor) -> _Found:
        at, began, identity = time.time(), time.monotonic(), id(server)
        if identity in self._running:
            error = "an earlier probe of it has not ended"
            return _Found(state="unreachable", probed=at, error=error)
        task = asyncio.create_task(_asked(server), name="tool probe")
        self._running[identity] = task

        def ended(task: asyncio.Task[Sequence[ServerTool] | None]) -> None:
            del self._running[identity]
            if not task.cancelled():
                task.exception()  # marks it as retrieved, even if the caller no longer waits

        task.add_done_callback(ended)
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            if not task.done():
                task.cancel()
        took = time.monotonic() - began
        if not task.done():
            error = f"it did not answer within {seconds:.3g} seconds"
            return _Found(state="unreachable", probed=at, error=error)
        try:
            tools = task.result()
            if tools is None:
                return _Found(state="no_probe", probed=at)
            # In a thread, because redacting long texts would block the event loop for too long.
            listed = await asyncio.to_thread(_listed_tools, tools, redactor)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            return _Found(state="unreachable", probed=at, error="its probe was cancelled")
        except Exception as failure:
            # Tool servers are third-party code and may raise anything.
            reason = str(failure) or type(failure).__name__
            error = await asyncio.to_thread(redactor.clean, reason)
            return _Found(state="unreachable", probed=at, error=error[:_LONGEST_TEXT])
        return _Found(state="reachable", probed=at, seconds=took, total=len(tools), tools=listed)

    def _listed(self, row: _Row) -> ListedToolServer:
        server, found = self._found.get((row.table, row.label), (None, None))
        if server is not row.server:
            found = None
        shown = ListedToolServer(
            table=row.table,
            label=row.label,
            types=list(row.types),
            offered=row.offered,
            state="no_probe" if row.server is None or not _has_probe(row.server) else "unknown",
            probed=None,
            seconds=None,
            error=None,
            total=None if row.tools is None else len(row.tools),
            tools=_listed_tools(row.tools or ()),
        )
        if found is None:
            return shown
        if found.state != "no_probe":
            shown = msgspec.structs.replace(shown, total=found.total, tools=list(found.tools))
        return msgspec.structs.replace(
            shown,
            state=found.state,
            probed=found.probed,
            seconds=found.seconds,
            error=found.error,
        )


async def _asked(server: ToolServer) -> Sequence[ServerTool] | None:
    return await server.probe()


def _has_probe(server: ToolServer) -> bool:
    return type(server).probe is not ToolServer.probe


def _listed_tools(
    tools: Sequence[ServerTool], redactor: Redactor | None = None
) -> list[ListedTool]:
    clean = (lambda text: text) if redactor is None else redactor.clean
    return [
        ListedTool(
            name=clean(tool.definition.name)[:_LONGEST_NAME],
            description=(
                None
                if tool.definition.description is None
                else clean(tool.definition.description)[:_LONGEST_TEXT]
            ),
            needs_approval=tool.needs_approval,
        )
        for tool in tools[:MAX_TOOLS]
    ]


def _rows(tables: Mapping[str, AvailableTools]) -> Iterator[_Row]:
    for name, table in tables.items():
        for kind, server in table.choices.items():
            offered = {id(each) for each in server.offered()}
            for each in server.configured():
                yield _Row(
                    table=name,
                    label=each.label,
                    types=[kind],
                    offered=id(each) in offered,
                    server=each,
                )
        if table.choices:
            continue
        entries = {
            entry.tool.definition.name: entry
            for entries in (*table.by_type.values(), table.always)
            for entry in entries
        }
        owner = next((entry.server for entry in entries.values()), None)
        yield _Row(
            table=name,
            label=name if owner is None else owner.label,
            types=sorted(table.by_type),
            offered=bool(table.always),
            server=owner,
            tools=[entry.tool for entry in entries.values()],
        )
