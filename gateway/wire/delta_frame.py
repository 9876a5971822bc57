"""Fast encoding of the most frequent event: everything but the changing fields is encoded once."""

from __future__ import annotations

from gateway.wire.common import ENCODER
from gateway.wire.event_frames import sse_frame
from gateway.wire.events import OutputTextDelta, ReasoningTextDelta

_encode = ENCODER.encode


class DeltaFrame:
    """Encodes a delta's server-sent event, byte for byte like `sse_frame`, without building the event."""

    __slots__ = ("_head", "_middle", "_tail")

    def __init__(self, sample: OutputTextDelta | ReasoningTextDelta) -> None:
        """`sample` has sequence number 0 and empty text; its other fields are those of the events to encode."""
        head, rest = sse_frame(sample).split(b'"sequence_number":0', 1)
        middle, self._tail = rest.rsplit(b'"delta":""', 1)
        self._head = head + b'"sequence_number":'
        self._middle = middle + b'"delta":'

    def encode(self, number: int, text: str) -> bytes:
        """The encoded event with sequence number `number` and the delta `text`."""
        return b"%b%d%b%b%b" % (self._head, number, self._middle, _encode(text), self._tail)
