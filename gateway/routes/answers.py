"""Answers as ASGI applications: JSON, errors, and the stream and the plain answer of a running response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from typing import Any

from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp, Receive, Scope, Send

from gateway.errors import GatewayError, StoreUnavailable
from gateway.loop.sinks import TAKEN
from gateway.responses.live_log import LiveLog
from gateway.responses.run import Ready, ResponseRun
from gateway.routes.chunks import OneWrite, Silence, chunk_writer
from gateway.serving.served import Services
from gateway.wire.common import encode
from gateway.wire.events import SSE_DONE, TERMINAL, Event, sse_frame, sse_frame_of
from gateway.wire.response import ErrorBody, ErrorEnvelope, Response

JSON = "application/json"
DIRECT_SEND = "gateway.send"
"""Where the application keeps the server's own `send` in a request's scope."""
STORE_RETRY_SECONDS = 0.5
"""How long a stream waits before it asks a store that is away again."""
SSE_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
"""A tuple: layers of the framework write their own headers into the list that they are handed."""


class JsonAnswer:
    """JSON that is encoded already, without the headers and cookies that the framework's own answers look for."""

    def __init__(self, body: bytes, status: int) -> None:
        self.body = body
        self._status = status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(self.body)),
        ]
        start: Any = {"type": "http.response.start", "status": self._status, "headers": headers}
        with OneWrite(direct(scope, send)):
            await send(start)
            await send({"type": "http.response.body", "body": self.body, "more_body": False})


def json_answer(body: object, *, status: int = 200) -> JsonAnswer:
    """`body`, a wire Struct, as JSON."""
    return JsonAnswer(encode(body), status)


def error_body(error: GatewayError) -> bytes:
    """`error` in OpenAI's envelope."""
    body = ErrorBody(message=error.message, type=error.type, param=error.param, code=error.code)
    return encode(ErrorEnvelope(error=body))


def error_answer(error: GatewayError) -> ASGIResponse:
    """`error` as an answer, with its own status and headers."""
    return ASGIResponse(
        body=error_body(error), media_type=JSON, status_code=error.status, headers=error.headers
    )


async def while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Do `work` in a task of its own, and cancel it if the client leaves before it is done.

    This task listens: `http.disconnect` comes when the client has gone, and also when the answer is complete (ASGI).
    The work has the short stack of a new task, which is resumed for every token; the long one of the framework waits.
    """
    listening = asyncio.current_task()
    assert listening is not None, "ASGI applications run in a task"

    def stop_listening(working: asyncio.Task[None]) -> None:
        if not working.cancelled() and working.exception() is not None:
            listening.cancel()

    working = asyncio.create_task(work)
    working.add_done_callback(stop_listening)
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    except asyncio.CancelledError:
        if not working.done() or working.cancelled():
            raise
        listening.uncancel()  # it was the work that broke: its exception is raised below
    finally:
        working.cancel()  # of no effect where it is done
        with suppress(asyncio.CancelledError):
            await working


def direct(scope: Scope, send: Send) -> Send:
    """The server's own `send`, without the layers that only look at an answer's beginning."""
    found: Send = scope.get(DIRECT_SEND, send)  # type: ignore[assignment]  # ASGI scopes may hold more
    return found


class EventStream:
    """A run's events as server-sent events, ended by `[DONE]`; what is ready at once is one write."""

    def __init__(self, run: ResponseRun) -> None:
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        metrics = self._run.services.metrics
        metrics.stream_opened()
        try:
            await while_connected(receive, self._stream(send, direct(scope, send)))
        finally:
            self._run.abandon()
            metrics.stream_closed()

    async def _stream(self, send_head: Send, send: Send) -> None:
        silence = Silence()
        write_chunk: Callable[[bytes], bool] | None = None
        end = SSE_DONE

        async def begin(body: bytes) -> None:
            nonlocal write_chunk
            with OneWrite(send):
                await send_head(
                    {"type": "http.response.start", "status": 200, "headers": [*SSE_HEADERS]}
                )
                await send({"type": "http.response.body", "body": body, "more_body": True})
            write_chunk = chunk_writer(send, silence)

        def write(ready: Ready) -> Awaitable[None]:
            nonlocal end
            if isinstance(ready, bytes):
                body = ready
            else:
                body = b"".join(map(sse_frame, ready))
                if isinstance(ready[-1], TERMINAL):  # leaves in one write with what ends the stream
                    end = body + SSE_DONE
                    return TAKEN
            if write_chunk is None:
                return begin(body)
            if write_chunk(body):
                return TAKEN
            return send({"type": "http.response.body", "body": body, "more_body": True})

        def break_silence(comment: bytes) -> bool:
            return write_chunk is not None and write_chunk(comment)

        with silence.broken(break_silence, self._run.services.config.server.ping_interval):
            await self._run.run_framed(write)
        await send({"type": "http.response.body", "body": end, "more_body": False})


class LogStream:
    """A background response's event log as server-sent events: what is logged, then what comes, to its end."""

    def __init__(
        self,
        services: Services,
        response_id: str,
        *,
        after: int = -1,
        live: LiveLog | None = None,
    ) -> None:
        """`live` has the events of a response that this process runs, as they come."""
        self._services = services
        self._response_id = response_id
        self._live = live
        self._at = max(after, -1)
        """The number of the last event that was sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        metrics = self._services.metrics
        metrics.stream_opened()
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [*SSE_HEADERS]})
            await while_connected(receive, self._stream(direct(scope, send)))
        finally:
            metrics.stream_closed()

    async def _stream(self, send: Send) -> None:
        silence = Silence()
        write_chunk = chunk_writer(send, silence)
        with silence.broken(write_chunk, self._services.config.server.ping_interval):
            await self._follow(send, write_chunk)
        await send({"type": "http.response.body", "body": SSE_DONE, "more_body": False})

    async def _follow(self, send: Send, write_chunk: Callable[[bytes], bool]) -> None:
        """Send all events, to the log's end."""
        live = self._live
        complete = False
        if live is not None:
            await self._copy(send, write_chunk, until=live)
            follower = await live.follow(self._at, write_chunk)
            self._at, complete = follower.at, follower.complete
        while not complete:
            try:
                await self._copy(send, write_chunk)
                complete = True
            except StoreUnavailable:
                if live is None:
                    raise
                # What was being followed has its end in the store, which comes back, or is given up by the client.
                await asyncio.sleep(STORE_RETRY_SECONDS)

    async def _copy(
        self, send: Send, write_chunk: Callable[[bytes], bool], *, until: LiveLog | None = None
    ) -> None:
        """Send the events that are stored, from where we are to the log's end, or as far as `until` has them."""
        store = self._services.store
        assert store is not None, "only what is stored has a log"
        if until is not None and until.count <= self._at + 1:
            return
        async with aclosing(store.read_events(self._response_id, after=self._at)) as batches:
            async for batch in batches:
                self._at += len(batch)
                body = b"".join(map(sse_frame_of, batch))
                if not write_chunk(body):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                if until is not None and until.count <= self._at + 1:
                    return


class PlainAnswer:
    """A run's final response as one JSON body; an error's envelope and status where it failed."""

    def __init__(
        self, run: ResponseRun, *, shown: Callable[[Response], object] | None = None
    ) -> None:
        """`shown` makes the body of the response, where that is not the response itself; it may raise `GatewayError`."""
        self._run = run
        self._shown = shown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer() -> None:
            response = await self._run.run(_discard)
            await self._answer(response)(scope, receive, send)

        try:
            await while_connected(receive, answer())
        finally:
            self._run.abandon()

    def _answer(self, response: Response) -> ASGIApp:
        if self._run.error is not None:
            return error_answer(self._run.error)
        try:
            return json_answer(response if self._shown is None else self._shown(response))
        except GatewayError as error:
            return error_answer(error)


def _discard(events: Sequence[Event]) -> Awaitable[None]:
    """The plain answer is the final response; nobody reads the events on the way."""
    return TAKEN
