"""The interface between the store and a database."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Generator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

T = TypeVar("T")


class Statement(NamedTuple):
    """One SQL statement in PostgreSQL's dialect.

    The store uses a subset that needs few changes for other databases: parameters `$1`, casts `$1::bigint`, `=
    ANY($1::text[])`, `FOR UPDATE` or `FOR SHARE` at the end, `ON CONFLICT`, `RETURNING`, recursive queries. Truth
    values are stored as integers.
    """

    sql: str
    parameters: Sequence[Any] = ()
    each: bool = False
    """Whether the statement is run for each element of `parameters`, without returning rows."""


Rows: TypeAlias = Sequence[Sequence[Any]]
Operation: TypeAlias = Generator[Statement, Rows, T]
"""Yields the statements of one transaction, receives their rows, and returns a result. If the transaction was rolled
back, the operation may be run again."""


class SqlDatabase(Protocol):
    """Runs operations, each of them atomically. Raises `StoreUnavailable` if the database does not answer."""

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation that only reads, and sees a consistent state. Returns its result."""
        ...

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation. Returns its result once its changes are durable. The operation is completed even if the
        caller is cancelled. Its changes are rolled back if it raises."""
        ...

    def now(self) -> float:
        """The Unix time in seconds, by a clock that all processes with this database share."""
        ...

    def announce(self, names: Collection[str]) -> None:
        """Notify the other processes with this database that there is news about these names: keys of response ids, or
        `CANCELS`. A notification may only be lost if a later one says that there may be news about any name. Does not
        wait."""
        ...

    async def health(self) -> None:
        """Return if operations would run; otherwise raise `StoreUnavailable`."""
        ...


CANCELS: Final = "cancel"
"""The name under which requests to cancel are announced."""

_LONGEST_KEY = 200


def key(text: str) -> str:
    """The key of `text`: the text itself, or a digest if an index or a database would not accept the text."""
    if len(text) <= _LONGEST_KEY and text.isprintable():
        return text
    return "\x01" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def owner_key(owner: str | None) -> str:
    """The key of an owner; `None` differs from every name."""
    return "" if owner is None else "=" + key(owner)
