"""Answers as ASGI applications: JSON, errors, and the answer of a run in one body."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache
from types import TracebackType
from typing import Any
from urllib.parse import quote

from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp, Receive, Scope, Send

from gateway.answers.run_scope import RunScope
from gateway.base.errors import GatewayError
from gateway.http.body_slices import SLICE, send_body
from gateway.http.connections.client_connection import connection_of
from gateway.observe.request_context import current_context
from gateway.wire.common import encode
from gateway.wire.response import error_body

JSON = "application/json"
DIRECT_SEND = "gateway.send"
"""The scope key of the server's own `send`."""
SSE_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
"""A tuple, because the framework's layers append their own headers to a list that they receive."""


@lru_cache(1024)
def answered_by(model: str) -> tuple[bytes, bytes]:
    """The header with the name of the model that answered. Characters that are not allowed in a header are
    percent-encoded."""
    return b"x-litegate-model", quote(model, safe=" !#$&'()*+,/:;=?@[]~").encode()


class JsonAnswer:
    """An answer of encoded JSON. It skips the framework's handling of headers and cookies."""

    def __init__(self, body: bytes, status: int, model: str | None = None) -> None:
        """`model` is the one that answered, if any."""
        self.body = body
        self._status = status
        self._model = model

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(self.body)),
        ]
        if self._model is not None:
            headers.append(answered_by(self._model))
        body = self.body
        more = len(body) > SLICE
        start: Any = {"type": "http.response.start", "status": self._status, "headers": headers}
        send_directly = direct(scope, send)
        await send(start)
        await send_directly({"type": "http.response.body", "body": body[:SLICE], "more_body": more})
        if more:
            await send_body(send_directly, body, at=SLICE)


def json_answer(body: object, *, status: int = 200, model: str | None = None) -> JsonAnswer:
    """`body`, a wire Struct, as JSON. `model` is the one that answered, if any."""
    return JsonAnswer(encode(body), status, model)


def note_error(error: GatewayError) -> None:
    """Note that the current request is answered with `error`."""
    request = current_context()
    if request is not None:
        request.error_code = error.code or error.type


def error_answer(error: GatewayError) -> ASGIResponse:
    """`error` as an answer, with its own status and headers."""
    note_error(error)
    return ASGIResponse(
        body=error_body(error), media_type=JSON, status_code=error.status, headers=error.headers
    )


class WhileConnected:
    """A context manager that cancels the calling task if the client disconnects. The cancellation ends with the
    context."""

    __slots__ = ("_connection", "_left", "_receive", "_task", "_unwatch")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        """The request's body must have been read before."""
        self._connection = connection_of(scope)
        self._receive = receive
        self._left = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "ASGI applications run in a task"
        self._task = task
        self._unwatch: Callable[[], object] | None = None
        if self._connection is not None:
            self._unwatch = self._connection.on_disconnect(self._leave)
            if self._unwatch is None:
                # It is lost already. The server may not tell a pipelined request.
                self._unwatch = asyncio.get_running_loop().call_soon(self._leave).cancel
        if self._unwatch is None:
            self._unwatch = asyncio.create_task(self._listen()).cancel

    def __exit__(
        self,
        kind: type[BaseException] | None,
        cause: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        unwatch, self._unwatch = self._unwatch, None  # breaks a reference cycle
        if unwatch is not None:
            unwatch()
        if not self._left:
            return False
        request = current_context()
        if request is not None:
            request.client_left = True
        return isinstance(cause, asyncio.CancelledError) and not self._task.uncancel()

    def _leave(self) -> None:
        self._left = True
        self._task.cancel()

    async def _listen(self) -> None:
        """Wait for `http.disconnect`. ASGI servers send it when the client disconnects, and when the answer is
        complete."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()


def direct(scope: Scope, send: Send) -> Send:
    """The server's own `send`. It bypasses the layers that only handle the start of an answer."""
    found: Send = scope.get(DIRECT_SEND, send)  # type: ignore[assignment]  # ASGI scopes may hold more
    return found


class PlainAnswer:
    """The answer of a run as one body, or the run's error with its status. The run ends if the client disconnects."""

    def __init__(
        self,
        run_scope: RunScope,
        make: Callable[[], Awaitable[ASGIApp]],
        *,
        refuse: Callable[[GatewayError], ASGIApp] = error_answer,
    ) -> None:
        """`make` executes the run and returns the answer. If it raises `GatewayError`, `refuse` returns the answer to
        that error, or raises it."""
        self._run_scope = run_scope
        self._make = make
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with WhileConnected(scope, receive):
                try:
                    answer = await self._make()
                except GatewayError as error:
                    answer = self._refuse(error)
                await answer(scope, receive, send)
        finally:
            self._run_scope.abandon()
