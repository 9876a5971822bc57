"""Events on the wire: messages of a server-sent stream or of a WebSocket."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from gateway.wire.common import ENCODER, Tagged, Value
from gateway.wire.events import (
    EVENTS,
    TERMINAL,
    AnyEvent,
    Event,
    OutputTextDelta,
    ReasoningTextDelta,
)
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


class SseEncoder:
    """Encodes the events of one stream as server-sent events.

    Nearly every event continues the text of the event before. Their frames differ only in the sequence number and the
    text, so the rest of the frame is kept.
    """

    __slots__ = ("_content_index", "_head", "_item_id", "_middle", "_tail")

    def __init__(self) -> None:
        self._item_id = ""
        """Item of the last text delta; "" if there was none."""
        self._content_index = 0
        self._head = b""
        """The frame of a text delta of that item, up to the sequence number; empty while it is not known."""
        self._middle = b""
        """The part of the frame between the sequence number and the text."""
        self._tail = b""
        """The part of the frame after the text."""

    def frame(self, event: Event) -> bytes:
        """Encode the event like `sse_frame`. Called for every token."""
        kind = type(event)
        if (kind is not OutputTextDelta or event.logprobs) and kind is not ReasoningTextDelta:  # type: ignore[attr-defined]
            return _PREFIXES[kind] + _encode(event) + b"\n\n"
        delta: OutputTextDelta | ReasoningTextDelta = event  # type: ignore[assignment]
        if delta.item_id is not self._item_id or delta.content_index != self._content_index:
            self._item_id, self._content_index, self._head = delta.item_id, delta.content_index, b""
            return sse_frame(event)
        if not self._head:
            self._keep_frame(delta)
        return b"%b%d%b%b%b" % (
            self._head,
            delta.sequence_number,
            self._middle,
            _encode(delta.delta),
            self._tail,
        )

    def _keep_frame(self, delta: OutputTextDelta | ReasoningTextDelta) -> None:
        """Keep the parts that all frames of one text's deltas have in common."""
        sample = sse_frame(msgspec.structs.replace(delta, sequence_number=0, delta=""))
        head, rest = sample.split(b'"sequence_number":0', 1)
        middle, tail = rest.rsplit(b'"delta":""', 1)
        head += b'"sequence_number":'
        # The middle differs between items. Head and tail are shared by all streams, so that they stay in the processor's
        # caches.
        self._head, self._tail = _SHARED.setdefault(head, head), _SHARED.setdefault(tail, tail)
        self._middle = middle + b'"delta":'


_SHARED: dict[bytes, bytes] = {}


def sse_frame_of(encoded: bytes) -> bytes:
    """Frame an event, already encoded by `encode`, as one SSE message. Does not decode it."""
    start = encoded.index(b'"type":"') + 8
    return b"event: %b\ndata: %b\n\n" % (encoded[start : encoded.index(b'"', start)], encoded)


_LAST_TYPES = frozenset(str(each.__struct_config__.tag).encode() for each in TERMINAL)


def ends_stream(encoded: bytes) -> bool:
    """Whether an event, already encoded by `encode`, is the last of its stream. Does not decode it."""
    start = encoded.index(b'"type":"') + 8
    return encoded[start : encoded.index(b'"', start)] in _LAST_TYPES


def decode_event(raw: bytes | str) -> AnyEvent:
    """Decode an event from the JSON of its `data:` line, or from an event log."""
    event: AnyEvent = _DECODER.decode(raw)
    return event


class WebSocketError(Tagged, frozen=True, kw_only=True, tag="error"):
    """An error on a WebSocket, in nested form, with the status and the headers of the equivalent HTTP answer. Codex
    reads `retry-after` from these headers."""

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
    """The answer to `response.steer` on a WebSocket. It is not an event of the response, so it has no sequence
    number."""

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
