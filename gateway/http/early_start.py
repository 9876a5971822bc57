"""Starts a stream before its preparation is complete, because that can take long, for instance while its model is
loaded."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from litestar.types import ASGIApp, Receive, Scope, Send

from gateway.base.errors import GatewayError
from gateway.http.answers import SSE_HEADERS, direct, note_error
from gateway.http.connections.client_connection import chunked_connection
from gateway.http.state import HttpRequest, services_of
from gateway.http.stream_body import StreamBody
from gateway.http.streaming import SSE_COMMENT, STREAM_BODY, StreamedAnswer, keep_open

logger = logging.getLogger("gateway.http.early_start")


class EarlyStart:
    """The beginning of a streamed answer that is still being prepared.

    If preparation takes longer than a stream may be silent, the stream begins with `idle`, which is repeated after each
    further silence. The `StreamedAnswer` that answers the request then continues this stream.
    """

    __slots__ = ("_body", "_fail", "_request")

    def __init__(
        self,
        request: HttpRequest,
        *,
        fail: Callable[[GatewayError], bytes],
        idle: bytes = SSE_COMMENT,
        headers: Iterable[tuple[bytes, bytes]] = SSE_HEADERS,
        idle_seconds: float | None = None,
    ) -> None:
        """`fail` returns the last bytes of a stream that has begun and whose preparation fails. `headers` and
        `idle_seconds`: see `StreamedAnswer`."""
        self._request, self._fail = request, fail
        self._body = StreamBody(
            request.send,
            direct(request.scope, request.send),
            lambda: headers,
            chunked_connection(request.scope),
        )
        keep_open(self._body, services_of(request), idle_seconds, lambda: idle)
        scope: Any = request.scope
        scope[STREAM_BODY] = self._body

    async def answered(self, answer: ASGIApp) -> ASGIApp:
        """Return `answer`, which continues the stream. If `answer` is not a `StreamedAnswer` although the stream has
        begun, returns the end of a failed stream."""
        if not isinstance(answer, StreamedAnswer):
            if await self._body.has_begun():
                return await self.failed(TypeError(f"a stream was announced, and {answer} answers"))
            self._end()
        return answer

    async def failed(self, error: BaseException) -> ASGIApp:
        """The end of the stream, if it has begun. Otherwise raises `error`, the failure of the preparation."""
        self._end()
        try:
            if not isinstance(error, Exception) or not await self._body.has_begun():
                await self._body.close()
                raise error
            if not isinstance(error, GatewayError):
                logger.error("unexpected error", exc_info=error)
                error = GatewayError("The server had an internal error on this request.")
            note_error(error)
            return _Ending(self._body, self._fail(error))
        finally:
            del error  # breaks a reference cycle with this frame, if it was raised here

    def _end(self) -> None:
        scope: Any = self._request.scope
        scope.pop(STREAM_BODY, None)


async def started_early(
    request: HttpRequest, prepared: Awaitable[ASGIApp], *, fail: Callable[[GatewayError], bytes]
) -> ASGIApp:
    """Await `prepared`, and return its streamed answer. The stream may begin before that; see `EarlyStart`."""
    early = EarlyStart(request, fail=fail)
    try:
        return await early.answered(await prepared)
    except BaseException as error:
        return await early.failed(error)


class _Ending:
    """The end of a stream that has begun, as an ASGI application."""

    def __init__(self, body: StreamBody, last: bytes) -> None:
        self._body, self._last = body, last

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._body.end(self._last)
        finally:
            await self._body.close()
