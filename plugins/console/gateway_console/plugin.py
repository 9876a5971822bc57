"""Registers the console's routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.sdk import Api, NoConfig, OpenApiPlugin, Register, hookimpl


@asynccontextmanager
async def open_console(config: NoConfig) -> AsyncIterator[Api]:
    """The page at `/`, and its files below `/console/`."""
    from gateway_console.api import ConsoleApi
    from gateway_console.files import read_files

    yield ConsoleApi(await asyncio.to_thread(read_files))


@hookimpl
def gateway_register_apis(register: Register[OpenApiPlugin]) -> None:
    register("console", open_console, summary="a page for browsers at /")
