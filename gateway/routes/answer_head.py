"""The head of an answer: the headers that every answer has, and counting it."""

from __future__ import annotations

from typing import Any

from litestar.types import Message, Send

from gateway.request_stats import RequestStats
from gateway.runtime.callers import Caller
from gateway.runtime.services import Services


class AnswerHead:
    """Completes the head of the answer to one request, in front of the server's `send`."""

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
        """`added` are headers of the answer, to which more may be appended until it begins."""
        self.server_send = server_send
        self._scope = scope
        self._stats = stats
        self._caller = caller
        self._services = services
        self._added = added

    def begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Note that the answer begins. Returns its headers, of which `headers` are its own."""
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
