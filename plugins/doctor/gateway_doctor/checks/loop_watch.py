"""Detecting code that blocks the event loop, without measuring wall-clock time."""

from __future__ import annotations

import _socket
import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any, Final

from gateway.sdk.processes import SHARE_THREADS
from gateway.sdk.tools import FUNCTION_THREADS
from gateway_doctor.checks.engine_probe import GuaranteeViolated

MAX_CPU_SECONDS: Final = 2.0
"""Maximum CPU time in seconds that the loop's thread may spend before other tasks run."""

_WAITING: Final = {
    time.sleep: "time.sleep",
    socket.gethostbyname: "socket.gethostbyname",
    os.system: "os.system",
}
_WAITING_METHODS: Final = frozenset({"connect", "recv", "recv_into", "send", "sendall", "accept"})
"""Methods of blocking sockets that wait."""
_WAITING_FUNCTIONS: Final = frozenset({"run", "call", "check_call", "check_output"})
"""Functions of `subprocess` that wait for the process."""
_SHARED_THREADS: Final = ("asyncio_", SHARE_THREADS, FUNCTION_THREADS)
"""Prefixes of the names of threads that all code of a process shares: the threads of default executors, and those of
tools that are functions. A pool starts its threads one by one, so later use may add some."""


def _waiting_call(frame: FrameType, event: str, argument: Any) -> str | None:
    """The name of the call in a profiled event, if the call waits; otherwise None."""
    if event == "call":
        code = frame.f_code
        if code.co_name in _WAITING_FUNCTIONS and code.co_filename == subprocess.__file__:
            return f"subprocess.{code.co_name}"
        return "socket.getaddrinfo" if code is socket.getaddrinfo.__code__ else None
    if event != "c_call":
        return None
    owner = getattr(argument, "__self__", None)
    if isinstance(owner, socket.socket | _socket.socket):
        waits = argument.__name__ in _WAITING_METHODS and owner.gettimeout() != 0
        return f"socket.{argument.__name__}" if waits else None
    return _WAITING.get(argument)


@contextmanager
def no_waiting(what: str) -> Generator[None]:
    """Raise `GuaranteeViolated` on exit if this thread has made a call that waits: `time.sleep`, looking up a host, using a
    blocking socket, or running a process to its end."""
    found: list[str] = []

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        call = _waiting_call(frame, event, argument)
        if call is not None:
            found.append(call)

    outer = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(outer)
    if found:
        raise GuaranteeViolated(
            f"{what} blocks the event loop: {', '.join(sorted(set(found)))}. Await instead, or call it in a thread "
            "(asyncio.to_thread)"
        )


@asynccontextmanager
async def loop_stays_free(what: str) -> AsyncGenerator[None]:
    """Raise `GuaranteeViolated` on exit if the body has blocked the event loop, by a call that waits (`no_waiting`) or by more
    than `MAX_CPU_SECONDS` of uninterrupted computation."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.005)
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    watching = asyncio.create_task(watch())
    try:
        await asyncio.sleep(0)  # so that the watching task begins before the body
        with no_waiting(what):
            yield
        await asyncio.sleep(0.01)
    finally:
        watching.cancel()
        await asyncio.wait((watching,))
    if longest > MAX_CPU_SECONDS:
        raise GuaranteeViolated(
            f"{what} keeps the event loop busy for {longest:.1f} s of CPU time. Compute in a thread or a process"
        )


class Leftovers:
    """Records the tasks and threads that exist now, to find those that exist in addition later."""

    def __init__(self) -> None:
        self._tasks = asyncio.all_tasks()
        self._threads = set(threading.enumerate())

    def now(self) -> list[str]:
        """The additional tasks and threads that exist now. Shared threads do not count: those of the default executors
        of event loops (this one, and that of a gateway in another thread), and those of tools that are functions."""
        tasks = [f"task {each.get_coro()!r}" for each in asyncio.all_tasks() - self._tasks]
        threads = [
            f"thread {each.name}"
            for each in set(threading.enumerate()) - self._threads
            if each.is_alive() and not each.name.startswith(_SHARED_THREADS)
        ]
        return tasks + threads

    async def settled(self, most: int, time_limit: float) -> list[str]:
        """Wait until at most `most` additional tasks and threads are left, or until `time_limit` seconds have passed.
        Returns those that are left."""
        try:
            async with asyncio.timeout(time_limit):
                while len(self.now()) > most:  # noqa: ASYNC110  # nothing tells when a thread ends
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pass
        return self.now()
