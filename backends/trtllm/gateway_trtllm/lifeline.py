"""Detects the death of TensorRT-LLM and ends the waits for it.

In some versions requests wait forever when the workers die. Therefore its liveness is checked periodically.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from gateway.sdk import EngineUnavailable

logger = logging.getLogger("gateway.trtllm")


class Lifeline:
    """Liveness of one engine.

    `alive` is called in a thread because it may block on a socket. `cause` returns the known reason of its death, or
    None.
    """

    def __init__(
        self, alive: Callable[[], bool], cause: Callable[[], object | None] = lambda: None
    ) -> None:
        self._alive = alive
        self._cause = cause
        self._reason: str | None = None
        self._closing = False
        self._waiting: set[asyncio.Task[object]] = set()
        self._cancelled: set[asyncio.Task[object]] = set()

    def require(self) -> None:
        """Raise `EngineUnavailable` if the engine is known to be dead or is being closed."""
        if self._closing or self._reason is not None:
            raise self._unavailable()

    async def check_alive(self, reason: str | None = None) -> None:
        """Check now. Raises `EngineUnavailable` if the engine is dead; `reason` is what is known about its death."""
        self.require()
        try:
            alive = await asyncio.to_thread(self._alive)
        except Exception as error:  # any exception means that it is not alive
            alive, reason = False, reason or f"{type(error).__name__}: {error}"
        if not alive:
            cause = self._cause()
            self._record_death(
                str(cause) if cause else reason or "its executor has shut down; see the log"
            )
        self.require()

    def _unavailable(self) -> EngineUnavailable:
        """The error that requests get."""
        if self._closing:
            return EngineUnavailable("The engine is shutting down.")
        return EngineUnavailable(f"TensorRT-LLM has died: {self._reason}. Restart the server.")

    def close(self) -> None:
        """Reject new requests and end current waits, because an executor that is shut down may never respond."""
        self._closing = True
        self._cancel_waits()

    @contextmanager
    def wait_guard(self) -> Iterator[None]:
        """Wraps one wait of the current task. The wait ends with `EngineUnavailable` if the engine dies or is
        closed."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if task in self._cancelled and task.uncancel() == 0:
                raise self._unavailable() from None
            raise
        finally:
            self._waiting.discard(task)
            self._cancelled.discard(task)

    @asynccontextmanager
    async def watched(self, interval: float) -> AsyncIterator[None]:
        """Check every `interval` seconds while the context is open."""
        watch = asyncio.create_task(self._watch(interval), name="trtllm-lifeline")
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.wait([watch])

    async def _watch(self, interval: float) -> None:
        while self._reason is None and not self._closing:
            await asyncio.sleep(interval)
            try:
                await self.check_alive()
            except EngineUnavailable:
                return

    def _record_death(self, reason: str) -> None:
        if self._reason is not None or self._closing:
            return
        self._reason = reason.rstrip(".")
        logger.error("TensorRT-LLM has died: %s", reason)
        self._cancel_waits()

    def _cancel_waits(self) -> None:
        for task in self._waiting - {asyncio.current_task()}:
            self._cancelled.add(task)
            task.cancel()
