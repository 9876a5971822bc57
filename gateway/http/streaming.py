"""Streamed answers as ASGI applications. All streams of bytes to clients pass through here."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, ClassVar, Generic

from litestar.types import ASGIApp, Receive, Scope, Send

from gateway.answers.answer import Answer
from gateway.answers.responses.answer import ResponseAnswer
from gateway.answers.run_scope import RunScope
from gateway.base.errors import GatewayError
from gateway.generation.sinks import ACCEPTED, MAX_HELD_SECONDS
from gateway.generation.writers import OutT, Sink
from gateway.http.answers import SSE_HEADERS, WhileConnected, answered_by, direct, error_answer
from gateway.http.body_slices import SLICE
from gateway.http.connections.client_connection import chunked_connection
from gateway.http.stream_body import StreamBody
from gateway.items.builders import EventList
from gateway.services import Services
from gateway.wire.event_frames import SSE_DONE, SseEncoder
from gateway.wire.events import Event

SSE_COMMENT = b": keep-alive\n\n"
"""A comment, which clients of server-sent events ignore (WHATWG HTML, 9.2.6)."""
STREAM_BODY = "gateway.stream_body"
"""The scope key of the stream's body, if the stream may begin during its preparation (`gateway.http.early_start`)."""


def keep_open(
    body: StreamBody, services: Services, idle_seconds: float | None, sign: Callable[[], bytes]
) -> None:
    """Make `body` send the keep-alive part that `sign` returns after each silence. `idle_seconds`: see
    `StreamedAnswer`."""
    first = seconds = idle_seconds
    if seconds is None:
        seconds = services.config.server.ping_interval
        first = min(seconds or MAX_HELD_SECONDS, MAX_HELD_SECONDS)
    if first:
        body.keep_open(services.timers, first, seconds, sign)


class StreamedAnswer(ABC):
    """An answer that is sent while it is made. A failure before the first part is answered by an HTTP status. A later
    failure is reported by the bytes that `fail` returns."""

    is_resumed_often: ClassVar[bool] = False
    """Whether sending a part resumes `make` each time. `make` then runs in its own task. A generation has its own task
    anyway."""

    def __init__(
        self,
        run_scope: RunScope | None,
        services: Services,
        *,
        headers: Iterable[tuple[bytes, bytes]] = SSE_HEADERS,
        idle_seconds: float | None = None,
    ) -> None:
        """`run_scope` is the scope of the run that ends with the stream, if there is one. `idle_seconds` is the length
        of a silence after which `keep_alive` is called; 0 means never. With None it is the server's setting, but the
        answer begins after `MAX_HELD_SECONDS` at the latest."""
        self._run_scope = run_scope
        self._services = services
        self._headers = headers
        self._idle_seconds = idle_seconds
        self._begins_silent = False

    def headers(self) -> Iterable[tuple[bytes, bytes]]:
        """The headers of the answer. They name the model that answers, unless another model may still replace it."""
        model = None if self._begins_silent and self.may_change() else self.model()
        return self._headers if model is None else (*self._headers, answered_by(model))

    def model(self) -> str | None:
        """The name of the model that answers, once something is sent; None if no model is known."""
        return None

    def may_change(self) -> bool:
        """Whether another model may still answer if the current one fails before its first output."""
        return False

    def keep_alive(self) -> bytes:
        """The bytes that are sent after a silence, so that clients and proxies keep the connection open. Empty to send
        nothing. The answer may begin with them; later failures are then written by `fail`."""
        return SSE_COMMENT

    def begin_silent(self) -> None:
        """Note that the answer began before it was prepared. Later failures are written by `fail`."""
        self._begins_silent = True

    @abstractmethod
    def make(self, body: StreamBody) -> Coroutine[Any, Any, Any]:
        """Make the answer, and write its parts to `body` as they are ready. Returns the rest, which is passed to
        `last`. Raises `GatewayError`."""

    def last(self, rest: Any) -> bytes:
        """The last bytes of the answer. `rest` is the result of `make`. May raise `GatewayError`, with the same effect
        as if `make` had raised it."""
        last: bytes = rest
        return last

    def fail(self, error: GatewayError) -> bytes:
        """The last bytes of an answer that failed after it had begun. By default raises `error`, which breaks the
        connection."""
        raise error

    def refuse(self, error: GatewayError) -> ASGIApp:
        """The answer to a request that failed before anything was sent. May raise `error`."""
        return error_answer(error)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        metrics = self._services.metrics
        metrics.open_streams += 1
        body: StreamBody | None = scope.pop(STREAM_BODY, None)  # type: ignore[misc]
        if body is None:
            body = StreamBody(send, direct(scope, send), self.headers, chunked_connection(scope))
            keep_open(body, self._services, self._idle_seconds, self._sign)
        elif body.go_on(self.headers, self._sign):
            self.begin_silent()
        try:
            with WhileConnected(scope, receive):
                try:
                    work = self.make(body)
                    rest = await (asyncio.create_task(work) if self.is_resumed_often else work)
                    last = self.last(rest)
                except GatewayError as error:
                    if not await body.has_begun():
                        await self.refuse(error)(scope, receive, send)
                        return
                    last = self.fail(error)
                await body.end(last)
        finally:
            await body.close()
            if self._run_scope is not None:
                self._run_scope.abandon()
            metrics.open_streams -= 1

    def _sign(self) -> bytes:
        sign = self.keep_alive()
        self._begins_silent = self._begins_silent or bool(sign)
        return sign


class AnswerStream(StreamedAnswer, Generic[OutT]):
    """Streams an `Answer`. A failure after the first part is reported by the end of the answer."""

    def __init__(
        self,
        answer: Answer[Any, OutT, Any],
        *,
        headers: Iterable[tuple[bytes, bytes]] = SSE_HEADERS,
        idle_seconds: float | None = None,
    ) -> None:
        super().__init__(answer.scope, answer.services, headers=headers, idle_seconds=idle_seconds)
        self._answer = answer
        self._rest: OutT | None = None
        """The end of the answer, if it has failed."""

    def model(self) -> str:
        return self._answer.model.name

    def may_change(self) -> bool:
        return self._answer.may_change

    def make(self, body: StreamBody) -> Coroutine[Any, Any, OutT | None]:
        return self._answer.run(self.sink(body))

    def last(self, rest: OutT | None) -> bytes:
        if (error := self._answer.scope.error) is not None:
            self._rest = rest
            raise error
        return self.encode(rest)

    def fail(self, error: GatewayError) -> bytes:
        return self.encode(self._rest)

    @abstractmethod
    def sink(self, body: StreamBody) -> Sink[OutT]:
        """The sink that receives the answer while it is made, and writes it to `body`."""

    @abstractmethod
    def encode(self, rest: OutT | None) -> bytes:
        """The end of the answer as bytes."""


class EventStream(AnswerStream[EventList]):
    """Streams the events of a response as server-sent events, ended by `[DONE]`. A failure of the run is also an
    event."""

    def __init__(self, answer: ResponseAnswer) -> None:
        super().__init__(answer)
        self._frame = SseEncoder().frame

    def sink(self, body: StreamBody) -> Sink[EventList]:
        return _EventWriter(body, self._frame).write

    def encode(self, rest: EventList | None) -> bytes:
        return b"".join((*map(self._frame, rest or ()), SSE_DONE))


class ByteStream(AnswerStream[bytes]):
    """Streams an answer whose output is bytes already: chunks, or the output of a plugin API's writer."""

    def sink(self, body: StreamBody) -> Sink[bytes]:
        return body.write

    def encode(self, rest: bytes | None) -> bytes:
        return rest or b""


class _EventWriter:
    """Writes a response's events to `body`."""

    __slots__ = ("_body", "_frame")

    def __init__(self, body: StreamBody, frame: Callable[[Event], bytes]) -> None:
        self._body = body
        self._frame = frame

    def write(self, events: EventList) -> Awaitable[None]:
        part = self._frame(events[0])
        if len(events) == 1:  # the case of nearly every token
            if (write_chunk := self._body.write_chunk) is not None and write_chunk(part):
                return ACCEPTED
            return self._body.write(part)
        if len(part) > SLICE:
            return self._write_each(part, events[1:])
        return self._body.write(b"".join((part, *map(self._frame, events[1:]))))

    async def _write_each(self, first: bytes, others: Sequence[Event]) -> None:
        """Write large events one after the other. `first` is the frame of the event before `others`."""
        left = iter(others)
        try:
            await self._body.write(first)
            for event in left:
                await self._body.write(self._frame(event))
        except asyncio.CancelledError:
            self._body.write_later(b"".join(map(self._frame, left)))
            raise
