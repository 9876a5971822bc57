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


class Peers:
    """The socket of this process in a folder, and the names of the other processes' sockets."""

    def __init__(self, folder: Path, on_announcement: Callable[[Collection[str]], None]) -> None:
        """`on_announcement` is called with the names that another process announces. An empty collection means that any
        name may have news."""
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._path = folder
        self._on_announcement = on_announcement
        self._name = f"{os.getpid()}-{os.urandom(4).hex()}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._others: list[str] = []
        self._missed: set[str] = set()
        """Processes whose queue was full. Once there is room, they get an empty notification: any name may have
        news."""
        self._socket.bind(self._address(self._name))
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._read)
        self._look()
        self._send(_HELLO)

    def announce(self, names: Collection[str]) -> None:
        """Notify the other processes that these names have news. Does not wait."""
        if not self._others:
            return
        message = "\n".join(names).encode()
        self._send(message if len(message) <= _LONGEST else b"")

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
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

    def _look(self) -> None:
        """Find the sockets of the other processes."""
        self._others = [each for each in os.listdir(self._folder) if each != self._name]

    def _send(self, message: bytes) -> None:
        for name in tuple(self._others):
            try:
                self._socket.sendto(b"" if name in self._missed else message, self._address(name))
                self._missed.discard(name)
            except BlockingIOError:
                if name not in self._missed:
                    self._missed.add(name)
                    self._retry(name)
            except OSError:
                # The process has ended without removing its socket.
                self._others.remove(name)
                self._missed.discard(name)
                with suppress(OSError):
                    os.unlink(name, dir_fd=self._folder)

    def _retry(self, name: str) -> None:
        """Notify a process as soon as its queue has room."""

        def retry() -> None:
            if name not in self._missed or self._socket.fileno() < 0:
                return
            try:
                self._socket.sendto(b"", self._address(name))
                self._missed.discard(name)
            except BlockingIOError:
                self._retry(name)
            except OSError:
                self._missed.discard(name)

        asyncio.get_running_loop().call_later(0.05, retry)

    def _read(self) -> None:
        names: set[str] = set()
        anything = False
        for _ in range(64):
            try:
                message = self._socket.recv(_LONGEST + 1)
            except OSError:
                break
            if message == _HELLO:
                self._look()
            elif message:
                names.update(message.decode("utf-8", "replace").split("\n"))
            else:
                anything = True
        if anything:
            self._on_announcement(())
        elif names:
            self._on_announcement(names)
