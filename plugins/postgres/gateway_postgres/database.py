"""The database: transactions on a pool of connections."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any, Final, TypeVar

import asyncpg  # type: ignore[import-untyped]

from gateway.sdk import ConfigurationError, StoreUnavailable
from gateway.sdk.configuration import without_credentials
from gateway.sdk.processes import Shares
from gateway_postgres.config import PostgresConfig
from gateway_postgres.connection_settings import READ_ONLY, connection_settings, set_session
from gateway_postgres.failures import (
    FAILURES,
    is_away,
    is_of_connection,
    is_read_only,
    is_temporary,
    reason_of,
    unavailable,
)
from gateway_postgres.notifications import Notifications
from gateway_sql import Operation, Statement

T = TypeVar("T")
logger = logging.getLogger("gateway_postgres")

_SYNCHRONIZED_SECONDS: Final = 60.0
"""Seconds, by either clock of this machine, after which the server is asked for its time again."""
_TRIES: Final = 5
"""How often a transaction is run that others have made impossible, or whose connection was ended before its COMMIT was sent."""
_RENEWAL_SECONDS: Final = 1.0
"""Shortest time between two renewals of the connections."""


class PostgresDatabase:
    """Implements `gateway_sql.SqlDatabase` for all gateways with one schema."""

    def __init__(self, config: PostgresConfig) -> None:
        self._config = config
        self._address = without_credentials(config.url)
        self._pool: asyncpg.Pool | None = None
        self._connections = Shares(config.max_connections)
        self._offset = time.time() - time.monotonic()
        self._synchronized = (-math.inf, -math.inf)
        """When the server was last asked for its time, by both clocks."""
        self._renewed = -math.inf
        """When the connections were closed because the server was read-only."""
        self._writes: set[asyncio.Task[Any]] = set()
        self._notifications: Notifications | None = None

    async def open(self) -> None:
        """Open the connections."""
        config = self._config
        self._pool = await asyncpg.create_pool(
            **connection_settings(config),
            command_timeout=config.timeout,
            min_size=1,
            max_size=config.max_connections,
            init=self._begin,
            reset=self._end_use,
        )

    async def check_tables(self) -> None:
        """Raise `ConfigurationError` if connections do not find the tables by their names."""
        found = await self._with_connection(
            lambda connection: connection.fetchval("SELECT to_regclass('schema_version')")
        )
        if found is None:
            raise ConfigurationError(
                f"The store 'postgres' does not find its tables at {self._address}: the search_path of a connection is lost. A pooler such "
                "as PgBouncer has to be in session mode, or the role has to have it: ALTER ROLE … SET search_path = "
                f"{self._config.schema}."
            )

    async def _begin(self, connection: Any) -> None:
        await set_session(connection, self._config)
        await self._synchronize(connection)

    async def _end_use(self, connection: Any) -> None:
        # asyncpg's own reset would cost a round trip, and would take the search_path away. Operations leave nothing behind.
        if connection.is_in_transaction():
            await connection.reset()
            await set_session(connection, self._config)

    async def listen(self, on_announcement: Callable[[Collection[str]], None]) -> None:
        """Call `on_announcement` with the names that other gateways announce; an empty collection means any."""
        self._notifications = Notifications(self._config, on_announcement, self._notify)
        await self._notifications.start()

    async def close(self) -> None:
        """Waits for running operations."""
        if self._writes:
            await asyncio.gather(*self._writes, return_exceptions=True)
        if self._notifications is not None:
            await self._notifications.close()
        if self._pool is not None:
            try:
                async with asyncio.timeout(self._config.timeout):
                    await self._pool.close()
            except (*FAILURES, asyncio.CancelledError):
                self._pool.terminate()

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        return await self._run(operation, isolation="repeatable_read", readonly=True)

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        # A caller that is cancelled does not stop it.
        task = asyncio.create_task(self._run(operation, isolation="read_committed", readonly=False))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_note_failure)
            raise

    def now(self) -> float:
        return time.monotonic() + self._offset

    def announce(self, names: Collection[str]) -> None:
        if self._notifications is not None:
            self._notifications.announce(names)

    async def health(self) -> None:
        async def check(connection: Any) -> None:
            if await connection.fetchval(READ_ONLY):
                raise asyncpg.ReadOnlySQLTransactionError("the server is read-only")

        await self._with_connection(check)

    async def _run(
        self, operation: Callable[[], Operation[T]], *, isolation: Any, readonly: bool
    ) -> T:
        uncommitted = False

        async def work(connection: Any) -> T:
            nonlocal uncommitted
            transaction = connection.transaction(isolation=isolation, readonly=readonly)
            uncommitted = True
            await transaction.start()
            try:
                result = await _drive(connection, operation())
            except BaseException:
                with suppress(*FAILURES):  # what failed first is told
                    await transaction.rollback()
                raise
            uncommitted = False
            await transaction.commit()
            return result

        for _ in range(_TRIES - 1):
            uncommitted = False
            try:
                return await self._with_connection(work)
            except (*FAILURES, StoreUnavailable) as error:
                cause = error.__cause__ if isinstance(error, StoreUnavailable) else error
                if not (is_temporary(cause) or (uncommitted and is_of_connection(cause))):
                    raise
        return await self._with_connection(work)

    async def _with_connection(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Run `work`, and once more on new connections if the server has become read-only.

        A failover can leave the old primary running. Its connections stay open, so that only a write shows that the address
        leads to another server now.
        """
        began = self._renewed
        try:
            return await self._with_pooled(work)
        except StoreUnavailable as error:
            if not is_read_only(error.__cause__):
                raise
            if self._renewed == began and not await self._renew_connections(error):
                raise
        return await self._with_pooled(work)

    async def _renew_connections(self, error: StoreUnavailable) -> bool:
        """Connect again for each operation from now on. Returns whether it did: at most once in `_RENEWAL_SECONDS`."""
        now = time.monotonic()
        if now - self._renewed < _RENEWAL_SECONDS or self._pool is None:
            return False
        self._renewed = now
        logger.warning(
            "PostgreSQL at %s: %s; connecting again", self._address, reason_of(error.__cause__)
        )
        await self._pool.expire_connections()
        if self._notifications is not None:
            self._notifications.renew()
        return True

    async def _with_pooled(self, work: Callable[[Any], Awaitable[T]]) -> T:
        assert self._pool is not None, "it is open"
        timeout = self._config.timeout
        try:
            async with asyncio.timeout(timeout):
                owner = await self._connections.take()
        except TimeoutError as error:
            raise unavailable(self._address, error) from error
        try:
            async with self._pool.acquire(timeout=timeout) as connection:
                monotonic, wall = self._synchronized
                if (
                    time.monotonic() - monotonic > _SYNCHRONIZED_SECONDS
                    or abs(time.time() - wall) > _SYNCHRONIZED_SECONDS
                ):
                    await self._synchronize(connection)
                return await work(connection)
        except FAILURES as error:
            if is_away(error):
                raise unavailable(self._address, error) from error
            raise
        finally:
            self._connections.leave(owner)

    async def _notify(self, channel: str, message: str) -> None:
        await self._with_connection(
            lambda connection: connection.execute("SELECT pg_notify($1, $2)", channel, message)
        )

    async def _synchronize(self, connection: Any) -> None:
        """Learn the server's time: the clocks of gateways may differ, and this one stands still while the machine is suspended."""
        self._synchronized = (time.monotonic(), time.time())
        before = time.monotonic()
        there = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
        self._offset = there - (before + time.monotonic()) / 2


async def _drive(connection: Any, operation: Operation[T]) -> T:
    """Run an operation within the open transaction."""
    try:
        statement: Statement = next(operation)
        while True:
            if statement.each:
                await connection.executemany(statement.sql, statement.parameters)
                statement = operation.send([])
            else:
                rows = await connection.fetch(statement.sql, *statement.parameters)
                statement = operation.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        operation.close()


def _note_failure(write: asyncio.Task[Any]) -> None:
    """Log the failure of a write whose caller was cancelled, and so did not see it."""
    if not write.cancelled() and (error := write.exception()) is not None:
        logger.warning("a write failed after its request had been cancelled: %s", error)
