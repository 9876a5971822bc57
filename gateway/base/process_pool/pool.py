"""A pool of helper processes for calls with a deadline, independent of the event loop."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from gateway.base.process_pool.child import READY
from gateway.base.shares import ShareExceeded, Shares

ResultT = TypeVar("ResultT")

_START_SECONDS = 60.0
"""Maximum time for a helper's imports, on a busy machine."""
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")
"""Environment variables passed to helpers. None contains a key."""
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from gateway.base.process_pool.child import main; main()"


class HelperFailure(Exception):
    """Base class of the errors of a call that has no result."""


class HelperDeadlineExceeded(HelperFailure):
    """The call took longer than its deadline; its process was killed."""


class HelperDied(HelperFailure):
    """The process died during the call, usually because it ran out of memory."""


class PoolBusy(HelperFailure):
    """Too many calls are queued."""


class FunctionFailed(HelperFailure):
    """The function raised an exception. `name` is the exception's class name, `message` its text."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message


class ProcessPool:
    """Runs functions in helper processes, one call at a time in each.

    Processes are started on demand and reused. A process is killed if its call exceeds the deadline or is cancelled.
    The processes are shared between owners: queued calls are scheduled round-robin by owner, and each owner has a queue
    of its own (`gateway.base.shares`).
    """

    def __init__(
        self,
        *,
        processes: int = 1,
        memory: int = 1 << 30,
        max_waiting: int = 64,
        max_result: int = 64 << 20,
        max_calls: int | None = None,
        preload: Sequence[str] = (),
    ) -> None:
        """At most `max_waiting` calls of one owner may be queued. `memory` limits the address space of a process and
        `max_result` the size of a result, both in bytes. If `max_calls` is given, a process ends after that number of
        calls. `preload` names modules that a process imports at start; the deadlines of calls do not include this."""
        self._memory = memory
        self._max_result = max_result
        self._max_calls = max_calls
        self._preload = list(preload)
        self._idle: list[_Helper] = []
        self._shares = Shares(processes, max_waiting=max_waiting)
        self._helpers: set[_Helper] = set()
        self._closed = False

    @property
    def process_ids(self) -> list[int]:
        """The ids of the live helper processes."""
        return [helper.process_id for helper in self._helpers]

    async def run(
        self,
        function: Callable[..., ResultT],
        *arguments: object,
        seconds: float,
        key: str | None = None,
    ) -> ResultT:
        """Call a module-level function in a helper process.

        Arguments and result must be MessagePack values (JSON's, and bytes); a tuple is returned as a list. `seconds` is
        counted from the start of the call, excluding queueing. `key` is the owner, by default the owner of the current
        request. Raises `HelperFailure`; `PoolBusy` if the owner has too many calls queued.
        """
        call = msgspec.msgpack.encode([function.__module__, function.__qualname__, arguments])
        try:
            owner = await self._shares.take(key)
        except ShareExceeded:
            raise PoolBusy("Too many calls are queued for a helper process.") from None
        try:
            helper = await self._helper()
            answer = await self._ask(helper, call, seconds)
        finally:
            self._shares.leave(owner)
        match answer:
            case [True, result]:
                return result  # type: ignore[no-any-return]
            case [False, str(name), str(message)]:
                raise FunctionFailed(name, message)
            case _:
                raise HelperDied("The helper process returned an invalid result.")

    async def close(self) -> None:
        """Kill all helper processes and wait until they are gone."""
        self._closed = True
        helpers, self._helpers = self._helpers, set()
        self._idle.clear()
        for helper in helpers:
            await helper.kill()

    async def __aenter__(self) -> ProcessPool:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def _helper(self) -> _Helper:
        while self._idle:
            helper = self._idle.pop()
            if helper.alive:
                return helper
            self._helpers.discard(helper)
        if self._closed:
            raise HelperDied("The helper processes have been ended.")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-X", "utf8", "-c", _PROGRAM, *(path or os.getcwd() for path in sys.path),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        )  # fmt: skip
        helper = _Helper(process)
        if self._closed:  # closed while the process was starting
            await helper.kill()
            raise HelperDied("The helper processes have been ended.")
        self._helpers.add(helper)
        settings = {
            "parent": os.getpid(),
            "memory": self._memory,
            "path": sys.path,
            "preload": self._preload,
        }
        try:
            async with asyncio.timeout(_START_SECONDS):
                ready = await helper.ask(msgspec.msgpack.encode(settings), len(READY))
        except BaseException as failure:
            await self._drop(helper)
            if isinstance(failure, TimeoutError):
                raise HelperDied("The helper process did not start.") from None
            raise
        if ready != READY:
            await self._drop(helper)
            raise HelperDied("The helper process did not start.")
        return helper

    async def _ask(self, helper: _Helper, call: bytes, seconds: float) -> Any:
        try:
            async with asyncio.timeout(seconds):
                answer = msgspec.msgpack.decode(await helper.ask(call, self._max_result))
        except BaseException as failure:
            await self._drop(helper)
            if isinstance(failure, TimeoutError):
                raise HelperDeadlineExceeded(
                    f"The call took longer than {seconds:g} seconds."
                ) from None
            if isinstance(failure, msgspec.DecodeError):
                raise HelperDied("The helper process returned invalid data.") from None
            raise
        helper.calls += 1
        if helper.calls == self._max_calls:
            await self._drop(helper)
        else:
            self._idle.append(helper)
        return answer

    async def _drop(self, helper: _Helper) -> None:
        self._helpers.discard(helper)
        await helper.kill()


async def wait_for_end(process: asyncio.subprocess.Process) -> None:
    """Wait for a process that is ending, and discard its remaining output.

    `Process.wait` alone may never return: asyncio waits for the end of the pipes too, and does not read from a pipe
    whose buffer is full.
    """
    if process.stdout is not None:
        with suppress(RuntimeError):  # another task is reading it
            while await process.stdout.read(1 << 16):
                pass
    await process.wait()


class _Helper:
    """One helper process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.calls = 0
        """Number of calls processed."""

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def ask(self, payload: bytes, limit: int) -> bytes:
        """Send a frame and return the answer, of at most `limit` bytes. Raises `HelperDied`."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(len(payload).to_bytes(4, "big") + payload)
            await stdin.drain()
            size = int.from_bytes(await stdout.readexactly(4), "big")
            if size > limit:
                raise HelperDied(f"The result is larger than {limit} bytes.")
            return await stdout.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise HelperDied("The helper process died during the call.") from None

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        # The process is killed even if the caller is cancelled here.
        await wait_for_end(self._process)
        if self._process.stdin is not None:
            self._process.stdin.close()
