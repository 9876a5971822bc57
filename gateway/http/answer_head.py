"""The head of an answer: adds the headers that every answer has, and counts the answer."""

from __future__ import annotations

from typing import Any

from litestar.types import Message, Send

from gateway.observe.request_context import RequestContext
from gateway.services import Services

OPENAI_VERSION = (b"openai-version", b"2020-10-01")
"""A header that OpenAI's API sends."""


class AnswerHead:
    """Wraps the server's `send` for one request, and completes the head of its answer."""

    __slots__ = ("_context", "_scope", "_services", "server_send")

    def __init__(
        self, scope: Any, server_send: Send, context: RequestContext, services: Services | None
    ) -> None:
        self.server_send = server_send
        self._scope = scope
        self._context = context
        self._services = services

    def begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Note that the answer begins. Returns all of its headers: `headers`, and those that every answer has."""
        context = self._context
        context.route = str(self._scope.get("path_template") or "unmatched")
        context.status = status
        if self._services is not None:
            self._services.metrics.request_answered(context.route, status)
        return [
            *headers,
            (b"x-request-id", context.id.encode()),
            OPENAI_VERSION,
            *context.added_headers,
            *context.limit_headers,
            (b"openai-processing-ms", b"%d" % (context.seconds * 1000)),
        ]

    async def send(self, message: Message) -> None:
        """ASGI's `send`."""
        if message["type"] == "http.response.start":
            message["headers"] = self.begin(message["status"], [*message["headers"]])
        await self.server_send(message)
