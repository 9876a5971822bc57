"""A front's answers as ASGI applications."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from litestar.types import Receive, Scope, Send

from gateway.loop.choices import AnswerRun
from gateway.protocols import AnswerWriter, Reply
from gateway.routes.answers import direct, while_connected
from gateway.routes.chunks import chunk_writer


class StreamedAnswer:
    """A run's bytes as they come. What fails before the first of them is raised; later the writer tells it."""

    def __init__(
        self,
        run: AnswerRun,
        writer: AnswerWriter,
        *,
        headers: Mapping[str, str],
        content_type: str,
        idle_seconds: float | None,
    ) -> None:
        self._run = run
        self._writer = writer
        self._headers = {
            **headers,
            "content-type": content_type,
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
        }
        self._idle_seconds = idle_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        metrics = self._run.services.metrics
        metrics.stream_opened()
        try:
            await while_connected(receive, self._stream(scope, send))
        finally:
            self._run.abandon()
            metrics.stream_closed()

    async def _stream(self, scope: Scope, send: Send) -> None:
        body = _Body(send, direct(scope, send), encoded_headers(self._headers))
        async with self._kept_alive(body):
            rest = await self._run.run(body.write)
        if (error := self._run.error) is not None:
            if not body.begun:
                raise error
            rest = self._writer.fail(error)
        await body.end(rest)

    @asynccontextmanager
    async def _kept_alive(self, body: _Body) -> AsyncIterator[None]:
        if self._idle_seconds is None:
            yield
            return
        watching = asyncio.create_task(self._break_silence(body, self._idle_seconds))
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    async def _break_silence(self, body: _Body, seconds: float) -> None:
        while True:
            body.wrote = False
            await asyncio.sleep(seconds)
            if not body.wrote and (sign := self._writer.idle()):
                await body.write(sign)


class _Body:
    """The body of a streamed answer; its head is sent with its first part."""

    def __init__(self, send: Send, send_part: Send, headers: list[tuple[bytes, bytes]]) -> None:
        self.begun = False
        self.wrote = False
        """Whether anything was written since somebody last looked."""
        self._send = send
        self._send_part = send_part
        self._headers = headers
        self._write_chunk = chunk_writer(send_part)
        self._beginning = asyncio.Lock()

    async def write(self, part: bytes) -> None:
        self.wrote = True
        if not self.begun:
            await self._begin()
        if not self._write_chunk(part):
            await self._send_part({"type": "http.response.body", "body": part, "more_body": True})

    async def end(self, part: bytes) -> None:
        if not self.begun:
            await self._begin()
        await self._send_part({"type": "http.response.body", "body": part, "more_body": False})

    async def _begin(self) -> None:
        async with self._beginning:
            if not self.begun:
                await self._send(
                    {"type": "http.response.start", "status": 200, "headers": self._headers}
                )
                self.begun = True


class WholeAnswer:
    """All of a run's bytes as one body; what fails is raised."""

    def __init__(self, run: AnswerRun, *, headers: Mapping[str, str], content_type: str) -> None:
        self._run = run
        self._headers = headers
        self._content_type = content_type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts: list[bytes] = []

        async def keep(part: bytes) -> None:
            parts.append(part)

        async def answer() -> None:
            parts.append(await self._run.run(keep))
            if self._run.error is not None:
                raise self._run.error
            body = b"".join(parts)
            reply = Reply(body=body, headers=self._headers, content_type=self._content_type)
            await SentReply(reply)(scope, receive, send)

        try:
            await while_connected(receive, answer())
        finally:
            self._run.abandon()


class SentReply:
    """A reply as an ASGI application."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = self.reply
        headers = encoded_headers(
            {
                **reply.headers,
                "content-type": reply.content_type,
                "content-length": str(len(reply.body)),
            }
        )
        start: Any = {"type": "http.response.start", "status": reply.status, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": reply.body, "more_body": False})


def encoded_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI takes them."""
    return [
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
    ]
