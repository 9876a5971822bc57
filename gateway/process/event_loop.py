"""The event loop of a server process."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.process.descriptors import close_all_on_exec


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Create uvloop's event loop if uvloop is installed, otherwise asyncio's.

    Child processes inherit only the descriptors that are passed explicitly.
    """
    try:
        import uvloop
    except ImportError:
        # With asyncio, child processes close all other descriptors by default.
        return asyncio.new_event_loop()

    class ClosingLoop(uvloop.Loop):
        """A uvloop event loop that closes inheritable descriptors in child processes, because uvloop ignores
        `close_fds`."""

        async def subprocess_exec(self, *arguments: Any, **options: Any) -> Any:
            close_all_on_exec()
            return await super().subprocess_exec(*arguments, **options)

        async def subprocess_shell(self, *arguments: Any, **options: Any) -> Any:
            close_all_on_exec()
            return await super().subprocess_shell(*arguments, **options)

    return ClosingLoop()
