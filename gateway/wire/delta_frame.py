"""The parts of the most frequent events as they are sent: everything but the changing fields is encoded once."""

from __future__ import annotations

from typing import NamedTuple

from gateway.wire.event_frames import sse_frame
from gateway.wire.events import OutputTextDelta, ReasoningTextDelta


class DeltaFrame(NamedTuple):
    """A delta's server-sent event is `head`, the sequence number, `middle`, the text as JSON, and `tail`."""

    head: bytes
    middle: bytes
    tail: bytes


def delta_frame(sample: OutputTextDelta | ReasoningTextDelta) -> DeltaFrame:
    """The frame of events that are like `sample`, which has sequence number 0 and empty text.

    Only the middle differs between the items of a kind. The rest is the same object for all streams, so that it stays in the
    processor's caches.
    """
    head, rest = sse_frame(sample).split(b'"sequence_number":0', 1)
    middle, tail = rest.rsplit(b'"delta":""', 1)
    head += b'"sequence_number":'
    return DeltaFrame(
        _SHARED.setdefault(head, head), middle + b'"delta":', _SHARED.setdefault(tail, tail)
    )


_SHARED: dict[bytes, bytes] = {}
