"""A network of the tests' own: nodes in network namespaces, and a switch in this process that loses and delays their packets."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_TUNSETIFF = 0x400454CA
_TAP_WITHOUT_HEADER = 0x0002 | 0x1000
_CLONE_NEWNET = 0x40000000


def missing() -> str | None:
    """Why there can be no such network on this machine; None if there can."""
    if shutil.which("ip") is None:
        return "there is no command ip"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "/dev/net/tun cannot be opened"
    name = f"lg{os.getpid()}x"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "network namespaces cannot be made here"
    subprocess.run(["ip", "netns", "del", name], check=False)
    return None


class Node:
    """A namespace with one interface, which is a port of the switch."""

    def __init__(self, name: str, number: int) -> None:
        self.namespace = f"lg{os.getpid()}{name}"
        self.address = f"10.97.0.{number}"
        device = f"lgt{os.getpid()}{number}"[-15:]
        self.port = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        request = struct.pack("16sH22x", device.encode(), _TAP_WITHOUT_HEADER)
        fcntl.ioctl(self.port, _TUNSETIFF, request)
        _ip("netns", "add", self.namespace)
        _ip("link", "set", device, "netns", self.namespace)
        for command in (
            ("addr", "add", f"{self.address}/24", "dev", device),
            ("link", "set", device, "up"),
            ("link", "set", "lo", "up"),
        ):
            _ip("-n", self.namespace, *command)

    def popen(self, *command: str | Path, **options: Any) -> subprocess.Popen[bytes]:
        """Start a program in the namespace."""
        return subprocess.Popen(["ip", "netns", "exec", self.namespace, *command], **options)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on a loop of its own, in a thread whose sockets are in the namespace."""
        result: Future[T] = Future()

        def enter() -> None:
            try:
                _enter(self.namespace)
                result.set_result(asyncio.run(work()))
            except BaseException as error:
                result.set_exception(error)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        return result.result()

    def close(self) -> None:
        os.close(self.port)
        subprocess.run(["ip", "netns", "del", self.namespace], check=False, capture_output=True)


class Network:
    """Nodes, and a switch between them. `lose` and `delay` apply from one node to another, in that direction only."""

    def __init__(self, *names: str) -> None:
        self.nodes: dict[str, Node] = {}
        self._lost: set[tuple[str, str]] = set()
        self._delays: dict[tuple[str, str], float] = {}
        self._chance = random.Random(15)
        self._closing = False
        self.lost = self.delayed = 0
        """Numbers of packets."""
        try:
            for number, name in enumerate(names, 1):
                self.nodes[name] = Node(name, number)
        except BaseException:
            for node in self.nodes.values():
                node.close()
            raise
        self._thread = threading.Thread(target=self._switch, daemon=True)
        self._thread.start()

    def lose(self, source: str, target: str) -> None:
        """Lose all packets from `source` to `target`."""
        self._lost |= {(source, target)}

    def delay(self, source: str, target: str, seconds: float) -> None:
        """Delay each packet by up to `seconds`, so that their order changes."""
        self._delays = {**self._delays, (source, target): seconds}

    def heal(self) -> None:
        """Deliver all packets, at once and in order."""
        self._lost, self._delays = set(), {}

    def close(self) -> None:
        self._closing = True
        self._thread.join()
        for node in self.nodes.values():
            node.close()

    def _switch(self) -> None:
        names = {node.port: name for name, node in self.nodes.items()}
        places: dict[bytes, str] = {}
        later: list[tuple[float, int, str, bytes]] = []
        numbers = count()
        while not self._closing:
            wait = 0.1 if not later else min(0.1, max(0.0, later[0][0] - time.monotonic()))
            for port in select.select(list(names), [], [], wait)[0]:
                source = names[port]
                try:
                    frame = os.read(port, 65_536)
                except OSError:
                    continue
                places[frame[6:12]] = source
                known = places.get(frame[:6])
                for target in [known] if known else [each for each in self.nodes if each != source]:
                    way = (source, target)
                    if way in self._lost:
                        self.lost += 1
                    elif (seconds := self._delays.get(way)) is not None:
                        self.delayed += 1
                        due = time.monotonic() + self._chance.random() * seconds
                        heapq.heappush(later, (due, next(numbers), target, frame))
                    else:
                        self._deliver(target, frame)
            while later and later[0][0] <= time.monotonic():
                _, _, target, frame = heapq.heappop(later)
                self._deliver(target, frame)

    def _deliver(self, target: str, frame: bytes) -> None:
        try:
            os.write(self.nodes[target].port, frame)
        except OSError:
            self.lost += 1  # its queue is full: as on a real one


def _enter(namespace: str) -> None:
    """Move this thread into a namespace."""
    with Path(f"/run/netns/{namespace}").open("rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
