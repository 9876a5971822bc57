"""Answers as ASGI applications: JSON, errors, and the stream and the plain answer of a running response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

from gateway.errors import GatewayError
from gateway.run import ResponseRun
from gateway.served import Services
from gateway.wire.common import encode
from gateway.wire.events import SSE_DONE, Event, sse_frame, sse_frame_of
from gateway.wire.response import ErrorBody, ErrorEnvelope

JSON = "application/json"
SSE_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


def json_answer(body: object, *, status: int = 200) -> ASGIResponse:
    """`body`, a wire Struct, as JSON."""
    return ASGIResponse(body=encode(body), media_type=JSON, status_code=status)


def error_body(error: GatewayError) -> bytes:
    """`error` in OpenAI's envelope."""
    body = ErrorBody(message=error.message, type=error.type, param=error.param, code=error.code)
    return encode(ErrorEnvelope(error=body))


def error_answer(error: GatewayError) -> ASGIResponse:
    """`error` as an answer, with its own status and headers."""
    return ASGIResponse(
        body=error_body(error), media_type=JSON, status_code=error.status, headers=error.headers
    )


class ClientGone:
    """Listens for the client's leaving beside a run, and cancels the run when it happens."""

    def __init__(self) -> None:
        self.left = False

    @asynccontextmanager
    async def watch(self, receive: Receive) -> AsyncIterator[None]:
        """While inside, `http.disconnect` cancels the current task; the cancellation ends at this context's edge."""
        task = asyncio.current_task()
        assert task is not None, "ASGI applications run in a task"
        watcher = asyncio.ensure_future(self._listen(receive, task))
        try:
            yield
        except asyncio.CancelledError:
            if not self.left or task.uncancel() > 0:
                raise
        finally:
            watcher.cancel()

    async def _listen(self, receive: Receive, task: asyncio.Task[object]) -> None:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.left = True
                task.cancel()
                return


class EventStream:
    """A run's events as server-sent events, ended by `[DONE]`; what is ready at once is one write."""

    def __init__(self, run: ResponseRun) -> None:
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        metrics = self._run.services.metrics

        async def write(events: Sequence[Event]) -> None:
            await send(
                {
                    "type": "http.response.body",
                    "body": sse_frame(events[0])
                    if len(events) == 1
                    else b"".join(map(sse_frame, events)),
                    "more_body": True,
                }
            )

        metrics.stream_opened()
        try:
            async with ClientGone().watch(receive):
                await send(
                    {
                        "type": "http.response.start",
                        "status": 200,
                        "headers": SSE_HEADERS,
                    }
                )
                await self._run.run(write)
                await send({"type": "http.response.body", "body": SSE_DONE, "more_body": False})
        finally:
            self._run.abandon()
            metrics.stream_closed()


class LogStream:
    """A background response's event log as server-sent events: what is logged, then what comes, to its end."""

    def __init__(self, services: Services, response_id: str, *, after: int = -1) -> None:
        self._services = services
        self._response_id = response_id
        self._after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        store, metrics = self._services.store, self._services.metrics
        assert store is not None, "only what is stored has a log"
        metrics.stream_opened()
        try:
            async with ClientGone().watch(receive):
                await send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
                log = store.read_events(self._response_id, after=self._after)
                async with aclosing(log) as batches:
                    async for batch in batches:
                        body = b"".join(map(sse_frame_of, batch))
                        await send({"type": "http.response.body", "body": body, "more_body": True})
                await send({"type": "http.response.body", "body": SSE_DONE, "more_body": False})
        finally:
            metrics.stream_closed()


class PlainAnswer:
    """A run's final response as one JSON body; an error's envelope and status where it failed."""

    def __init__(self, run: ResponseRun) -> None:
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with ClientGone().watch(receive):
                response = await self._run.run(_discard)
                if self._run.error is not None:
                    answer = error_answer(self._run.error)
                else:
                    answer = json_answer(response)
                await answer(scope, receive, send)
        finally:
            self._run.abandon()


async def _discard(events: Sequence[Event]) -> None:
    """The plain answer is the final response; nobody reads the events on the way."""
