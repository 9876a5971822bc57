"""/v1/responses as a WebSocket: many responses over one connection. Histories that are not stored are kept for the next
request."""

from __future__ import annotations

import asyncio
import logging
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
from litestar import WebSocket, websocket
from litestar.exceptions import WebSocketDisconnect
from msgspec import UNSET, Struct

from gateway.answers.responses.answer import prepare_response
from gateway.base.errors import (
    AuthenticationError,
    GatewayError,
    InvalidRequest,
    RateLimited,
    Unsupported,
)
from gateway.http.answers import JSON, note_error
from gateway.http.client_address import CLIENT_ADDRESS
from gateway.http.state import identify_sender, services_in
from gateway.observe.request_context import RequestContext, within
from gateway.observe.request_log import log_request
from gateway.services import Services
from gateway.wire.common import encode
from gateway.wire.decoding import decode_object
from gateway.wire.event_frames import (
    Steer,
    SteerError,
    SteerFailed,
    WebSocketError,
    websocket_frame,
)
from gateway.wire.events import Event
from gateway.wire.field_errors import missing, not_among, wrong_type
from gateway.wire.ids import new_id
from gateway.wire.items import Item
from gateway.wire.large_bodies import decode_body, threaded_if_many
from gateway.wire.request import convert_response_request
from gateway.wire.response import ErrorBody, error_body

logger = logging.getLogger("gateway.websocket")

Socket: TypeAlias = WebSocket[Any, Any, Any]

MAX_LANES = 64
MAX_WAITING = 16
"""Maximum number of queued requests per lane."""


PATH = "/v1/responses"


def is_socket_path(path: str) -> bool:
    """Whether a WebSocket can be opened at `path`."""
    return path.strip("/") == PATH.strip("/")


@websocket(PATH)
async def responses_socket(socket: Socket) -> None:
    """Accept `response.create` messages until the client disconnects. Responses that are still running are then
    cancelled."""
    services = services_in(socket.app)
    try:
        principal = await identify_sender(services, socket.scope)
    except GatewayError as error:
        await refuse_handshake(error, socket.scope, socket.send, services)
        return
    request_id = new_id("req_")
    await socket.accept(headers={"x-request-id": request_id})
    services.metrics.open_streams += 1
    context = RequestContext(request_id, method="WEBSOCKET", route=PATH, principal=principal)
    try:
        with within(context):
            await _Connection(socket, services, context).serve()
    finally:
        services.metrics.open_streams -= 1


async def refuse_handshake(
    error: GatewayError, scope: Any, send: Any, services: Services | None
) -> None:
    """Reject a handshake with an HTTP error; without one if the server does not support that. The handshake is counted
    and logged like a request."""
    request_id = new_id("req_")
    if services is not None:
        route = PATH if is_socket_path(scope["path"]) else "unmatched"
        context = RequestContext(request_id, method="WEBSOCKET", route=route)
        context.client = scope.get(CLIENT_ADDRESS)
        context.status = error.status
        context.error_code = error.code or error.type
        context.enter()
        services.metrics.request_answered(route, error.status)
        log_request(context, line=services.config.server.access_log)
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 1008, "reason": ""})
        return
    headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
    headers += [(b"content-type", JSON.encode()), (b"x-request-id", request_id.encode())]
    start = {"type": "websocket.http.response.start", "status": error.status, "headers": headers}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": error_body(error)})


class _Lane:
    """A queue of requests that are processed one at a time: all requests with one `stream_id`, or all without one."""

    def __init__(self, stream_id: str | None) -> None:
        self.stream_id = stream_id
        self.waiting: deque[bytes] = deque()
        self.running: str | None = None
        """Id of the running response."""
        self.task: asyncio.Task[None] | None = None
        self.latest: dict[str, Sequence[Item]] = {}
        """Maps the id of the lane's latest response to the history up to it. Empty if that response is stored."""
        self.kept = 0
        """Size of `latest` in bytes."""

    def forget(self) -> int:
        """Drop the history. Returns its size in bytes."""
        size, self.kept, self.latest = self.kept, 0, {}
        return size


class _Begin(Struct):
    """The fields that are read from a message when it arrives. Queued messages are kept encoded, because decoded
    messages take many times as much memory."""

    type: Any = None
    stream_id: Any = None
    previous_response_id: Any = None
    input: msgspec.Raw = msgspec.Raw()
    """This and `previous_response_id` are read for `response.steer` only."""


class _Connection:
    def __init__(self, socket: Socket, services: Services, context: RequestContext) -> None:
        self._context = context
        """The context of the handshake."""
        self._socket = socket
        self._services = services
        self._lanes: dict[str | None, _Lane] = {}
        self._sending = asyncio.Lock()
        self._ending = False
        """Whether the connection has ended, so that the tasks of its lanes are being cancelled."""
        self._bytes = services.held_bytes.connection(context.owner)

    async def serve(self) -> None:
        try:
            while (message := await self._socket.receive())["type"] != "websocket.disconnect":
                text = message.get("text")
                data = message.get("bytes") if text is None else str(text).encode()
                await self._take(data if isinstance(data, bytes) else b"")
        finally:
            self._ending = True
            tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._bytes.close()

    async def _take(self, data: bytes) -> None:
        """Read one message and queue it for its lane."""
        stream_id: str | None = None
        try:
            begin = await decode_body(data, _begin)
            stream_id = _stream_id(begin.stream_id)
            if begin.type is None:
                raise missing("type", "It is 'response.create'.")
            if begin.type == "response.steer":
                await self._send(encode(self._not_steered(begin)))
                return
            if begin.type != "response.create":
                raise not_among("type", begin.type, ["response.create", "response.steer"])
            lane = self._queue_of(stream_id)
            if len(lane.waiting) >= MAX_WAITING:
                raise RateLimited(
                    f"{MAX_WAITING} requests wait on this connection already. Wait for their answers."
                )
            if not self._make_room(len(data), lane):
                raise RateLimited(
                    "The requests and histories of this connection, or of all your connections, have too many bytes for one "
                    "more. Wait for answers."
                )
        except GatewayError as error:
            await self._send_error(error, stream_id)
            return
        lane.waiting.append(data)
        if lane.task is None:
            lane.task = asyncio.create_task(self._work(lane))

    def _not_steered(self, sent: _Begin) -> SteerFailed:
        """The answer to `response.steer`. Steering is not supported, because engines do not read further input while
        they generate. The answer contains the input, so that the client can send it with the next `response.create`."""
        target = sent.previous_response_id
        if target is None:
            raise missing("previous_response_id", "It is the id of the response to steer.")
        if not isinstance(target, str):
            raise wrong_type("previous_response_id", "a string", target)
        if not bytes(sent.input):
            raise missing("input", "It is what the response is to be steered by.")
        lane = next((each for each in self._lanes.values() if each.running == target), None)
        if lane is None:
            error = SteerError(
                code="response_not_found",
                message="No response with this id runs on this connection. Send the input with response.create.",
            )
        else:
            error = SteerError(
                code="steering_not_supported",
                message="Responses are not steered on this server. Send the input with response.create, when this one has ended.",
            )
        stream_id = None if lane is None else lane.stream_id
        return SteerFailed(
            error=error,
            steer=Steer(previous_response_id=target, input=sent.input),
            stream_id=UNSET if stream_id is None else stream_id,
        )

    def _make_room(self, size: int, lane: _Lane) -> bool:
        """Reserve `size` bytes. If needed, drops histories of idle lanes, least recently used first. Returns False if
        there is too little room even then."""
        if self._bytes.take(size):
            return True
        for other in self._lanes.values():
            if other is not lane and other.task is None and other.kept:
                self._bytes.give_back(other.forget())
                if self._bytes.take(size):
                    return True
        return False

    def _queue_of(self, stream_id: str | None) -> _Lane:
        found = self._lanes.get(stream_id)
        if found is None:
            if len(self._lanes) >= MAX_LANES:
                raise RateLimited(
                    f"This connection has {MAX_LANES} stream_ids already. Use one of them again, or a new connection."
                )
            found = _Lane(stream_id)
        else:
            del self._lanes[stream_id]
        self._lanes[stream_id] = found  # moves it to the end: most recently used
        return found

    async def _work(self, lane: _Lane) -> None:
        while lane.waiting:
            data = lane.waiting.popleft()
            context, epoch = self._begin_request(data), self._services.in_progress.begin()
            try:
                await self._respond(lane, data, context)
            except GatewayError as error:
                note_error(error)
                await self._send_error(error, lane.stream_id)
            except Exception:
                # An internal error: report it to the client and keep the connection.
                logger.exception("a response over a WebSocket failed")
                internal = GatewayError("The server had an internal error on this request.")
                note_error(internal)
                await self._send_error(internal, lane.stream_id)
            except asyncio.CancelledError:
                context.client_left = True
                raise
            finally:
                self._bytes.give_back(len(data))
                context.end_span()
                self._services.in_progress.end(epoch)
                log_request(context, line=self._services.config.server.access_log)
        lane.task = None

    def _begin_request(self, data: bytes) -> RequestContext:
        """Create the context of a message, which is logged as a separate request with the connection's request id."""
        context = RequestContext(
            self._context.id, method="WEBSOCKET", route=PATH, principal=self._context.principal
        )
        scope: Any = self._socket.scope
        context.client = scope.get(CLIENT_ADDRESS)
        if self._services.content_policy is not None:
            context.content = self._services.content_policy.content()
            context.content.read(data)
        if self._services.tracer is not None:
            context.span = self._services.tracer.begin(context.method, scope["headers"])
        context.enter()
        return context

    async def _respond(self, lane: _Lane, data: bytes, context: RequestContext) -> None:
        await self._check_key(context)
        raw = await decode_body(data, decode_object)
        del raw["type"]
        raw.pop("stream_id", None)
        try:
            await self._run(lane, raw, data)
        except GatewayError:
            # As OpenAI documents: if a continuation fails, the connection forgets the response that it continues.
            if raw.get("previous_response_id") in [*lane.latest]:
                self._bytes.give_back(lane.forget())
            raise

    async def _run(self, lane: _Lane, raw: dict[str, Any], data: bytes) -> None:
        strict = self._services.strict
        request = await decode_body(data, lambda _: convert_response_request(raw, strict=strict))
        if request.background:
            raise Unsupported(
                "A response over a WebSocket does not run in the background. Send it to POST /v1/responses.",
                param="background",
            )
        self._services.unknown_parameters.report("/v1/responses", request.unknown)
        run = await prepare_response(
            request,
            self._services,
            size=len(data),
            owner=self._context.owner,
            unstored=lane.latest,
            holds=False,
        )

        unsent: deque[Event] = deque()
        """Events whose sending was cancelled, for instance by a deadline while the client is slow to read. Sent before
        the next."""

        async def write(events: Sequence[Event]) -> None:
            unsent.extend(events)
            while unsent:
                if not await self._send(websocket_frame(unsent[0], lane.stream_id)):
                    await self._cancellation()
                unsent.popleft()

        lane.running = run.output.response.id
        try:
            end = await run.run(write)
            if run.refused:
                run.scope.raise_error()
            if end:
                await write(end)
        finally:
            lane.running = None
            run.scope.abandon()
        self._bytes.give_back(lane.forget())
        plan, response = run.output.plan, run.output.response
        if not plan.store and response.status in ("completed", "incomplete"):
            await self._keep(lane, response.id, [*plan.history, *plan.input, *response.output])

    async def _check_key(self, context: RequestContext) -> None:
        """Raise `AuthenticationError` if the connection's key has been revoked, has expired, or now has another owner.
        Other changes of the key take effect."""
        principal = await identify_sender(self._services, self._socket.scope)
        if (None if principal is None else principal.name) != self._context.owner:
            raise AuthenticationError(
                "The API key of this connection has another name by now. Open a new connection."
            )
        context.identified(principal)

    async def _keep(self, lane: _Lane, response_id: str, history: Sequence[Item]) -> None:
        """Keep `history` for the lane's next request, if it fits."""
        size = await threaded_if_many(history, lambda items: len(encode(items)))
        if self._make_room(size, lane):
            lane.latest, lane.kept = {response_id: history}, size

    async def _send(self, frame: bytes) -> bool:
        """Send a text message. Returns False if the client has disconnected."""
        message: Any = {"type": "websocket.send", "text": frame.decode()}
        async with self._sending:
            try:
                await self._socket.send(message)
            # uvicorn raises RuntimeError once the closing handshake has begun.
            except (OSError, WebSocketDisconnect, RuntimeError):
                return False
        return True

    async def _cancellation(self) -> None:
        """Wait until `serve` notices that the client has disconnected, and cancels this task."""
        if not self._ending:
            await asyncio.get_running_loop().create_future()
        raise asyncio.CancelledError

    async def _send_error(self, error: GatewayError, stream_id: str | None) -> None:
        socket_error = WebSocketError(
            status=error.status,
            error=ErrorBody.of(error),
            headers=dict(error.headers) or UNSET,
            stream_id=UNSET if stream_id is None else stream_id,
        )
        await self._send(encode(socket_error))


def _begin(data: bytes) -> _Begin:
    try:
        return _read_begin(data.removeprefix(BOM_UTF8))
    except (UnicodeDecodeError, RecursionError, msgspec.MsgspecError):
        decode_object(data)  # raises the same errors as for other requests
        raise InvalidRequest("The message cannot be read.", code="invalid_json") from None


_read_begin = msgspec.json.Decoder(_Begin).decode


def _stream_id(stream_id: Any) -> str | None:
    if stream_id is None or isinstance(stream_id, str):
        if stream_id is not None and not 1 <= len(stream_id) <= 64:
            raise InvalidRequest("A stream_id has 1 to 64 characters.", param="stream_id")
        return stream_id
    raise wrong_type("stream_id", "a string", stream_id)
