"""Tasks of plugins that end with the plugin."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, Final

from gateway.base.errors import RateLimited

logger = logging.getLogger("gateway.startup.plugin_tasks")

MAX_TASKS: Final = 1000
"""Maximum number of concurrent tasks of one plugin."""
END_SECONDS: Final = 10.0
"""Seconds to wait for cancelled tasks to end."""


class PluginTasks:
    """The tasks of one open plugin."""

    def __init__(self, plugin: str, *, end_seconds: float = END_SECONDS) -> None:
        """`end_seconds`: maximum time that `close` waits."""
        self._plugin = plugin
        self._end_seconds = end_seconds
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """See `gateway.plugins.protocols.GatewayServices.start_task`."""
        if self._closed or len(self._tasks) >= MAX_TASKS:
            work.close()
            if self._closed:
                raise RuntimeError(f"the plugin {self._plugin} is closed")
            raise RateLimited(
                f"The plugin '{self._plugin}' has {MAX_TASKS} tasks already, which is the limit. Retry later."
            )
        # In a new context, because it does not work for a request.
        task = asyncio.create_task(work, name=f"{self._plugin}: {name}", context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the task '%s' has failed", task.get_name(), exc_info=error)

    async def close(self) -> None:
        """Cancel the tasks, and wait a limited time for them to end."""
        self._closed = True
        if not self._tasks:
            return
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        _, late = await asyncio.wait(tasks, timeout=self._end_seconds)
        for task in late:
            logger.warning(
                "the task '%s' has not ended within %g s of its cancellation, and is left",
                task.get_name(),
                self._end_seconds,
            )
