"""One session with an MCP server, held by a task of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias, TypeVar

import anyio
import httpx2
from mcp import MCPError
from mcp.client import Client
from mcp.client._transport import TransportStreams
from mcp.client.subscriptions import SubscriptionLost
from mcp.types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    CallToolResult,
    Implementation,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

logger = logging.getLogger("gateway.mcp")

Dial: TypeAlias = Callable[[], AbstractAsyncContextManager[TransportStreams]]
"""Makes a transport: entered to connect, left to disconnect, by the same task."""
ResultT = TypeVar("ResultT")

MAX_PAGES = 100
"""Of a tool list; a server that has always one page more is refused."""


class ServerFailure(Exception):
    """An MCP server cannot be reached, or does not hold to the protocol. The message may be shown: it has no URL."""


class ConnectionLost(ServerFailure):
    """The connection has ended before the answer came; whether the call was carried out is not known."""


class SessionGone(ServerFailure):
    """The server does not know this session any more, so it has not carried out the call."""


class Connection:
    """A session that is open until it is closed, or lost.

    The SDK's scopes must be left by the task that entered them, and any task may call here: so one task opens the session,
    waits, and closes it.
    """

    def __init__(self, dial: Dial, tools_changed: Callable[[], None] | None = None) -> None:
        """`tools_changed` is called when the server says that its tools have changed; without it, it is not asked to."""
        self._dial = dial
        self._tools_changed = tools_changed
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._lost = asyncio.Event()
        self._leave = asyncio.Event()
        self._scope = anyio.CancelScope()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def lost(self) -> bool:
        """Whether it has ended, by whichever side."""
        return self._lost.is_set()

    async def open(self, *, seconds: float) -> None:
        """Connect, and agree on the protocol, within so many seconds. Raises `ServerFailure`; then, and if cancelled, nothing is left open."""
        self._keeper = asyncio.create_task(self._keep(), name="mcp connection")
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._ready)
        except TimeoutError:
            await self._abort()
            raise ServerFailure(f"it did not answer within {seconds:g} seconds") from None
        except asyncio.CancelledError:
            await self._abort()
            raise
        except Exception as error:
            # Anything that a transport or the SDK raises means the same here: no connection.
            await self._abort()
            raise ServerFailure(reason(error)) from None

    async def list_tools(self, *, seconds: float) -> list[Tool]:
        """All tools of the server, within so many seconds. Raises `ServerFailure`."""
        try:
            async with asyncio.timeout(seconds):
                return await self._all_pages()
        except TimeoutError:
            raise ServerFailure(f"it did not list its tools within {seconds:g} seconds") from None

    async def _all_pages(self) -> list[Tool]:
        client = self._ready.result()
        tools: list[Tool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self._ask(client.list_tools(cursor=cursor))
            tools += page.tools
            cursor = page.next_cursor
            if not cursor:
                return tools
        raise ServerFailure("its list of tools does not end")

    async def call(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool. Raises `ServerFailure`. Cancelling tells the server, which may stop."""
        return await self._ask(self._ready.result().call_tool(name, arguments))

    async def close(self) -> None:
        """Say goodbye and disconnect; a program gets a few seconds to end by itself. Does not raise."""
        self._leave.set()
        if self._keeper is not None:
            done, _ = await asyncio.wait({self._keeper}, timeout=10)
            if not done:
                await self._abort()

    async def _abort(self) -> None:
        self._scope.cancel()
        if self._keeper is not None:
            await asyncio.wait({self._keeper}, timeout=10)

    async def _ask(self, question: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Await an answer for as long as the connection lives. Raises `ServerFailure`."""
        try:
            return await self._while_it_lives(question)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                self._end()
                raise ConnectionLost("the MCP server went away before it answered") from None
            if error.code == INVALID_REQUEST and error.message == "Session terminated":
                self._end()
                raise SessionGone("the MCP server has ended the session") from None
            raise ServerFailure(error.message) from None
        except ServerFailure:
            raise
        except Exception as error:
            # The SDK checks answers against the protocol and raises what its validators raise.
            raise ServerFailure(reason(error)) from None

    async def _while_it_lives(self, question: Coroutine[Any, Any, ResultT]) -> ResultT:
        if self.lost:
            question.close()
            raise ConnectionLost("the connection to the MCP server was lost")
        asking = asyncio.ensure_future(question)
        losing = asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait({asking, losing}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            raise ConnectionLost("the MCP server went away before it answered")
        finally:
            losing.cancel()
            asking.cancel()
            await asyncio.gather(asking, losing, return_exceptions=True)

    async def _keep(self) -> None:
        try:
            with self._scope:
                client = Client(
                    _Watched(self._dial(), self._end),
                    message_handler=self._hear,
                    client_info=Implementation(name="litegate", version="0.1"),
                    cache=None,
                )
                async with client:
                    if not self._ready.done():
                        self._ready.set_result(client)
                    listening = asyncio.create_task(self._listen(client))
                    try:
                        await self._leave.wait()
                    finally:
                        listening.cancel()
                        await asyncio.gather(listening, return_exceptions=True)
        except Exception as error:
            # Whatever ends a transport, its connection is lost; whoever waits for it is told why.
            if not self._ready.done():
                self._ready.set_exception(error)
            elif not self._leave.is_set():
                logger.info("a connection to an MCP server was lost: %s", reason(error))
        finally:
            self._lost.set()
            if not self._ready.done():
                self._ready.set_exception(ServerFailure("it ended the connection"))
            self._ready.exception()  # seen: nobody may be waiting any more

    def _end(self) -> None:
        """The server has ended the stream of its messages."""
        self._lost.set()
        self._leave.set()

    async def _hear(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification) and self._tools_changed is not None:
            self._tools_changed()

    async def _listen(self, client: Client) -> None:
        """Since 2026-07-28 a server tells of changes only to those who have asked."""
        changed = self._tools_changed
        if changed is None or client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        try:
            async with client.listen(tools_list_changed=True) as changes:
                changed()  # what changed before it was asked to tell
                async for _ in changes:
                    changed()
        except (MCPError, SubscriptionLost) as error:
            logger.info("an MCP server does not tell of changes: %s", reason(error))


class _Watched:
    """A transport that says when the server ends it, which the SDK's session keeps to itself."""

    def __init__(
        self, inner: AbstractAsyncContextManager[TransportStreams], ended: Callable[[], None]
    ) -> None:
        self._inner = inner
        self._ended = ended

    async def __aenter__(self) -> TransportStreams:
        read, write = await self._inner.__aenter__()
        return _WatchedStream(read, self._ended), write

    async def __aexit__(self, *exception: Any) -> bool | None:
        return await self._inner.__aexit__(*exception)


class _WatchedStream:
    def __init__(self, inner: Any, ended: Callable[[], None]) -> None:
        self._inner = inner
        self._ended = ended

    @property
    def last_context(self) -> Any:
        """The sender's context, where the stream keeps it; see the SDK's `ReadStream`."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        return await self._or_end(self._inner.receive())

    def __aiter__(self) -> _WatchedStream:
        return self

    async def __anext__(self) -> Any:
        return await self._or_end(self._inner.__anext__())

    async def _or_end(self, message: Awaitable[Any]) -> Any:
        try:
            return await message
        except (StopAsyncIteration, anyio.EndOfStream, anyio.ClosedResourceError):
            self._ended()
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> _WatchedStream:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exception: Any) -> bool | None:
        result: bool | None = await self._inner.__aexit__(*exception)
        return result


def reason(error: BaseException) -> str:
    """What went wrong, in words that may be shown to clients: without URLs, paths and headers."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case ServerFailure():
            return str(error)
        case MCPError():
            return error.message
        case httpx2.HTTPStatusError():
            return f"it answered with HTTP status {error.response.status_code}"
        case httpx2.TimeoutException():
            return "it did not answer in time"
        case httpx2.ConnectError() if str(error).startswith("refused: "):
            return str(error).removeprefix("refused: ")
        case httpx2.ConnectError():
            return "no connection could be made"
        case httpx2.TransportError() | httpx2.StreamError():
            return "the connection broke"
        case FileNotFoundError() | PermissionError():
            return "its program could not be started"
        case _:
            return f"it does not hold to the protocol ({type(error).__name__})"
