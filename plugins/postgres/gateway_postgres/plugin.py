"""Opens the store from the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.sdk import ConfigurationError, OpenStore, Register, StoreUnavailable, hookimpl
from gateway.sdk.configuration import without_credentials
from gateway_postgres.config import PostgresConfig

if TYPE_CHECKING:
    from gateway_sql import SqlStore


@asynccontextmanager
async def open_postgres(config: PostgresConfig) -> AsyncIterator[SqlStore]:
    """The store in the database of `config`, whose tables are created if they are missing. The database must be
    reachable at start-up; later outages are tolerated."""
    # Imported here, so that listing plugins does not import a database driver.
    import asyncpg  # type: ignore[import-untyped]

    from gateway_postgres.connection_settings import connection_settings
    from gateway_postgres.database import PostgresDatabase
    from gateway_postgres.failures import FAILURES, reason_of
    from gateway_postgres.schema import prepare
    from gateway_sql import SqlStore, StoreLimits

    address = without_credentials(config.url)
    database = PostgresDatabase(config)
    bounds = StoreLimits(
        responses=config.max_responses,
        conversations=config.max_conversations,
        completions=config.max_completions,
        bytes=config.max_bytes,
        ttl=config.ttl,
    )
    store = SqlStore(database, bounds, outage=config.outage)
    try:
        try:
            async with asyncio.timeout(config.connect_timeout + config.timeout):
                connection = await asyncpg.connect(**connection_settings(config))
                try:
                    await prepare(connection, config.schema)
                finally:
                    await connection.close()
                await database.open()
                await database.check_tables()
                await database.listen(store.announced)
        except (ValueError, asyncpg.ClientConfigurationError):
            raise ConfigurationError(
                f'[stores.postgres] url = "{address}" cannot be used: write postgresql://user@host:port/database.'
            ) from None
        except (*FAILURES, StoreUnavailable) as error:
            raise ConfigurationError(
                f"The store 'postgres' cannot be reached at {address}: {reason_of(error)}. Start it, or correct url under "
                "[stores.postgres]."
            ) from None
        async with store.running():
            yield store
    finally:
        await database.close()


@hookimpl
def gateway_register_stores(register: Register[OpenStore]) -> None:
    register(
        "postgres",
        open_postgres,
        config=PostgresConfig,
        summary="in PostgreSQL, shared by many replicas: responses, event logs and conversations",
    )
