"""A context manager that runs a task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any


@asynccontextmanager
async def running_task(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` in a task while the context is entered. Leaving cancels the task, waits for it, and raises its
    exception, if any."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
