"""The settings of a connection to PostgreSQL."""

from __future__ import annotations

from typing import Any, Final

from gateway.sdk.configuration import read_secret_file
from gateway_postgres.config import PostgresConfig

_IDLE_MILLISECONDS: Final = "3000"
"""Time after which the server ends a transaction whose gateway is silent: a process that is stopped in a transaction must not
lock its responses for the others."""

READ_ONLY: Final = "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean"
"""Whether the server takes no writes: it is a standby, or an old primary that was left running after a failover."""


def connection_settings(config: PostgresConfig) -> dict[str, Any]:
    """Arguments of asyncpg for each connection."""
    settings: dict[str, Any] = {
        "dsn": config.url,
        "timeout": config.connect_timeout,
        "server_settings": {"application_name": "litegate"},
    }
    if config.username is not None:
        settings["user"] = config.username
    if config.password is not None:
        settings["password"] = config.password
    if (file := config.password_file) is not None:

        def password() -> str:
            return read_secret_file(file, "password_file under [stores.postgres]")

        settings["password"] = password  # asked for each connection
    return settings


async def set_session(connection: Any, config: PostgresConfig) -> None:
    """Set what each session has to have. Not sent at the connection's start: poolers such as PgBouncer reject most parameters there,
    or drop them in silence."""
    await connection.execute(
        f'SET search_path = "{config.schema}"; SET idle_in_transaction_session_timeout = {_IDLE_MILLISECONDS}'
    )
