"""Whether TensorRT-LLM still lives, for those that wait for it.

When its workers die, some versions leave requests waiting for ever. So somebody looks once in a while, and what waits is
told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from gateway.errors import EngineUnavailable

logger = logging.getLogger("gateway.trtllm")


class Lifeline:
    """`alive` is asked in a thread: it may be a call over a socket. `cause` is what it died of, as far as it is known."""

    def __init__(
        self, alive: Callable[[], bool], cause: Callable[[], object | None] = lambda: None
    ) -> None:
        self._alive = alive
        self._cause = cause
        self._reason: str | None = None
        self._closing = False
        self._waiting: set[asyncio.Task[object]] = set()
        self._told: set[asyncio.Task[object]] = set()

    def require(self) -> None:
        """Raise `EngineUnavailable` if it is known to be dead, or is being closed."""
        if self._closing or self._reason is not None:
            raise self._obituary()

    async def look(self, reason: str | None = None) -> None:
        """Ask now. Raises `EngineUnavailable` for a dead engine; `reason` is what is known of its end."""
        self.require()
        try:
            alive = await asyncio.to_thread(self._alive)
        except Exception as error:  # whatever it raises, it cannot say that it lives
            alive, reason = False, reason or f"{type(error).__name__}: {error}"
        if not alive:
            cause = self._cause()
            self._died(str(cause) if cause else reason or "its executor has shut down; see the log")
        self.require()

    def _obituary(self) -> EngineUnavailable:
        """What a request is told."""
        if self._closing:
            return EngineUnavailable("The engine is shutting down.")
        return EngineUnavailable(f"TensorRT-LLM has died: {self._reason}. Restart the server.")

    def close(self) -> None:
        """Take nothing new, and end what waits: an executor that is shut down may never answer it."""
        self._closing = True
        self._tell()

    @contextmanager
    def waits(self) -> Iterator[None]:
        """Around one wait of the current task: ends with `EngineUnavailable` if the engine dies or is closed meanwhile."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if task in self._told and task.uncancel() == 0:
                raise self._obituary() from None
            raise
        finally:
            self._waiting.discard(task)
            self._told.discard(task)

    @asynccontextmanager
    async def watched(self, interval: float) -> AsyncIterator[None]:
        """Look every `interval` seconds."""
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
                await self.look()
            except EngineUnavailable:
                return

    def _died(self, reason: str) -> None:
        if self._reason is not None or self._closing:
            return
        self._reason = reason.rstrip(".")
        logger.error("TensorRT-LLM has died: %s", reason)
        self._tell()

    def _tell(self) -> None:
        for task in self._waiting - {asyncio.current_task()}:
            self._told.add(task)
            task.cancel()
