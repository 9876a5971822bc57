"""The head of an answer: adds the headers that every answer has, and counts the answer."""

from __future__ import annotations

from typing import Any

from litestar.types import Message, Send

from gateway.access.callers import Caller
from gateway.observe.request_stats import RequestStats
from gateway.services import Services


class AnswerHead:
    """Wraps the server's `send` for one request, and completes the head of its answer."""

    __slots__ = ("_added", "_caller", "_scope", "_services", "_stats", "server_send")

    def __init__(
        self,
        scope: Any,
        server_send: Send,
        stats: RequestStats,
        caller: Caller,
        services: Services | None,
        added: list[tuple[bytes, bytes]],
    ) -> None:
        """`added` is a list of further headers. The caller may append to it until the answer begins."""
        self.server_send = server_send
        self._scope = scope
        self._stats = stats
        self._caller = caller
        self._services = services
        self._added = added

    def begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Note that the answer begins. Returns all of its headers: `headers`, and those that every answer has."""
        stats = self._stats
        taken = b"%d" % (stats.seconds * 1000)
        stats.route = str(self._scope.get("path_template") or "unmatched")
        stats.status = status
        if self._services is not None:
            self._services.metrics.request_answered(stats.route, status)
        return [
            *headers, *self._added, *self._caller.limit_headers, (b"openai-processing-ms", taken)
        ]  # fmt: skip

    async def send(self, message: Message) -> None:
        """ASGI's `send`."""
        if message["type"] == "http.response.start":
            message["headers"] = self.begin(message["status"], [*message["headers"]])
        await self.server_send(message)
