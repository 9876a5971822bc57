"""Context managers that are entered and left in a separate task."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

T = TypeVar("T")


class Owned(Generic[T]):
    """A context manager that can be closed from any task, and in any order relative to others.

    A separate task enters and leaves it.
    """

    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        self._manager = manager
        self._closing = asyncio.Event()
        self._opened: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    @property
    def value(self) -> T:
        """The value that the context manager returned. Raises if it is not open."""
        return self._opened.result()

    async def open(self) -> T:
        """Enter the context manager. Raises what it raises. Call it once."""
        self._task = task = asyncio.create_task(self._hold_open())
        try:
            await asyncio.wait((task, self._opened), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait((task,))
            raise
        if not self._opened.done():
            task.result()  # raises the error of entering
        return self.value

    async def close(self) -> None:
        """Leave the context manager. Raises what it raises. Does nothing if it is not open."""
        self._closing.set()
        if self._task is not None:
            await self._task

    async def _hold_open(self) -> None:
        async with self._manager as value:
            self._opened.set_result(value)
            await self._closing.wait()
