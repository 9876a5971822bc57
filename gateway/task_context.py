"""Tasks that run while a context is entered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any


@asynccontextmanager
async def running_task(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """While entered, `work` runs in a task. Leaving cancels it and waits for its end; raises what it has raised."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
