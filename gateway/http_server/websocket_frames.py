"""Where the frames of a WebSocket client begin and end (RFC 6455, 5.2). Payloads are not read."""

from __future__ import annotations

from typing import Final, NamedTuple

CONTINUATION: Final = 0
PING: Final = 9
_CONTROL: Final = 8
"""The bit of an opcode that control frames have."""
_LONGEST_CONTROL: Final = 125


class Frame(NamedTuple):
    """A frame, or the part of one that has arrived."""

    opcode: int
    is_final: bool
    """Whether its message ends with it."""
    length: int
    """Of the payload, in bytes."""
    start: int
    """Where it starts in the data that has arrived."""
    end: int
    """Where it ends; behind the end of the data if it has not arrived in whole."""

    @property
    def is_control(self) -> bool:
        return bool(self.opcode & _CONTROL)


def frame_at(data: bytes, at: int) -> Frame | None:
    """The frame that starts at `at`; None if its header has not arrived in whole.

    Of a control frame that is longer than the protocol allows, the length is cut: whoever parses it refuses it by its header.
    """
    if len(data) < at + 2:
        return None
    first, second = data[at], data[at + 1]
    opcode, length, header = first & 0x0F, second & 0x7F, 2
    if length > _LONGEST_CONTROL:
        size = 2 if length == 126 else 8
        header += size
        if len(data) < at + header:
            return None
        length = int.from_bytes(data[at + 2 : at + header])
    if second & 0x80:
        header += 4  # the mask
        if len(data) < at + header:
            return None
    if opcode & _CONTROL:
        length = min(length, _LONGEST_CONTROL)
    return Frame(opcode, bool(first & 0x80), length, at, at + header + length)
