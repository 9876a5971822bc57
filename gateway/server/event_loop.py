"""The event loop of a server process."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.server.descriptors import close_all_on_exec


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's event loop if it is installed. Child processes inherit only the descriptors that are passed explicitly."""
    try:
        import uvloop
    except ImportError:
        return (
            asyncio.new_event_loop()
        )  # asyncio's child processes close all other descriptors themselves

    class ClosingLoop(uvloop.Loop):
        """A uvloop loop that closes inheritable descriptors in child processes; uvloop ignores `close_fds`."""

        async def subprocess_exec(self, *arguments: Any, **options: Any) -> Any:
            close_all_on_exec()
            return await super().subprocess_exec(*arguments, **options)

        async def subprocess_shell(self, *arguments: Any, **options: Any) -> Any:
            close_all_on_exec()
            return await super().subprocess_shell(*arguments, **options)

    return ClosingLoop()
