"""Parses server-sent events as inference servers send them: `data:` lines, comments, a blank line after each event."""

from __future__ import annotations

from typing import Final

MAX_EVENT = 16 * 1024 * 1024
"""Maximum size of one event, in bytes."""

_EDGES: Final = (b"\n\r", b"\n", b"\r")


class EventSplitter:
    """Splits a streamed body into the data of its events. Reads each byte a fixed number of times, however the body is cut
    into pieces."""

    __slots__ = ("_edge", "_rest")

    def __init__(self) -> None:
        self._rest = bytearray()
        """The beginning of an event that is not complete."""
        self._edge = b""
        """What follows it, and may be the beginning of the event's end."""

    @property
    def rest(self) -> bytes:
        """What has come and belongs to no complete event."""
        return bytes(self._rest) + self._edge

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that `piece` completes. Raises ValueError for an event that is too large."""
        # Fast path: the piece is one whole event of one line.
        if (
            not self._rest
            and not self._edge
            and piece[:6] == b"data: "
            and piece.find(b"\n") == len(piece) - 2
            and piece[-1:] == b"\n"
        ):
            return [piece[6:-2]]
        text = self._edge + piece
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        *events, last = text.split(b"\n\n")
        if events:
            events[0] = bytes(self._rest) + events[0]
            self._rest.clear()
        end = len(last) - next((len(each) for each in _EDGES if last.endswith(each)), 0)
        self._edge = last[end:]
        self._rest += last[:end]
        if len(self._rest) > MAX_EVENT:
            raise ValueError(f"an event is larger than {MAX_EVENT} bytes")
        return [data for event in events if (data := _data(event))]


def _data(event: bytes) -> bytes:
    lines = []
    for line in event.split(b"\n"):
        if line.startswith(b"data:"):
            lines.append(line[6:] if line.startswith(b"data: ") else line[5:])
        elif line.startswith(b"error:"):
            # Older llama-servers send errors in a field of this name.
            lines.append(b'{"error":' + line[6:] + b"}")
    return b"\n".join(lines)
