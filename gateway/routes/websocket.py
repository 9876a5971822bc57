"""/v1/responses as a WebSocket: many responses over one connection, and what is not stored kept for its next turn."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeAlias

from litestar import WebSocket, websocket
from msgspec import UNSET

from gateway.errors import (
    AuthenticationError,
    GatewayError,
    InvalidRequest,
    PermissionDenied,
    RateLimited,
    Unsupported,
)
from gateway.responses.plan import make_plan
from gateway.responses.run import ResponseRun
from gateway.routes.answers import JSON, error_body
from gateway.routes.state import services_in
from gateway.serving.served import Services
from gateway.wire.common import encode
from gateway.wire.decoding import decode_object, missing, not_among, wrong_type
from gateway.wire.events import Event, WebSocketError, websocket_frame
from gateway.wire.ids import new_id
from gateway.wire.items import Item
from gateway.wire.request import convert_response_request
from gateway.wire.response import ErrorBody

logger = logging.getLogger("gateway.websocket")

Socket: TypeAlias = WebSocket[Any, Any, Any]

MAX_LANES = 64
MAX_WAITING = 16
"""Requests of one lane that wait for the one before them."""


@websocket("/v1/responses")
async def responses_socket(socket: Socket) -> None:
    """Take `response.create` messages until the client leaves; what still runs is ended then."""
    services = services_in(socket.app)
    try:
        _check_origin(socket, services)
        owner = services.doorkeeper.owner(socket.scope["path"], socket.scope["headers"])
    except (AuthenticationError, PermissionDenied) as error:
        await _refuse(socket, error)
        return
    await socket.accept(headers={"x-request-id": new_id("req_")})
    services.metrics.stream_opened()
    try:
        await _Connection(socket, services, owner).serve()
    finally:
        services.metrics.stream_closed()


def _check_origin(socket: Socket, services: Services) -> None:
    """A browser lets any page open a WebSocket to anywhere: whose pages may, is said as for CORS.

    The server's own origin may, as it may over HTTP: Python's websocket-client sends it without being a browser.
    """
    allowed = services.config.server.cors_allow_origins
    origin = socket.headers.get("origin")
    if origin is None or origin.partition("://")[2] == socket.headers.get("host"):
        return
    if origin not in allowed and "*" not in allowed:
        raise PermissionDenied(
            f"Pages of {origin[:100]} may not use this server. Add the origin to cors_allow_origins under [server]."
        )


async def _refuse(socket: Socket, error: GatewayError) -> None:
    """Answer the handshake with the error, as HTTP; where the server cannot, the connection is just refused."""
    if "websocket.http.response" not in (socket.scope.get("extensions") or {}):
        await socket.close()
        return
    headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
    headers += [(b"content-type", JSON.encode()), (b"x-request-id", new_id("req_").encode())]
    begin: Any = {"type": "websocket.http.response.start", "status": error.status, "headers": headers}  # fmt: skip
    body: Any = {"type": "websocket.http.response.body", "body": error_body(error)}
    await socket.send(begin)
    await socket.send(body)


class _Lane:
    """Requests that are answered one after the other: those of one `stream_id`, or of none."""

    def __init__(self, stream_id: str | None) -> None:
        self.stream_id = stream_id
        self.waiting: deque[tuple[dict[str, Any], int]] = deque()
        self.task: asyncio.Task[None] | None = None
        self.latest: dict[str, Sequence[Item]] = {}
        """The history up to the lane's latest response, by its id, where it is not stored."""


class _Connection:
    def __init__(self, socket: Socket, services: Services, owner: str | None) -> None:
        self._socket = socket
        self._services = services
        self._owner = owner
        self._lanes: dict[str | None, _Lane] = {}
        self._sending = asyncio.Lock()

    async def serve(self) -> None:
        try:
            while (message := await self._socket.receive())["type"] != "websocket.disconnect":
                text = message.get("text")
                data = message.get("bytes") if text is None else str(text).encode()
                await self._take(data if isinstance(data, bytes) else b"")
        finally:
            tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _take(self, data: bytes) -> None:
        """Read one message, and have it answered when its turn comes."""
        stream_id: str | None = None
        try:
            raw = decode_object(data)
            stream_id = _stream_id(raw)
            kind = raw.pop("type", None)
            if kind is None:
                raise missing("type", "It is 'response.create'.")
            if kind != "response.create":
                raise not_among("type", kind, ["response.create"])
            lane = self._lane(stream_id)
            if len(lane.waiting) >= MAX_WAITING:
                raise RateLimited(
                    f"{MAX_WAITING} requests wait on this connection already. Wait for their answers."
                )
        except GatewayError as error:
            await self._send_error(error, stream_id)
            return
        lane.waiting.append((raw, len(data)))
        if lane.task is None:
            lane.task = asyncio.create_task(self._work(lane))

    def _lane(self, stream_id: str | None) -> _Lane:
        found = self._lanes.get(stream_id)
        if found is None:
            if len(self._lanes) >= MAX_LANES:
                raise RateLimited(
                    f"This connection has {MAX_LANES} stream_ids already. Use one of them again, or a new connection."
                )
            found = self._lanes[stream_id] = _Lane(stream_id)
        return found

    async def _work(self, lane: _Lane) -> None:
        while lane.waiting:
            raw, size = lane.waiting.popleft()
            try:
                await self._respond(lane, raw, size)
            except GatewayError as error:
                await self._send_error(error, lane.stream_id)
            except Exception:
                # A mistake of ours: the client is told, and the connection goes on.
                logger.exception("a response over a WebSocket broke")
                internal = GatewayError("The server had an internal error on this request.")
                await self._send_error(internal, lane.stream_id)
        lane.task = None

    async def _respond(self, lane: _Lane, raw: dict[str, Any], size: int) -> None:
        request = convert_response_request(raw)
        if request.background:
            raise Unsupported(
                "A response over a WebSocket does not run in the background. Send it to POST /v1/responses.",
                param="background",
            )
        if request.unknown:
            self._services.metrics.unknown_parameters("/v1/responses")
        plan = await make_plan(
            request, self._services, size=size, owner=self._owner, unstored=lane.latest
        )
        run = ResponseRun(plan, self._services)

        async def write(events: Sequence[Event]) -> None:
            for event in events:
                await self._send(websocket_frame(event, lane.stream_id))

        try:
            await run.prepare()
            response = await run.run(write)
        finally:
            run.abandon()
        lane.latest = {}
        if not plan.store and response.status in ("completed", "incomplete"):
            lane.latest[response.id] = [*plan.history, *plan.input, *response.output]

    async def _send(self, frame: bytes) -> None:
        message: Any = {"type": "websocket.send", "text": frame.decode()}
        async with self._sending:
            await self._socket.send(message)

    async def _send_error(self, error: GatewayError, stream_id: str | None) -> None:
        body = ErrorBody(message=error.message, type=error.type, param=error.param, code=error.code)
        told = WebSocketError(
            status=error.status, error=body, stream_id=UNSET if stream_id is None else stream_id
        )
        await self._send(encode(told))


def _stream_id(raw: dict[str, Any]) -> str | None:
    stream_id = raw.get("stream_id")
    if stream_id is None or isinstance(stream_id, str):
        if stream_id is not None and not 1 <= len(stream_id) <= 64:
            raise InvalidRequest("A stream_id has 1 to 64 characters.", param="stream_id")
        return stream_id
    raise wrong_type("stream_id", "a string", stream_id)
