"""Notifying the other processes on this machine that use the same file, by datagrams."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

logger = logging.getLogger("gateway_sqlite")

_LONGEST: Final = 8192
"""Maximum size of a datagram in bytes. In place of a longer notification an empty one is sent: any name may have
news."""
_HELLO: Final = b"\x00"
_FULL_SECONDS: Final = 0.05
"""Time in seconds after which a process whose queue was full is notified again."""
_ERROR_SECONDS: Final = 1.0
"""Time in seconds after which a process is notified again, after any other error."""


class Peers:
    """The socket of this process in a folder, and the names of the other processes' sockets.

    A new process sends a greeting. A datagram may be replaced by an empty one, so both make the receiver look for new
    sockets. Each process that it finds gets an empty datagram: events may have been stored since it started.
    """

    def __init__(self, folder: Path, on_announcement: Callable[[Collection[str]], None]) -> None:
        """`on_announcement` is called with the names that another process announces. An empty collection means that any
        name may have news."""
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._path = folder
        self._on_announcement = on_announcement
        self._name = f"{os.getpid()}-{os.urandom(4).hex()}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._others: set[str] = set()
        self._retries: dict[str, asyncio.TimerHandle] = {}
        """Processes that missed a notification. They get an empty one later: any name may have news."""
        self._socket.bind(self._address(self._name))
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._read)
        self._look(_HELLO)

    def announce(self, names: Collection[str]) -> None:
        """Notify the other processes that these names have news. Does not wait."""
        if not self._others:
            return
        message = "\n".join(names).encode()
        if len(message) > _LONGEST:
            message = b""
        for name in tuple(self._others):
            self._send(name, message)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        for each in self._retries.values():
            each.cancel()
        with suppress(OSError):
            os.unlink(self._name, dir_fd=self._folder)
        self._socket.close()
        os.close(self._folder)

    def _address(self, name: str) -> str:
        """The address of a socket in the folder. Addresses are limited to about 100 bytes, so long paths are
        replaced."""
        path = str(self._path / name)
        if len(os.fsencode(path)) < 100:
            return path
        return f"/proc/self/fd/{self._folder}/{name}"

    def _look(self, message: bytes = b"") -> None:
        """Find the sockets of the other processes. Sends `message` to those that were not known."""
        known = self._others
        self._others = {each for each in os.listdir(self._folder) if each != self._name}
        for name in self._others - known:
            self._send(name, message)

    def _send(self, name: str, message: bytes = b"") -> None:
        """Notify a process. If that is not possible now, tries again later, with an empty message."""
        retry = self._retries.pop(name, None)
        if retry is not None:
            retry.cancel()
            message = b""
        try:
            self._socket.sendto(message, self._address(name))
        except (ConnectionRefusedError, FileNotFoundError):
            # The process has ended without removing its socket.
            self._others.discard(name)
            with suppress(OSError):
                os.unlink(name, dir_fd=self._folder)
        except OSError as error:
            seconds = _FULL_SECONDS if isinstance(error, BlockingIOError) else _ERROR_SECONDS
            loop = asyncio.get_running_loop()
            self._retries[name] = loop.call_later(seconds, self._send, name)

    def _read(self) -> None:
        names: set[str] = set()
        anything = look = False
        for _ in range(64):
            try:
                message = self._socket.recv(_LONGEST + 1)
            except OSError:
                break
            if message == _HELLO:
                look = True
            elif message:
                names.update(message.decode("utf-8", "replace").split("\n"))
            else:
                anything = look = True
        if anything:
            self._on_announcement(())
        elif names:
            self._on_announcement(names)
        if look:
            self._look()
