"""One session with an MCP server, run by a task of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeAlias, TypeVar, cast

import anyio
import httpx2
from mcp import MCPError
from mcp.client import Client
from mcp.client._transport import TransportStreams
from mcp.client.subscriptions import SubscriptionLost
from mcp.types import (
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
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
from gateway_mcp.statuses import described, status_of

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
    """An MCP server cannot be reached, refuses a request or violates the protocol. The message may be shown to clients: it
    contains no URL."""

    def __init__(self, message: str, status: int | None = None) -> None:
        """`status` is the HTTP status with which the server answered, if it was that of an error."""
        super().__init__(message)
        self.status = status


class ConnectionLost(ServerFailure):
    """The connection or the session ended before the answer arrived. Whether the call was carried out is unknown."""


class SessionGone(ServerFailure):
    """The server no longer knows this session, so it has not carried out the call."""


_SESSION_STATUSES: Final = frozenset({404, 410})
"""With these statuses a server refuses a session that it does not know. With any other, it is asked."""
_OWN_STATUSES: Final = frozenset({413, 429})
"""Statuses that are about the request itself."""
_PING_SECONDS: Final = 5.0
_SSE_ENDED: Final = ("Connection closed", "SSE stream ")
"""What the SDK's own errors of the code CONNECTION_CLOSED begin with. Servers use this code too, for any error."""


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
        self._stale = False
        self._asking = 0
        """Number of requests that wait for an answer."""
        self._refusal: int | None = None
        """The HTTP status with which a message over SSE was refused, if one was."""
        self._leave = asyncio.Event()
        self._scope = anyio.CancelScope()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def lost(self) -> bool:
        """Whether the session has ended, by either side."""
        return self._stale or self._lost.is_set()

    @property
    def closed(self) -> bool:
        """Whether nothing is left open."""
        return self._keeper is None or self._keeper.done()

    @property
    def busy(self) -> bool:
        """Whether requests wait for answers. In a session that the server has ended, they may still get theirs."""
        return self._asking > 0 and not self._lost.is_set()

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
            raise ServerFailure(reason(error), _http_status(error)) from None

    async def list_tools(self, *, seconds: float, max_bytes: int) -> list[Tool]:
        """All tools of the server, listed within `seconds`. Raises `ServerFailure`, also if they exceed `max_bytes`
        together."""
        try:
            async with asyncio.timeout(seconds):
                return await self._all_pages(max_bytes)
        except TimeoutError:
            self._retire()  # a server that has vanished ends no connection
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
        self._asking += 1
        try:
            return await self._until_lost(request)
        except MCPError as error:
            raise await self._failure(error) from None
        except ServerFailure:
            raise
        except Exception as error:
            # The SDK validates answers and raises the errors of its validators.
            raise ServerFailure(reason(error)) from None
        finally:
            self._asking -= 1
            if self._stale and not self._asking:
                self._end()

    async def _failure(self, error: MCPError) -> ServerFailure:
        """What a server's error means. If it may be that the server does not know the session any more, the server is asked."""
        status, said = status_of(error), reason(error)
        if status is None:
            if error.code == CONNECTION_CLOSED and error.message.startswith(_SSE_ENDED):
                if not await self._alive():
                    self._end()
                return ConnectionLost("the MCP server went away before it answered")
            if "session" not in error.message.lower() or await self._alive():
                return ServerFailure(said)
        elif status in _OWN_STATUSES:
            return ServerFailure(said, status)
        else:
            certain = status in _SESSION_STATUSES and error.code != METHOD_NOT_FOUND
            if not certain and await self._alive():
                return ServerFailure(said, status)
        self._retire()
        return _ended(said, status, True)

    async def _alive(self) -> bool:
        """Whether the server still knows the session."""
        if self.lost:
            return False
        client = self._ready.result()
        # Since protocol version 2026-07-28 there are no sessions and no pings, but the server may be another one now. A
        # server that has no pings is asked for its tools.
        modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        questions: list[Callable[[], Coroutine[Any, Any, object]]]
        questions = [client.list_tools] if modern else [client.session.send_ping, client.list_tools]
        try:
            async with asyncio.timeout(_PING_SECONDS):
                for question in questions:
                    try:
                        await self._until_lost(question())
                    except MCPError as error:
                        if error.code != METHOD_NOT_FOUND:
                            return False
                    else:
                        return True
        except Exception:
            # Whatever the server has answered, or not answered: a new session will tell.
            return False
        return False

    async def _until_lost(self, request: Coroutine[Any, Any, ResultT]) -> ResultT:
        if self.lost:
            request.close()
            raise SessionGone("the connection to the MCP server was lost")
        asking = asyncio.ensure_future(request)
        losing = asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait({asking, losing}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            if (status := self._refusal) is not None:
                raise _ended(f"it answered with {described(status)}", status, self._asking == 1)
            raise ConnectionLost("the MCP server went away before it answered")
        finally:
            losing.cancel()
            asking.cancel()
            await asyncio.gather(asking, losing, return_exceptions=True)

    def _retire(self) -> None:
        """Use the session for nothing new, and end it with its last request."""
        self._stale = True
        if not self._asking:
            self._end()

    async def _keep(self) -> None:
        try:
            with self._scope:
                client = Client(
                    _Watched(self._dial(), self._end, self._refused),
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

    def _refused(self, status: int) -> None:
        """A message over SSE was refused: no answer will come, and the SDK sends no more."""
        self._refusal = status
        self._end()

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


def _ended(said: str, status: int | None, own: bool) -> ServerFailure:
    """What follows from a refusal with which a session ended. `own`: it is certainly the call that was refused."""
    if own and (status is None or status < 500):
        return SessionGone(f"the MCP server has ended the session: {said}", status)
    return ConnectionLost(
        f"{said}, and the session has ended: whether the call was carried out is unknown", status
    )


def _size_of(tool: Tool) -> int:
    """The size of a tool's definition in bytes of JSON, without its output schema."""
    return len(tool.model_dump_json(by_alias=True, exclude={"meta", "output_schema"}))


class ReportingStream:
    """What a transport reads, if it also reports the HTTP statuses with which messages were refused."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.refused: Callable[[int], None] | None = None

    def report(self, status: int) -> None:
        """Report that a message was refused."""
        if self.refused is not None:
            self.refused(status)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Watched:
    """A transport that checks the server's messages and reports when the server closes it or refuses a message."""

    def __init__(
        self,
        inner: AbstractAsyncContextManager[TransportStreams],
        ended: Callable[[], None],
        refused: Callable[[int], None],
    ) -> None:
        self._inner = inner
        self._ended = ended
        self._refused = refused

    async def __aenter__(self) -> TransportStreams:
        read, write = await self._inner.__aenter__()
        if isinstance(read, ReportingStream):
            read.refused = self._refused
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


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _http_status(error: BaseException) -> int | None:
    match _first(error):
        case MCPError() as refused:
            return status_of(refused)
        case httpx2.HTTPStatusError(response=response):
            return int(response.status_code)
        case _:
            return None


def reason(error: BaseException) -> str:
    """A description of the failure that may be shown to clients: without URLs, paths and headers."""
    error = _first(error)
    match error:
        case ServerFailure():
            return str(error)
        case MCPError(code=code, message=message) if code == PARSE_ERROR and message.startswith(
            _UNREADABLE
        ):
            return "its answer is not a valid message of the protocol"
        case MCPError() if (status := status_of(error)) is not None:
            said = error.message[:LONGEST_MESSAGE]
            return (
                f"{said} ({described(status)})" if said else f"it answered with {described(status)}"
            )
        case MCPError():
            return error.message[:LONGEST_MESSAGE]
        case httpx2.HTTPStatusError():
            return f"it answered with {described(error.response.status_code)}"
        case httpx2.TimeoutException():
            return "it did not answer in time"
        case httpx2.ConnectError() if str(error).startswith("refused: "):
            return str(error).removeprefix("refused: ")
        case httpx2.ProxyError():
            return "the proxy that HTTPS_PROXY names made no connection to it"
        case httpx2.ConnectError():
            return "no connection could be made"
        case httpx2.TransportError() | httpx2.StreamError():
            return "the connection broke"
        case FileNotFoundError() | PermissionError():
            return "its program could not be started"
        case _:
            return f"it does not hold to the protocol ({type(error).__name__})"
