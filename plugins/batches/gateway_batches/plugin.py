"""Registers the plugin's routes. Heavy modules are imported on opening."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.sdk import Api, OpenApiPlugin, Register, hookimpl
from gateway_batches.config import BatchesConfig

if TYPE_CHECKING:
    from gateway_files.files import Files


@asynccontextmanager
async def open_batches(config: BatchesConfig, *, files: Files) -> AsyncIterator[Api]:
    """The routes `/v1/batches`, and what runs batches. Raises `ConfigurationError`."""
    from gateway_batches.api import BatchesApi
    from gateway_batches.database import BatchDatabase
    from gateway_batches.runner import Runner

    database = await asyncio.to_thread(BatchDatabase, files.folder)
    try:
        runner = Runner(database, files, config)
        async with runner.running():
            yield BatchesApi(database, files, runner, config)
    finally:
        database.close()


@hookimpl
def gateway_register_apis(register: Register[OpenApiPlugin]) -> None:
    register(
        "batches",
        open_batches,
        config=BatchesConfig,
        summary="/v1/batches",
        needs=("files",),
    )
