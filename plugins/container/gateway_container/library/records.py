"""Containers in the database: their owners and expiry. `owner` is the name of an API key, or empty."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from gateway.sdk import InvalidRequest, NotFound, ParamPath
from gateway.sdk.files import ListQuery, page
from gateway.sdk.wire import Deleted
from gateway_container.config import ContainersConfig
from gateway_container.library.objects import ContainerObject, ExpiresAfter

MadeBy: TypeAlias = Literal["user", "response"]

_LIVES = "active_at + 60 * minutes > ?"
_REMEMBERED: Final = 3600.0
"""Seconds for which an expired container is still reported as expired."""
_IN_USE: Final = 60.0
"""Seconds after its last use during which a container is not deleted to make room for another."""


class ContainerSettings(Struct, frozen=True, kw_only=True):
    """Settings of a container to create."""

    minutes: int
    """Minutes without use after which it expires."""
    name: str = ""
    memory: str | None = None
    """In the API's form: `1g`, `4g`, `16g`, `64g`."""
    file_ids: Sequence[str] = ()
    made_by: MadeBy = "response"


def insert(
    connection: sqlite3.Connection,
    owner: str,
    container_id: str,
    settings: ContainerSettings,
    config: ContainersConfig,
) -> ContainerObject:
    """Store a new container. Raises `InvalidRequest` if the owner has too many."""
    now = time.time()
    [number] = connection.execute(
        f"SELECT count(*) FROM containers WHERE owner = ? AND {_LIVES}",  # noqa: S608 - our own
        (owner, now),
    ).fetchone()
    if number >= config.max_containers and not make_room(connection, owner):
        raise InvalidRequest(
            f"You have {number} containers, this server's limit. Delete some.",
            code="too_many_containers",
        )
    connection.execute(
        "INSERT INTO containers (id, owner, name, created_at, active_at, minutes, memory, made_by) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            container_id,
            owner,
            settings.name,
            now,
            now,
            settings.minutes,
            settings.memory,
            settings.made_by,
        ),
    )
    return get(connection, owner, container_id)


def make_room(connection: sqlite3.Connection, owner: str, *, but: int = 0) -> bool:
    """Delete the least recently used container that an owner's responses created. Returns False if there is none.

    `but` is the number of a container to keep.
    """
    row = connection.execute(
        "DELETE FROM containers WHERE seq = (SELECT seq FROM containers WHERE owner = ? AND made_by = 'response' "
        "AND seq != ? AND active_at < ? ORDER BY active_at LIMIT 1) RETURNING id",
        (owner, but, time.time() - _IN_USE),
    ).fetchone()
    return row is not None


def find(
    connection: sqlite3.Connection, owner: str, container_id: str, param: str | ParamPath = ()
) -> sqlite3.Row:
    """The row of an unexpired container. Raises `NotFound`."""
    row = _row(connection, owner, container_id, param)
    if row["active_at"] + 60 * row["minutes"] <= time.time():
        raise NotFound(
            f"Container with id '{container_id[:100]}' has expired. Make a new one.",
            param=param,
            code="container_expired",
        )
    return row


def _row(
    connection: sqlite3.Connection, owner: str, container_id: str, param: str | ParamPath
) -> sqlite3.Row:
    row: sqlite3.Row | None = connection.execute(
        "SELECT * FROM containers WHERE id = ? AND owner = ?", (container_id, owner)
    ).fetchone()
    if row is None:
        raise NotFound(
            f"Container with id '{container_id[:100]}' not found. It may have expired: make a new one.",
            param=param,
            code="container_not_found",
        )
    return row


def get(connection: sqlite3.Connection, owner: str, container_id: str) -> ContainerObject:
    """A container, including recently expired ones. Raises `NotFound`."""
    return _object(_row(connection, owner, container_id, ()))


def listed(
    connection: sqlite3.Connection, owner: str, query: ListQuery
) -> tuple[list[ContainerObject], bool]:
    """A page of an owner's containers, and whether there are more."""
    rows, more = page(
        connection,
        "containers",
        f"owner = ? AND {_LIVES} AND (? IS NULL OR name = ?)",
        (owner, time.time(), query.chosen, query.chosen),
        query,
        finder(connection, "containers", "owner", owner),
    )
    return [_object(row) for row in rows], more


def finder(
    connection: sqlite3.Connection, table: Literal["containers", "files"], column: str, value: Any
) -> Callable[[str, str], sqlite3.Row]:
    """A function for `page` that finds the rows of `table` whose `column` is `value` by their ids."""

    def find(row_id: str, param: str) -> sqlite3.Row:
        row: sqlite3.Row | None = connection.execute(
            f"SELECT seq FROM {table} WHERE id = ? AND {column} = ?",  # noqa: S608 - our own names
            (row_id, value),
        ).fetchone()
        if row is None:
            raise NotFound(
                f"There is no '{row_id[:100]}' in this list.", param=param, code="not_found"
            )
        return row

    return find


def delete(connection: sqlite3.Connection, owner: str, container_id: str) -> Deleted:
    row = _row(connection, owner, container_id, ())
    connection.execute("DELETE FROM containers WHERE seq = ?", (row["seq"],))
    return Deleted(id=container_id, object="container.deleted")


def touch(connection: sqlite3.Connection, container_ids: Sequence[str]) -> list[str]:
    """Mark containers as in use. Returns those that no longer exist."""
    now = time.time()
    return [
        each
        for each in container_ids
        if not connection.execute(
            "UPDATE containers SET active_at = ? WHERE id = ?", (now, each)
        ).rowcount
    ]


def record_start(connection: sqlite3.Connection, container_id: str) -> int:
    """Record a start of processes in a container, by any process. Returns the number of starts, including this one."""
    row = connection.execute(
        "UPDATE containers SET starts = starts + 1 WHERE id = ? RETURNING starts", (container_id,)
    ).fetchone()
    return row["starts"] if row else 0


def expired_ids(connection: sqlite3.Connection, container_ids: Sequence[str]) -> list[str]:
    """The ids of `container_ids` that are not stored or have expired."""
    now = time.time()
    query = f"SELECT 1 FROM containers WHERE id = ? AND {_LIVES}"  # noqa: S608 - our own
    return [each for each in container_ids if not connection.execute(query, (each, now)).fetchone()]


def sweep_is_due(connection: sqlite3.Connection) -> bool:
    """Whether `sweep` has anything to do."""
    dead = f"NOT ({_LIVES})"
    found = connection.execute(
        f"SELECT 1 FROM containers WHERE ({dead} AND seq IN (SELECT container FROM files)) "  # noqa: S608
        "OR active_at + 60 * minutes <= ? LIMIT 1",
        (time.time(), time.time() - _REMEMBERED),
    ).fetchone()
    return found is not None


def sweep(connection: sqlite3.Connection) -> None:
    """Delete the files of expired containers, and containers that expired long ago."""
    now = time.time()
    connection.execute(
        f"DELETE FROM files WHERE container IN (SELECT seq FROM containers WHERE NOT ({_LIVES}))",  # noqa: S608
        (now,),
    )
    connection.execute(
        "DELETE FROM containers WHERE active_at + 60 * minutes <= ?", (now - _REMEMBERED,)
    )


def _object(row: sqlite3.Row) -> ContainerObject:
    expired = row["active_at"] + 60 * row["minutes"] <= time.time()
    return ContainerObject(
        id=row["id"],
        created_at=int(row["created_at"]),
        status="expired" if expired else "running",
        expires_after=ExpiresAfter(anchor="last_active_at", minutes=row["minutes"]),
        last_active_at=int(row["active_at"]),
        name=row["name"],
        memory_limit=row["memory"],
    )
