"""What the store asks of a database."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Generator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

T = TypeVar("T")


class Statement(NamedTuple):
    """One SQL statement in PostgreSQL's dialect.

    The store uses a subset that needs few changes for other databases: parameters `$1`, casts `$1::bigint`,
    `= ANY($1::text[])`, `FOR UPDATE` or `FOR SHARE` at the end, `ON CONFLICT`, `RETURNING`, recursive queries. Conditions are integers.
    """

    sql: str
    parameters: Sequence[Any] = ()
    each: bool = False
    """Whether the statement is run for each element of `parameters`, without returning rows."""


Rows: TypeAlias = Sequence[Sequence[Any]]
Operation: TypeAlias = Generator[Statement, Rows, T]
"""Statements of one transaction and, in the end, its result. It may be run again, if the transaction was rolled back."""


class SqlDatabase(Protocol):
    """Runs operations, each in a transaction of its own. Raises `StoreUnavailable` if the database does not answer."""

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        """The result of an operation that only reads, on a consistent state."""
        ...

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        """The result of an operation, once its changes are durable. It is completed even if the caller is cancelled.
        Changes are rolled back if the operation raises."""
        ...

    def now(self) -> float:
        """The time in seconds, by the clock that all processes with this database share."""
        ...

    def announce(self, names: Collection[str]) -> None:
        """Notify the other processes with this database that these response ids, or `CANCELS`, have news. May lose a
        notification only if it later notifies of everything. Does not wait."""
        ...

    async def health(self) -> None:
        """Return if operations would run; otherwise raise `StoreUnavailable`."""
        ...


CANCELS: Final = "cancel"
"""The name under which requests to cancel are announced."""

_LONGEST_KEY = 200


def key(text: str) -> str:
    """`text` as a key: itself, or a digest where an index or a database would not take it."""
    if len(text) <= _LONGEST_KEY and text.isprintable():
        return text
    return "\x01" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def owner_key(owner: str | None) -> str:
    """The key of an owner; `None` differs from every name."""
    return "" if owner is None else "=" + key(owner)
