"""Which errors mean that the database does not answer, and which that a transaction has to be run again."""

from __future__ import annotations

import re
from typing import Final

import asyncpg  # type: ignore[import-untyped]

from gateway.sdk import StoreUnavailable

_AWAY: Final = (
    "08",
    "25006",
    "25P03",
    "28",
    "3D",
    "40",
    "42501",
    "42P01",
    "53",
    "55P03",
    "57",
    "58",
    "XX",
)
"""SQLSTATEs, or their classes: connections, read-only servers, transactions that were silent for too long, rights, a missing database or table, transactions that the
server has rolled back again and again, resources, locks, shutdown, the operating system, internal errors."""
_AGAIN: Final = ("25P03", "40001", "40P01")
"""A transaction that was silent for too long, serialization failures, deadlocks: the server has rolled the transaction back."""

FAILURES: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
"""What asyncpg raises. Internal errors come from connections that the server has ended amid an operation."""


def is_away(error: BaseException) -> bool:
    """Whether `error` says that the database does not answer; otherwise it is a mistake in the program."""
    if isinstance(error, asyncpg.PostgresError):
        return str(getattr(error, "sqlstate", "") or "").startswith(_AWAY)
    return isinstance(error, FAILURES)


def is_read_only(error: BaseException | None) -> bool:
    """Whether `error` says that the server takes no writes."""
    return isinstance(error, asyncpg.ReadOnlySQLTransactionError)


def is_temporary(error: BaseException | None) -> bool:
    """Whether the transaction can be run again at once."""
    # After a migration by another process, a prepared statement is out of date.
    return isinstance(error, asyncpg.InvalidCachedStatementError) or (
        isinstance(error, asyncpg.PostgresError) and getattr(error, "sqlstate", None) in _AGAIN
    )


def is_of_connection(error: BaseException | None) -> bool:
    """Whether `error` says that the connection has ended, rather than that the server does not answer.

    The server ends the connection of a gateway that was silent in a transaction: it was suspended, or its machine is busy.
    """
    return isinstance(
        error, asyncpg.PostgresConnectionError | asyncpg.InternalClientError | ConnectionError
    )


def reason_of(error: BaseException | None) -> str:
    """The reason of a failure, for messages."""
    return re.sub(r"\s+", " ", str(error or "")).rstrip(". ") or "no answer"


def unavailable(address: str, error: BaseException) -> StoreUnavailable:
    """The error that the gateway understands."""
    failure = StoreUnavailable(
        f"The store does not answer (PostgreSQL at {address}: {reason_of(error)}). Retry, or send store: false."
    )
    failure.__cause__ = error
    return failure
