"""One session with an MCP server, run by a task of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias, TypeVar, cast

import anyio
import httpx2
from mcp import MCPError
from mcp.client import Client
from mcp.client._transport import TransportStreams
from mcp.client.subscriptions import SubscriptionLost
from mcp.types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    PARSE_ERROR,
    CallToolResult,
    Implementation,
    RequestParamsMeta,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from gateway.sdk import ToolCall
from gateway_mcp.messages import MessageScreen, TooManyRequests

logger = logging.getLogger("gateway.mcp")

Dial: TypeAlias = Callable[[], AbstractAsyncContextManager[TransportStreams]]
"""Creates a transport: an async context manager that connects on entry and disconnects on exit, in the same task."""
ResultT = TypeVar("ResultT")

MAX_PAGES = 100
"""Maximum number of pages of a tool list. A server that exceeds it is refused."""


LONGEST_MESSAGE = 2000
"""Maximum length of a server's own error message in characters; the rest is cut off."""


_UNREADABLE = ("Failed to parse JSON response: ", "Failed to parse SSE message: ")
"""What the SDK's own errors for answers that it cannot read begin with, before the lines of its validators."""


class ServerFailure(Exception):
    """An MCP server cannot be reached or violates the protocol. The message may be shown to clients: it contains no
    URL."""


class ConnectionLost(ServerFailure):
    """The connection ended before the answer arrived. Whether the call was carried out is unknown."""


class SessionGone(ServerFailure):
    """The server no longer knows this session, so it has not carried out the call."""


class McpConnection:
    """A session that stays open until it is closed or lost.

    The SDK's scopes must be left by the task that entered them, but any task may use this object. So one task
    opens the session, waits, and closes it.
    """

    def __init__(self, dial: Dial, tools_changed: Callable[[], None] | None = None) -> None:
        """`tools_changed` is called when the server reports that its tools have changed. If it is None, the server is
        not asked to report changes."""
        self._dial = dial
        self._tools_changed = tools_changed
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._lost = asyncio.Event()
        self._leave = asyncio.Event()
        self._scope = anyio.CancelScope()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def lost(self) -> bool:
        """Whether the session has ended, by either side."""
        return self._lost.is_set()

    async def open(self, *, seconds: float) -> None:
        """Connect and negotiate the protocol within `seconds`. Raises `ServerFailure`. On failure or cancellation,
        nothing is left open."""
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
            # Anything that a transport or the SDK raises means that there is no connection.
            await self._abort()
            raise ServerFailure(reason(error)) from None

    async def list_tools(self, *, seconds: float, max_bytes: int) -> list[Tool]:
        """All tools of the server, listed within `seconds`. Raises `ServerFailure`, also if they exceed `max_bytes`
        together."""
        try:
            async with asyncio.timeout(seconds):
                return await self._all_pages(max_bytes)
        except TimeoutError:
            raise ServerFailure(f"it did not list its tools within {seconds:g} seconds") from None

    async def _all_pages(self, max_bytes: int) -> list[Tool]:
        client = self._ready.result()
        tools: list[Tool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self._ask(client.list_tools(cursor=cursor))
            tools += page.tools
            max_bytes -= sum(map(_size_of, page.tools))
            if max_bytes < 0:
                raise ServerFailure("its tools' descriptions and schemas are too large")
            cursor = page.next_cursor
            if not cursor:
                return tools
        raise ServerFailure("its list of tools does not end")

    async def call(self, call: ToolCall) -> CallToolResult:
        """Call a tool. Raises `ServerFailure`. If cancelled, the server is told and may stop."""

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            call.report_progress()

        client = self._ready.result()
        return await self._ask(
            client.call_tool(
                call.name,
                call.arguments,
                progress_callback=progressed,
                meta=cast("RequestParamsMeta | None", call.trace_headers),
            )
        )

    async def close(self) -> None:
        """Shut down the session and disconnect. A server program gets a few seconds to exit by itself. Does not
        raise."""
        self._leave.set()
        if self._keeper is not None:
            done, _ = await asyncio.wait({self._keeper}, timeout=10)
            if not done:
                await self._abort()

    async def _abort(self) -> None:
        self._scope.cancel()
        if self._keeper is not None:
            await asyncio.wait({self._keeper}, timeout=10)

    async def _ask(self, request: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Await an answer while the connection lives. Raises `ServerFailure`."""
        try:
            return await self._until_lost(request)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                self._end()
                raise ConnectionLost("the MCP server went away before it answered") from None
            if error.code == INVALID_REQUEST and error.message == "Session terminated":
                self._end()
                raise SessionGone("the MCP server has ended the session") from None
            raise ServerFailure(reason(error)) from None
        except ServerFailure:
            raise
        except Exception as error:
            # The SDK validates answers and raises the errors of its validators.
            raise ServerFailure(reason(error)) from None

    async def _until_lost(self, request: Coroutine[Any, Any, ResultT]) -> ResultT:
        if self.lost:
            request.close()
            raise ConnectionLost("the connection to the MCP server was lost")
        asking = asyncio.ensure_future(request)
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
                    message_handler=self._on_message,
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
            # However the transport ended, the connection is lost; waiting tasks receive the reason.
            if not self._ready.done():
                self._ready.set_exception(error)
            elif not self._leave.is_set():
                logger.info("a connection to an MCP server was lost: %s", reason(error))
        finally:
            self._lost.set()
            if not self._ready.done():
                self._ready.set_exception(ServerFailure("it ended the connection"))
            self._ready.exception()  # retrieved: nobody may be waiting for it

    def _end(self) -> None:
        """The server has closed the message stream."""
        self._lost.set()
        self._leave.set()

    async def _on_message(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification) and self._tools_changed is not None:
            self._tools_changed()

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes. Since protocol version 2026-07-28, a server reports changes only to subscribers."""
        changed = self._tools_changed
        if changed is None or client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        try:
            async with client.listen(tools_list_changed=True) as changes:
                changed()  # the tools may have changed before the subscription
                async for _ in changes:
                    changed()
        except (MCPError, SubscriptionLost) as error:
            logger.info("an MCP server does not tell of changes: %s", reason(error))


def _size_of(tool: Tool) -> int:
    """The size of a tool's definition in bytes of JSON, without its output schema."""
    return len(tool.model_dump_json(by_alias=True, exclude={"meta", "output_schema"}))


class _Watched:
    """A transport that checks the server's messages and reports when the server closes it."""

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
        self._screen = MessageScreen()

    @property
    def last_context(self) -> Any:
        """The sender's context, if the stream keeps it; see the SDK's `ReadStream`."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        try:
            return await self._screen.admit(await self._or_closed(self._inner.receive()))
        except TooManyRequests:
            self._refuse()
            raise anyio.EndOfStream from None

    def __aiter__(self) -> _WatchedStream:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._screen.admit(await self._or_closed(self._inner.__anext__()))
        except TooManyRequests:
            self._refuse()
            raise StopAsyncIteration from None

    def _refuse(self) -> None:
        logger.warning("an MCP server sends too many requests: its connection is closed")
        self._ended()

    async def _or_closed(self, message: Awaitable[Any]) -> Any:
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
    """A description of the failure that may be shown to clients: without URLs, paths and headers."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case ServerFailure():
            return str(error)
        case MCPError(code=code, message=message) if code == PARSE_ERROR and message.startswith(
            _UNREADABLE
        ):
            return "its answer is not a valid message of the protocol"
        case MCPError():
            return error.message[:LONGEST_MESSAGE]
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
