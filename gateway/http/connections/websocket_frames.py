"""Finds the boundaries of a WebSocket client's frames (RFC 6455, 5.2). Payloads are not read."""

from __future__ import annotations

from typing import Final, NamedTuple

CONTINUATION: Final = 0
PING: Final = 9
_CONTROL: Final = 8
"""The bit that is set in the opcodes of control frames."""
_LONGEST_CONTROL: Final = 125


class Frame(NamedTuple):
    """The header and the boundaries of a frame, which may not have arrived completely."""

    opcode: int
    is_final: bool
    """Whether the frame is the last of its message."""
    length: int
    """Length of the payload in bytes."""
    start: int
    """Index in the received data at which the frame starts."""
    end: int
    """Index at which the frame ends. Beyond the end of the data if the frame is incomplete."""

    @property
    def is_control(self) -> bool:
        return bool(self.opcode & _CONTROL)


def frame_at(data: bytes, at: int) -> Frame | None:
    """The frame that starts at `at`; None if its header is incomplete.

    The length of a control frame is cut to what RFC 6455 allows. The WebSocket library refuses a longer one by its
    header.
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
