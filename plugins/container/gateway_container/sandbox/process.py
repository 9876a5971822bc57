"""One sandbox: a process that runs the agent, and the requests sent to it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import tempfile
from contextlib import suppress
from typing import IO, Any, TypeVar

import msgspec
from msgspec import Struct

from gateway.sdk.processes import wait_for_end
from gateway_container.jail.spec import SandboxLimits
from gateway_container.sandbox.answers import SandboxReady
from gateway_container.sandbox.isolation import Isolation, Launch, environment

logger = logging.getLogger("gateway.container")

AnswerT = TypeVar("AnswerT")

_MAX_LINE = 32 * 1_048_576
"""Maximum size of an answer in bytes, enough for a few base64-encoded images. A sandbox that exceeds it is ended."""
_MARGIN = 5.0
"""Seconds added to a request's own limit, after which the agent is considered dead."""
_NONSENSE = (msgspec.DecodeError, RecursionError)
"""Errors that decoding a line may raise. Deeply nested lists raise `RecursionError`."""
_TO_END = 3.0
"""Seconds for a sandbox to shut down; then it is killed."""

_TO_TIDY_UP = 20.0
"""Seconds for the command that cleans up after a sandbox."""


class SandboxEnded(Exception):
    """The sandbox has ended and its state is lost. The message states the reason as a sentence."""


class _Head(Struct):
    id: int = 0


class Sandbox:
    """Made by `start_sandbox`. Ends when it is closed, when its agent dies, or when the gateway ends, even by
    SIGKILL."""

    def __init__(self, process: asyncio.subprocess.Process, launch: Launch) -> None:
        self._process = process
        self._launch = launch
        self._numbers = itertools.count(1)
        self._asked: set[int] = {0}
        """Requests that the agent has not answered, including abandoned ones. 0 is its unsolicited greeting."""
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._ended: str | None = None
        self._reader = asyncio.create_task(self._read())
        self._closing: asyncio.Task[None] | None = None

    @property
    def process_id(self) -> int:
        """Process id of the program that was started here."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._ended is None

    async def handshake(self, preamble: bytes, seconds: float) -> None:
        """Send the program's input, and wait until its agent is ready. Raises `SandboxEnded`."""
        pipe = self._process.stdin
        assert pipe is not None
        answer = self._waiting[0] = asyncio.get_running_loop().create_future()
        pipe.write(preamble)
        try:
            ready = msgspec.json.decode(await asyncio.wait_for(answer, seconds), type=SandboxReady)
        except TimeoutError:
            raise SandboxEnded(f"The container did not start within {seconds:g} seconds.") from None
        except _NONSENSE:
            raise SandboxEnded("The container answered nonsense as it started.") from None
        finally:
            del self._waiting[0]
        if ready.failed is not None:
            raise SandboxEnded(f"The container did not start: {ready.failed}.")

    async def ask(self, do: str, kind: type[AnswerT], *, seconds: float, **fields: Any) -> AnswerT:
        """Send a request. `seconds` is its time limit, which the agent enforces.

        Raises `SandboxEnded`. Cancelling stops the requested work.
        """
        if self._ended is not None:
            raise SandboxEnded(self._ended)
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._asked.add(number)
            self._send({"id": number, "do": do, "seconds": seconds, **fields})
            line = await asyncio.wait_for(answer, seconds + _MARGIN)
        except TimeoutError:
            self._end("The container did not answer and was ended.")
            raise SandboxEnded(self._ended or "") from None
        except asyncio.CancelledError:
            if self._ended is None:
                self._send({"id": next(self._numbers), "do": "stop", "which": number})
            raise
        finally:
            self._waiting.pop(number, None)
        try:
            return msgspec.json.decode(line, type=kind)
        except _NONSENSE:
            self._end("The container answered nonsense and was ended.")
            raise SandboxEnded(self._ended or "") from None

    async def close(self) -> None:
        """End the sandbox and wait for it. Does not raise; may be called repeatedly."""
        self._end("The container was ended.")
        assert self._closing is not None
        # A waiting caller may be cancelled; the shutdown continues.
        await asyncio.shield(self._closing)

    def _send(self, message: dict[str, Any]) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        pipe.write(msgspec.json.encode(message) + b"\n")

    async def _read(self) -> None:
        """Dispatch answers. The agent is not trusted: one unsolicited line ends the sandbox."""
        pipe = self._process.stdout
        assert pipe is not None
        try:
            while line := await pipe.readuntil():
                number = msgspec.json.decode(line, type=_Head).id
                if number not in self._asked:
                    self._end("The container answered what nobody had asked and was ended.")
                    return
                self._asked.discard(number)
                answer = self._waiting.get(number)
                if answer is not None and not answer.done():
                    answer.set_result(line)
                await asyncio.sleep(0)  # more lines may be available: let other tasks run first
        except asyncio.IncompleteReadError:
            self._end(
                "The container has died: its variables, and what this call has written, are lost."
            )
        except (asyncio.LimitOverrunError, *_NONSENSE):
            self._end("The container answered nonsense and was ended.")

    def _end(self, why: str) -> None:
        if self._ended is not None:
            return
        self._ended = why
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(SandboxEnded(why))
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        self._closing = asyncio.create_task(self._close())

    async def _close(self) -> None:
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        try:
            await asyncio.wait_for(wait_for_end(self._process), _TO_END)
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await wait_for_end(self._process)
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._launch.end:
            await _run_quietly(self._launch.end)
        if self._launch.folder is not None:
            # Not `shutil.rmtree`, which deeply nested folders drive into Python's recursion limit.
            await _run_quietly(["rm", "-rf", "--", self._launch.folder])


async def start_sandbox(
    isolation: Isolation, name: str, limits: SandboxLimits, *, seconds: float
) -> Sandbox:
    """Start a sandbox and wait until its agent is ready. Raises `SandboxEnded` on failure or timeout."""
    launch = isolation.launch(name, limits)
    with tempfile.TemporaryFile() as errors:  # error output of a container engine
        try:
            process = await asyncio.create_subprocess_exec(
                *launch.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors if launch.end else asyncio.subprocess.DEVNULL,
                env=dict(environment()) if launch.end else {},
                start_new_session=True,
                limit=_MAX_LINE,
            )
        except OSError as failure:
            raise SandboxEnded(
                f"{launch.command[0]} cannot be started: {failure.strerror}."
            ) from None
        sandbox = Sandbox(process, launch)
        try:
            await sandbox.handshake(launch.preamble, seconds)
        except BaseException as failure:  # also if this task is cancelled: nothing is left behind
            await sandbox.close()
            if isinstance(failure, SandboxEnded) and (said := _first_line(errors)):
                raise SandboxEnded(f"The container did not start: {said}") from None
            raise
    return sandbox


def _first_line(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read(4096).decode(errors="replace").splitlines()
    return next((line.strip() for line in lines if line.strip()), "")


async def _run_quietly(command: list[str]) -> None:
    with suppress(OSError, TimeoutError):
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=dict(environment()),
        )
        try:
            await asyncio.wait_for(process.wait(), _TO_TIDY_UP)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
