"""Child processes, their output, and the event loop that waits for both."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

CHUNK = 65_536
"""Maximum number of bytes per read."""
AFTER_EXIT = 0.2
"""Seconds for which output is still read after a process has exited, if its children hold the pipe open."""


class BoundedOutput:
    """Output with a size limit: keeps the first half and the last half of the limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.clear()

    def clear(self) -> None:
        self._head, self._tail, self._lost = bytearray(), bytearray(), 0

    def add(self, data: bytes) -> None:
        room = self.limit // 2 - len(self._head)
        self._head += data[: max(0, room)]
        self._tail += data[max(0, room) :]
        surplus = len(self._tail) - (self.limit - self.limit // 2)
        if surplus > CHUNK or (surplus > 0 and self._lost):
            del self._tail[:surplus]
            self._lost += surplus

    def take(self) -> str:
        surplus = max(0, len(self._tail) - (self.limit - self.limit // 2))
        lost, tail = self._lost + surplus, self._tail[surplus:]
        head = self._head.decode("utf-8", "replace")
        end = tail.decode("utf-8", "replace")
        self.clear()
        return f"{head}\n[… {lost} bytes cut out …]\n{end}" if lost else head + end


class EventLoop:
    """A minimal event loop over file descriptors and timers."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: dict[object, tuple[float, Callable[[], None]]] = {}

    def watch(self, descriptor: int, ready: Callable[[], None]) -> None:
        os.set_blocking(descriptor, False)
        self._selector.register(descriptor, selectors.EVENT_READ, ready)

    def forget(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)
        os.close(descriptor)

    def at(self, key: object, seconds: float, do: Callable[[], None]) -> None:
        self._timers[key] = (time.monotonic() + seconds, do)

    def cancel(self, key: object) -> None:
        self._timers.pop(key, None)

    def run_once(self) -> None:
        due = min((when for when, _ in self._timers.values()), default=None)
        wait = None if due is None else max(0.0, due - time.monotonic())
        for key, _ in self._selector.select(wait):
            # A ready descriptor may have been unregistered by an earlier callback.
            if self._selector.get_map().get(key.fd) is key:
                key.data()
        now = time.monotonic()
        for timer, (when, do) in list(self._timers.items()):
            if when <= now and self._timers.pop(timer, None) is not None:
                do()


class Process:
    """A child process and its output."""

    def __init__(
        self, loop: EventLoop, request: dict[str, Any], changed: Callable[[], None]
    ) -> None:
        """Raises `OSError` if it cannot be started. `changed` is called when it ends."""
        self._loop = loop
        self._changed = changed
        self.code: int | None = None
        limit = int(request["limit"])
        merged = bool(request.get("session"))
        self.out, self.err = BoundedOutput(limit), BoundedOutput(limit)
        self._popen = subprocess.Popen(  # noqa: S603 - it is what the sandbox is for
            request["command"],
            cwd=request.get("folder") or None,
            env={**os.environ, **(request.get("environment") or {})},
            stdin=subprocess.PIPE if merged else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE,
            start_new_session=True,
        )
        self._open: set[int] = set()
        for pipe, text in ((self._popen.stdout, self.out), (self._popen.stderr, self.err)):
            if pipe is not None:
                self._watch(os.dup(pipe.fileno()), text)
                pipe.close()
        self._pause = 0.005
        self._poll_later(0.0)

    def _watch(self, descriptor: int, text: BoundedOutput) -> None:
        self._open.add(descriptor)
        self._loop.watch(descriptor, lambda: self._read(descriptor, text))

    def _read(self, descriptor: int, text: BoundedOutput) -> None:
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return
        if data:
            text.add(data)
            return
        self._open.discard(descriptor)
        self._loop.forget(descriptor)
        if not self._open:
            self._pause = 0.005
            self._poll_later(0.0)

    def _poll_later(self, seconds: float) -> None:
        self._loop.at(self, seconds, self._poll)

    def _poll(self) -> None:
        """Poll whether it has ended: frequently at first, rarely later."""
        if self.code is not None:  # and its remaining output was read
            self._ended()
            return
        self.code = self._popen.poll()
        if self.code is None:
            self._poll_later(self._pause)
            self._pause = min(0.5, 2 * self._pause)
        else:
            self._poll_later(AFTER_EXIT if self._open else 0.0)

    def _ended(self) -> None:
        self._loop.cancel(self)
        for descriptor in list(self._open):
            self._loop.forget(descriptor)
        self._open.clear()
        if self._popen.stdin is not None:
            with contextlib.suppress(OSError):
                self._popen.stdin.close()
        self._changed()

    def feed(self, text: str) -> bool:
        """Write to its standard input as much as fits. Returns False if it accepts no input."""
        assert self._popen.stdin is not None
        descriptor = self._popen.stdin.fileno()
        os.set_blocking(descriptor, False)
        try:
            return os.write(descriptor, text.encode("utf-8", "replace")) > 0 or not text
        except OSError:
            return False

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self._popen.pid, signal.SIGKILL)
