"""The commonest event, encoded once but for what is new in each."""

from __future__ import annotations

from gateway.wire.common import encode
from gateway.wire.events import OutputTextDelta, ReasoningTextDelta, sse_frame


class DeltaFrame:
    """A delta's server-sent event, byte for byte as `sse_frame` makes it, without building and encoding the whole of it."""

    __slots__ = ("_head", "_middle", "_tail")

    def __init__(self, sample: OutputTextDelta | ReasoningTextDelta) -> None:
        """`sample` has the number 0 and no text; all else is as in the events to come."""
        head, rest = sse_frame(sample).split(b'"sequence_number":0', 1)
        middle, self._tail = rest.rsplit(b'"delta":""', 1)
        self._head = head + b'"sequence_number":'
        self._middle = middle + b'"delta":'

    def around(self, number: int, text: str) -> bytes:
        """The event with the sequence number `number` that adds `text`."""
        return b"%b%d%b%b%b" % (self._head, number, self._middle, encode(text), self._tail)
