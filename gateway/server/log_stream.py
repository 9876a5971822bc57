"""Writing the log without waiting for who reads it.

A pipe that nobody reads is full after 64 KiB. A write to it then blocks the event loop, and with it everything that the
process does.
"""

from __future__ import annotations

import io
import logging
import os
import select
import stat
import threading
from collections import deque
from contextlib import suppress
from typing import Any, Final, TextIO

KEPT_BYTES: Final = 4 << 20
"""Bytes of lines that are kept while nobody reads. Further lines are counted, and dropped."""
CLOSING_SECONDS: Final = 1.0
"""How long the end of the process waits until the lines that are kept are read."""
_ATOMIC: Final = 4096
"""As much can be written to a pipe or a socket that is writable, without blocking (POSIX's PIPE_BUF on Linux)."""


class LogStream(io.TextIOBase):
    """Writes lines to a file descriptor. While it takes nothing, they are kept, and a thread writes them when it does."""

    def __init__(self, descriptor: int, encoding: str) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._encoding = encoding
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._lock = threading.Condition()
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._lost = 0
        self._thread: threading.Thread | None = None
        """Writes what is kept; None while there is nothing."""

    def write(self, text: str, /) -> int:
        """Write a line. Raises OSError if the reader has gone or the disk is full."""
        line = text.encode(self._encoding, "backslashreplace")
        with self._lock:
            if self._thread is None:
                line = self._written(line)
            if line:
                self._keep(line)
        return len(text)

    def wait(self, seconds: float) -> None:
        """Wait until all lines are written, for at most `seconds`."""
        with self._lock:
            self._lock.wait_for(lambda: self._thread is None, seconds)

    def _written(self, line: bytes) -> bytes:
        """Write as much of `line` as is taken at once. Returns the rest."""
        while line and self._poll.poll(0):
            try:
                line = line[os.write(self._descriptor, line[:_ATOMIC]) :]
            except BlockingIOError:  # another process has made it so
                break
        return line

    def _keep(self, line: bytes) -> None:
        if self._kept_bytes + len(line) > KEPT_BYTES:
            self._lost += 1
            return
        self._kept.append(line)
        self._kept_bytes += len(line)
        if self._thread is None:
            self._thread = threading.Thread(target=self._drain, name="log", daemon=True)
            self._thread.start()

    def _drain(self) -> None:
        """Write what is kept, waiting for the reader."""
        while True:
            with self._lock:
                if self._kept:
                    line = self._kept.popleft()
                    self._kept_bytes -= len(line)
                elif self._lost:
                    line = f"{self._lost} lines of the log were dropped, because nobody read it\n".encode()
                    self._lost = 0
                else:
                    self._thread = None
                    self._lock.notify_all()
                    return
            with suppress(OSError):  # the reader has gone
                while line:
                    self._poll.poll(None)
                    line = self._written(line)


class LogHandler(logging.StreamHandler[Any]):
    """Writes to a `LogStream`, and waits a moment for its reader at the end of the process."""

    def close(self) -> None:
        if isinstance(self.stream, LogStream):
            self.stream.wait(CLOSING_SECONDS)
        super().close()


def log_handler(stream: TextIO) -> logging.Handler:
    """A handler that writes to `stream`, and never blocks if that is a pipe, a socket or a terminal."""
    try:
        descriptor = stream.fileno()
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return LogHandler(LogStream(descriptor, stream.encoding or "utf-8"))
    except (OSError, ValueError, AttributeError):
        pass  # a test's stream, or none
    return logging.StreamHandler(stream)
