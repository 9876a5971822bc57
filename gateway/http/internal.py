"""Requests that the gateway sends to itself, within the process, for work for which no client waits."""

from __future__ import annotations

import asyncio
from typing import Any

from litestar.types import ASGIApp, HTTPScope, Message

from gateway.base.errors import EngineError
from gateway.http.state import CONTEXT, is_clean_id
from gateway.observe.request_context import RequestContext
from gateway.plugins.protocols import InternalAnswer
from gateway.wire.ids import new_id


class InternalRequests:
    """Calls an ASGI application as a server does. Implements `gateway.services.SendInternal`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(
        self, path: str, body: bytes, *, context: RequestContext, max_bytes: int
    ) -> InternalAnswer:
        exchange = _Exchange(body, max_bytes)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
        ]
        if is_clean_id(context.id.encode()):
            headers.append((b"x-request-id", context.id.encode()))
        else:
            context.id = new_id("req_")
        scope: Any = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": None,
            "server": None,
            "state": {},
            CONTEXT: context,
        }
        await self._run(scope, exchange)
        return exchange.answer()

    async def _run(self, scope: HTTPScope, exchange: _Exchange) -> None:
        await self._app(scope, exchange.receive, exchange.send)


class _Exchange:
    """The server's side of ASGI for one request and its answer."""

    def __init__(self, body: bytes, max_bytes: int) -> None:
        self._body: bytes | None = body
        self._max_bytes = max_bytes
        self._status = 0
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._size = 0
        self._complete = asyncio.Event()

    async def receive(self) -> Any:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        # ASGI servers send this when the client disconnects, and when the answer is complete.
        await self._complete.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in message["headers"]
            }
        elif message["type"] == "http.response.body":
            part = message.get("body", b"")
            self._size += len(part)
            if self._size > self._max_bytes:
                self._parts.clear()
                self._complete.set()  # for the application, the client has disconnected
                return
            self._parts.append(part)
            if not message.get("more_body", False):
                self._complete.set()

    def answer(self) -> InternalAnswer:
        if self._size > self._max_bytes:
            raise EngineError(f"The answer is larger than the limit of {self._max_bytes} bytes.")
        return InternalAnswer(
            status=self._status, headers=self._headers, body=b"".join(self._parts)
        )
