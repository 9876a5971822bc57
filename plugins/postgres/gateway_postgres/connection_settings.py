"""The settings of a connection to PostgreSQL."""

from __future__ import annotations

from typing import Any, Final

from gateway_postgres.config import PostgresConfig

_IDLE_MILLISECONDS: Final = "3000"
"""Time after which the server ends a transaction whose gateway is silent."""


def connection_settings(config: PostgresConfig) -> dict[str, Any]:
    """Arguments of asyncpg for each connection."""
    settings: dict[str, Any] = {
        "dsn": config.url,
        "timeout": config.connect_timeout,
        "server_settings": {
            "search_path": f'"{config.schema}"',
            "application_name": "litegate",
            # A process that is stopped in a transaction must not lock its responses for the others.
            "idle_in_transaction_session_timeout": _IDLE_MILLISECONDS,
        },
    }
    if config.username is not None:
        settings["user"] = config.username
    if config.password is not None:
        settings["password"] = config.password
    return settings
