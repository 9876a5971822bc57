"""Streamed answers as ASGI applications: one way of the bytes of a run to its client."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import ClassVar

from litestar.types import ASGIApp, Receive, Scope, Send

from gateway.errors import GatewayError
from gateway.loop.run_scope import RunScope
from gateway.loop.sinks import ACCEPTED, MAX_HELD_SECONDS
from gateway.responses.run import ResponseRun
from gateway.responses.turns import Ready
from gateway.routes.answers import SSE_HEADERS, answered_by, direct, error_answer, while_connected
from gateway.routes.silence import SSE_COMMENT, Silence
from gateway.runtime.services import Services
from gateway.shared_timers import SharedTimer, SharedTimers
from gateway.uvicorn_internals.fast_path import SingleWrite, chunk_writer
from gateway.wire.event_frames import SSE_DONE, sse_frame
from gateway.wire.events import TERMINAL


class StreamBody:
    """The body of a streamed answer. Its head leaves in one write with its first part."""

    __slots__ = (
        "_beginning",
        "_headers",
        "_send",
        "_send_head",
        "_sending",
        "_timer",
        "silence",
        "write_chunk",
    )

    def __init__(
        self, send_head: Send, send: Send, headers: Callable[[], Iterable[tuple[bytes, bytes]]]
    ) -> None:
        """`headers` are asked for when the head is sent."""
        self.silence = Silence()
        self._send_head = send_head
        self._send = send
        self._headers = headers
        self._beginning = asyncio.Lock()
        self.write_chunk: Callable[[bytes], bool] | None = None
        """Set once the head is sent. Writes a part unless the client is slow to read, and returns whether it did; costs less
        than `write`."""
        self._timer: SharedTimer | None = None
        """When the body begins by itself."""
        self._sending: asyncio.Task[None] | None = None
        """Sends the head of a body that has begun by itself."""

    @property
    def begun(self) -> bool:
        """Whether the head is sent, so that the status cannot change."""
        return self.write_chunk is not None

    def write(self, part: bytes) -> Awaitable[None]:
        """Send `part`. Awaiting the result is the back-pressure; it is `ACCEPTED` where there is none."""
        write_chunk = self.write_chunk
        if write_chunk is None:
            return self._begin(part)
        if write_chunk(part):
            return ACCEPTED
        self.silence.wrote = True
        return self._send({"type": "http.response.body", "body": part, "more_body": True})

    async def open(self) -> Callable[[bytes], bool]:
        """Send the head before there is a part. Returns a function that writes a part, unless the client is slow to
        read; it returns whether it did, and costs less than `write`. Called first, if at all."""
        await self._start()
        return self._begun()

    def write_comment(self, comment: bytes) -> bool:
        """Write a comment, unless the body has not begun or the client is slow to read. Returns whether it was written."""
        return self.write_chunk is not None and self.write_chunk(comment)

    def begin_after(
        self, timers: SharedTimers, seconds: float, first_part: Callable[[], bytes]
    ) -> None:
        """Begin the body with `first_part` if it has not begun after `seconds`, nor `begin_no_more` was awaited. It is made
        then; if it is empty, the body does not begin."""
        self._timer = timers.call_later(seconds, partial(self._begin_silent, first_part))

    def _begin_silent(self, first_part: Callable[[], bytes]) -> None:
        self._timer = None
        if not self._beginning.locked() and not self.begun and (part := first_part()):
            self._sending = asyncio.create_task(self._begin(part))

    async def begin_no_more(self, *, cancel: bool = False) -> None:
        """End what `begin_after` has begun: wait for what is being sent, or `cancel` that first."""
        self._end_timer()
        sending, self._sending = self._sending, None
        if sending is not None:
            if cancel:
                sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def end(self, part: bytes) -> None:
        """Send the last part."""
        if not self.begun:
            await self._start()
        await self._send({"type": "http.response.body", "body": part, "more_body": False})

    async def _begin(self, part: bytes) -> None:
        async with self._beginning:  # output and a keep-alive may come at the same time
            if not self.begun:
                with SingleWrite(self._send):
                    await self._start()
                    await self._send(
                        {"type": "http.response.body", "body": part, "more_body": True}
                    )
                self.silence.wrote = True
                self._begun()
                return
        await self.write(part)

    def _begun(self) -> Callable[[bytes], bool]:
        self._end_timer()
        self.write_chunk = write_chunk = chunk_writer(self._send, self.silence)
        return write_chunk

    async def _start(self) -> None:
        await self._send_head(
            {"type": "http.response.start", "status": 200, "headers": [*self._headers()]}
        )


class StreamedAnswer(ABC):
    """Output that is sent as it is made. What fails before the first part is an HTTP status; later, `fail` tells it."""

    is_resumed_often: ClassVar[bool] = False
    """Whether each part that is sent resumes `make`. A generation has a task of its own, which is resumed instead."""

    def __init__(
        self,
        run_scope: RunScope | None,
        services: Services,
        *,
        headers: Iterable[tuple[bytes, bytes]] = SSE_HEADERS,
        idle_seconds: float | None = None,
    ) -> None:
        """`run_scope` is that of the run which ends with the stream, if there is one. `idle_seconds` are those of silence before `keep_alive`: None is the server's setting, 0 is never."""
        self._run_scope = run_scope
        self._services = services
        self._headers = headers
        self._idle_seconds = idle_seconds
        self._begins_silent = False

    def headers(self) -> Iterable[tuple[bytes, bytes]]:
        """The headers of the answer, with the model that answers, unless another one may still take its place."""
        model = None if self._begins_silent and self.may_change() else self.model()
        return self._headers if model is None else (*self._headers, answered_by(model))

    def model(self) -> str | None:
        """The model that answers, when something is sent; None if no model is known."""
        return None

    def may_change(self) -> bool:
        """Whether another model may still answer, as long as there is no output."""
        return False

    def begin_silent(self) -> bytes:
        """The beginning of an answer that has had nothing to send for `MAX_HELD_SECONDS`, or for `ping_interval` if that is
        shorter. It keeps clients and proxies from closing the connection. Later failures are written by `fail`. Empty: send
        nothing."""
        return SSE_COMMENT

    @abstractmethod
    async def make(self, body: StreamBody) -> bytes:
        """Make the answer, writing to `body` what is ready; returns the last bytes. Raises `GatewayError`."""

    def fail(self, error: GatewayError) -> bytes:
        """The last bytes of an answer that failed when it had begun. By default it has none: the connection breaks."""
        raise error

    def refuse(self, error: GatewayError) -> ASGIApp:
        """The answer to a request that failed before anything was sent. May raise `error`."""
        return error_answer(error)

    def keep_alive(self, body: StreamBody, comment: bytes) -> bool:
        """Break the silence of `body`; `comment` is what server-sent events have for it. Returns whether it did."""
        return body.write_comment(comment)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        metrics = self._services.metrics
        metrics.stream_opened()
        try:
            await while_connected(
                receive, self._stream(scope, receive, send), in_own_task=self.is_resumed_often
            )
        finally:
            if self._run_scope is not None:
                self._run_scope.abandon()
            metrics.stream_closed()

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = StreamBody(send, direct(scope, send), self.headers)
        seconds = self._idle_seconds
        if seconds is None:
            seconds = self._services.config.server.ping_interval
        timers = self._services.timers
        body.silence.watch(timers, partial(self.keep_alive, body), seconds)
        body.begin_after(
            timers, min(seconds or MAX_HELD_SECONDS, MAX_HELD_SECONDS), self._silent_beginning
        )
        try:
            try:
                last = await self.make(body)
            except asyncio.CancelledError:
                await body.begin_no_more(cancel=True)
                raise
            finally:
                body.silence.end()
                await body.begin_no_more()
        except GatewayError as error:
            if not body.begun:
                await self.refuse(error)(scope, receive, send)
                return
            last = self.fail(error)
        await body.end(last)

    def _silent_beginning(self) -> bytes:
        self._begins_silent = True
        return self.begin_silent()


class EventStream(StreamedAnswer):
    """The events of a response as server-sent events, ended by `[DONE]`. A failure of the run is an event too."""

    def __init__(self, run: ResponseRun) -> None:
        super().__init__(run.scope, run.services)
        self._run = run

    def model(self) -> str:
        return self._run.model.name

    def may_change(self) -> bool:
        return self._run.may_change

    def begin_silent(self) -> bytes:
        self._run.head_sent = True
        return super().begin_silent()

    async def make(self, body: StreamBody) -> bytes:
        events = _EventWriter(body)
        await self._run.run_framed(events.write)
        if self._run.refused:
            self._run.scope.raise_error()
        return events.last


class _EventWriter:
    """Writes a run's events to `body`, but for the last of them, which leave in one write with what ends the stream."""

    __slots__ = ("_body", "last")

    def __init__(self, body: StreamBody) -> None:
        self._body = body
        self.last = SSE_DONE

    def write(self, ready: Ready) -> Awaitable[None]:
        if isinstance(ready, bytes):  # nearly each token
            if (write_chunk := self._body.write_chunk) is not None and write_chunk(ready):
                return ACCEPTED
            return self._body.write(ready)
        frames = b"".join(map(sse_frame, ready))
        if isinstance(ready[-1], TERMINAL):
            self.last = frames + SSE_DONE
            return ACCEPTED
        return self._body.write(frames)
