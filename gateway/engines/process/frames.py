"""Frames on a Unix socket, and the check that the other end is a process of the same user."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from typing import Final

MAX_FRAME: Final = 256 * 1024 * 1024
"""Maximum size of a frame in bytes. Large enough for all images of a request."""
HEAD: Final = 4
ENGINE: Final = b"E"
"""The first byte on a connection for requests."""
TOKENIZER: Final = b"T"
"""The first byte on a connection for the tokenizer. Its calls are answered in their order."""


class FrameTooLarge(Exception):
    """A frame exceeds `MAX_FRAME`."""


ACCEPT_AGAIN_SECONDS: Final = 0.1
"""Seconds to wait after a connection could not be accepted."""


def framed(payload: bytes) -> bytes:
    """`payload` as a frame. Raises `FrameTooLarge`."""
    if len(payload) > MAX_FRAME:
        raise FrameTooLarge(f"{len(payload)} bytes")
    return len(payload).to_bytes(HEAD, "big") + payload


class FrameReader:
    """Splits received bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._wanted = HEAD

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yields the payloads that `data` completes. Raises `FrameTooLarge` for a frame whose announced length is too
        large."""
        buffer = self._buffer
        buffer += data
        if len(buffer) < self._wanted:
            return
        start = 0
        with memoryview(buffer) as view:
            while True:
                size = int.from_bytes(view[start : start + HEAD], "big") + HEAD
                if len(view) - start < HEAD:
                    self._wanted = HEAD
                    break
                if size > MAX_FRAME + HEAD:
                    raise FrameTooLarge(f"{size} bytes")
                if len(view) - start < size:
                    self._wanted = size
                    break
                yield bytes(view[start + HEAD : start + size])
                start += size
        del buffer[:start]


def receive_frame(connection: socket.socket) -> bytes | None:
    """Read one payload from a blocking socket. Returns None if the other end has closed it. Raises `FrameTooLarge` and
    `OSError`."""
    head = _receive(connection, HEAD)
    if head is None:
        return None
    size = int.from_bytes(head, "big")
    if size > MAX_FRAME:
        raise FrameTooLarge(f"{size} bytes")
    return _receive(connection, size)


def _receive(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(min(size - len(data), 1 << 20))
        if not more:
            return None
        data += more
    return bytes(data)


def is_own(connection: socket.socket) -> bool:
    """Whether the other end is a process of this user. On systems that do not tell, always True: there, the permissions
    of the socket's folder protect it."""
    if sys.platform != "linux":
        return True
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    user: int = struct.unpack("3i", credentials)[1]
    return user == os.geteuid()


def require_own(connection: socket.socket) -> None:
    """Raise `OSError` unless the other end is a process of this user."""
    if not is_own(connection):
        raise PermissionError("a process of another user is at the other end of the socket")
