"""Registers the store `sqlite`, and opens it from its configuration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.sdk import OpenStore, Register, hookimpl
from gateway_sqlite.config import SqliteConfig

if TYPE_CHECKING:
    from gateway_sql import SqlStore


@asynccontextmanager
async def open_sqlite(config: SqliteConfig) -> AsyncIterator[SqlStore]:
    """Open the store in the file of `config`. Creates the file if it is missing."""
    # Imported here, so that listing plugins does not import SQLite.
    from gateway_sql import SqlStore, StoreLimits
    from gateway_sqlite.database import SqliteDatabase
    from gateway_sqlite.peers import Peers
    from gateway_sqlite.schema import prepare

    path = config.file()
    await asyncio.to_thread(prepare, path, config)
    bounds = StoreLimits(
        responses=config.max_responses,
        conversations=config.max_conversations,
        completions=config.max_completions,
        bytes=config.max_bytes,
        ttl=config.ttl,
    )
    database = SqliteDatabase(path, config)
    try:
        store = SqlStore(database, bounds)
        database.peers = Peers(Path(f"{path}.sockets"), store.announced)
        try:
            async with store.running():
                yield store
        finally:
            database.peers.close()
            database.peers = None
    finally:
        await database.close()


@hookimpl
def gateway_register_stores(register: Register[OpenStore]) -> None:
    register(
        "sqlite",
        open_sqlite,
        config=SqliteConfig,
        summary="in a file, shared by the gateways of one machine: kept when the server stops",
    )
