"""Writing log lines without blocking on a slow reader.

A pipe that is not read is full after 64 KiB. A write to it then blocks the event loop, and with it the whole server.
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
"""Maximum total size of lines that are kept while they are not read, in bytes. Further lines are counted and
dropped."""
CLOSING_SECONDS: Final = 1.0
"""How long the end of the process waits until the kept lines are read, in seconds."""
_ATOMIC: Final = 4096
"""Number of bytes that can be written to a writable pipe or socket without blocking (POSIX's PIPE_BUF on Linux)."""


class LogStream(io.TextIOBase):
    """Writes lines to a file descriptor. While it is not writable, lines are kept, and a thread writes them later."""

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
        """Writes the kept lines; None while there are none."""

    def write(self, text: str, /) -> int:
        """Write a line. Raises `OSError` if the reader has closed its end or the disk is full."""
        line = text.encode(self._encoding, "backslashreplace")
        with self._lock:
            if self._thread is None:
                line = self._written(line)
            if line:
                self._keep(line)
        return len(text)

    def wait(self, seconds: float) -> None:
        """Wait until all kept lines are written, for at most `seconds`."""
        with self._lock:
            self._lock.wait_for(lambda: self._thread is None, seconds)

    def _written(self, line: bytes) -> bytes:
        """Write as much of `line` as possible without blocking. Returns the rest."""
        while line and self._poll.poll(0):
            try:
                line = line[os.write(self._descriptor, line[:_ATOMIC]) :]
            except BlockingIOError:  # another process has made the descriptor non-blocking
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
        """Write the kept lines, waiting for the reader."""
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
            with suppress(OSError):  # the reader has closed its end
                while line:
                    self._poll.poll(None)
                    line = self._written(line)


class LogHandler(logging.StreamHandler[Any]):
    """Writes to a `LogStream`. At the end of the process, waits up to `CLOSING_SECONDS` for its reader."""

    def close(self) -> None:
        if isinstance(self.stream, LogStream):
            self.stream.wait(CLOSING_SECONDS)
        super().close()


def log_handler(stream: TextIO) -> logging.Handler:
    """Create a handler that writes to `stream`. It does not block if `stream` is a pipe, a socket or a terminal."""
    try:
        descriptor = stream.fileno()
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return LogHandler(LogStream(descriptor, stream.encoding or "utf-8"))
    except (OSError, ValueError, AttributeError):
        pass  # a stream without a descriptor, as in tests, or None
    return logging.StreamHandler(stream)
