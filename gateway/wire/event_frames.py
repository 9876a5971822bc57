"""Events on the wire: messages of a server-sent stream or of a WebSocket."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from gateway.wire.common import ENCODER, Tagged, Value
from gateway.wire.events import EVENTS, TERMINAL, AnyEvent, Event
from gateway.wire.response import ErrorBody

SSE_DONE = b"data: [DONE]\n\n"
"""Ends every SSE stream, after the terminal event (Open Responses requires it)."""

_encode = ENCODER.encode
_PREFIXES: dict[type[Event], bytes] = {
    cls: f"event: {name}\ndata: ".encode() for name, cls in EVENTS.items()
}
_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(AnyEvent)


def sse_frame(event: Event) -> bytes:
    """Encode the event as one SSE message. JSON has no raw newlines, so one `data:` line is enough."""
    return _PREFIXES[type(event)] + _encode(event) + b"\n\n"


def sse_frame_of(encoded: bytes) -> bytes:
    """Frame an event that `encode` has written as one SSE message, without decoding it."""
    start = encoded.index(b'"type":"') + 8
    return b"event: %b\ndata: %b\n\n" % (encoded[start : encoded.index(b'"', start)], encoded)


_LAST_TYPES = frozenset(str(each.__struct_config__.tag).encode() for each in TERMINAL)


def ends_stream(encoded: bytes) -> bool:
    """Whether an event that `encode` has written is the last of its stream, without decoding it."""
    start = encoded.index(b'"type":"') + 8
    return encoded[start : encoded.index(b'"', start)] in _LAST_TYPES


def json_of_frame(frame: bytes) -> bytes:
    """Extract the event's JSON from its SSE message."""
    return frame[frame.index(b"\n") + 7 : -2]  # after "event: …" comes "data: "


def decode_event(raw: bytes | str) -> AnyEvent:
    """Decode an event from the JSON of its `data:` line, or from an event log."""
    event: AnyEvent = _DECODER.decode(raw)
    return event


class WebSocketError(Tagged, frozen=True, kw_only=True, tag="error"):
    """An error on a WebSocket, in nested form with the HTTP status and the headers that it would have had, of which Codex reads
    `retry-after`."""

    status: int
    error: ErrorBody
    headers: dict[str, str] | UnsetType = UNSET
    sequence_number: int | UnsetType = UNSET
    stream_id: str | UnsetType = UNSET


class SteerError(Value, frozen=True, kw_only=True):
    type: Literal["invalid_request_error"] = "invalid_request_error"
    code: Literal["response_not_found", "steering_not_supported"]
    message: str


class Steer(Value, frozen=True, kw_only=True):
    """What the client sent to steer a response, unchanged."""

    previous_response_id: str
    input: msgspec.Raw


class SteerFailed(Tagged, frozen=True, kw_only=True, tag="response.steer.failed"):
    """The answer to `response.steer` on a WebSocket. It is no event of the response, so it has no place in its sequence."""

    error: SteerError
    steer: Steer
    sequence_number: int = 0
    stream_id: str | UnsetType = UNSET


def websocket_frame(event: Event, stream_id: str | None = None) -> bytes:
    """Encode the event as one WebSocket text message, with the lane if the client has named one."""
    data = _encode(event)
    if stream_id is None:
        return data
    return b'%b,"stream_id":%b}' % (data[:-1], _encode(stream_id))
