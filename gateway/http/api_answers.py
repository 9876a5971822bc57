"""Answers of plugins' APIs as ASGI applications."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

from litestar.types import ASGIApp, Receive, Scope, Send

from gateway.answers.apis.output import ApiAnswer
from gateway.base.errors import GatewayError
from gateway.generation.sinks import ACCEPTED
from gateway.http.answers import PlainAnswer, answered_by
from gateway.http.body_slices import send_body
from gateway.http.stream_body import StreamBody
from gateway.http.streaming import ByteStream
from gateway.plugins.protocols import Reply


class ApiStream(ByteStream):
    """Streams the bytes of an answer. A failure before the first byte is raised. A later failure is written by the
    API's writer."""

    def __init__(
        self,
        answer: ApiAnswer,
        *,
        headers: Mapping[str, str],
        content_type: str,
        idle_seconds: float | None,
    ) -> None:
        super().__init__(
            answer,
            headers=stream_headers(headers, content_type),
            idle_seconds=idle_seconds or 0.0,
        )
        self._api_answer = answer

    async def make(self, body: StreamBody) -> bytes | None:
        await self._api_answer.prepare_alone()
        return await self._api_answer.run(body.write)

    def refuse(self, error: GatewayError) -> ASGIApp:
        return _raised(error)

    def fail(self, error: GatewayError) -> bytes:
        return super().fail(error) + self._api_answer.output.writer.fail(error)

    def keep_alive(self) -> bytes:
        return self._api_answer.output.writer.idle()


def plain_api_answer(
    answer: ApiAnswer, *, headers: Mapping[str, str], content_type: str
) -> PlainAnswer:
    """Sends all bytes of an answer as one body. Failures are raised."""

    async def make() -> ASGIApp:
        parts: list[bytes] = []

        def keep(part: bytes) -> Awaitable[None]:
            parts.append(part)
            return ACCEPTED

        await answer.prepare_alone()
        end = await answer.run(keep)
        answer.scope.raise_error()
        parts.append(end or b"")
        name, model = answered_by(answer.model.name)
        shown = {**headers, name.decode(): model.decode()}
        return ReplyAnswer(Reply(body=b"".join(parts), headers=shown, content_type=content_type))

    return PlainAnswer(answer.scope, make, refuse=_raised)


def _raised(error: GatewayError) -> ASGIApp:
    """Raise `error`, because the API's routes format errors."""
    raise error


class ReplyAnswer:
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
        await send_body(send, reply.body)


def stream_headers(headers: Mapping[str, str], content_type: str) -> list[tuple[bytes, bytes]]:
    """The headers of a stream: `headers`, which the API adds, and those that every stream has."""
    own = {
        "content-type": content_type,
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
    }
    return encoded_headers({**headers, **own})


def encoded_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Headers in the form that ASGI requires."""
    return [
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
    ]
