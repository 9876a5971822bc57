"""Containers in the database: whose they are, and when they expire. `owner` is the name of an API key, or empty."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from gateway.errors import InvalidRequest, NotFound
from gateway.wire.decoding import not_among
from gateway_container.config import ContainersConfig
from gateway_container.kept.objects import ContainerObject, Deleted, ExpiresAfter

MadeBy: TypeAlias = Literal["user", "response"]

_LIVES = "active_at + 60 * minutes > ?"
_REMEMBERED: Final = 3600.0
"""Seconds for which an expired container is told of as expired."""
_IN_USE: Final = 60.0
"""Seconds since its last use in which a container is not taken to make room for another."""


class Wish(Struct, frozen=True, kw_only=True):
    """A container that is to be made."""

    minutes: int
    """Without use, after which it expires."""
    name: str = ""
    memory: str | None = None
    """As the API has it: `1g`, `4g`, `16g`, `64g`."""
    file_ids: Sequence[str] = ()
    made_by: MadeBy = "response"


class ListQuery(Struct, frozen=True, kw_only=True):
    """Which part of a list is asked for."""

    after: str | None
    limit: int
    descending: bool
    name: str | None = None


def not_found(container_id: str, param: str | None = None) -> NotFound:
    return NotFound(
        f"Container with id '{container_id[:100]}' not found. It may have expired: make a new one.",
        param=param,
        code="container_not_found",
    )


def insert(
    connection: sqlite3.Connection,
    owner: str,
    container_id: str,
    wish: Wish,
    config: ContainersConfig,
) -> ContainerObject:
    """Keep a new container. Raises `InvalidRequest` where the owner has too many."""
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
        (container_id, owner, wish.name, now, now, wish.minutes, wish.memory, wish.made_by),
    )
    return get(connection, owner, container_id)


def make_room(connection: sqlite3.Connection, owner: str, *, but: int = 0) -> bool:
    """Delete the container of an owner's responses that was not used for longest; False where there is none.

    `but` is the number of one that stays.
    """
    row = connection.execute(
        "DELETE FROM containers WHERE seq = (SELECT seq FROM containers WHERE owner = ? AND made_by = 'response' "
        "AND seq != ? AND active_at < ? ORDER BY active_at LIMIT 1) RETURNING id",
        (owner, but, time.time() - _IN_USE),
    ).fetchone()
    return row is not None


def find(
    connection: sqlite3.Connection, owner: str, container_id: str, param: str | None = None
) -> sqlite3.Row:
    """The row of a container that has not expired. Raises `NotFound`."""
    row = _row(connection, owner, container_id, param)
    if row["active_at"] + 60 * row["minutes"] <= time.time():
        raise NotFound(
            f"Container with id '{container_id[:100]}' has expired. Make a new one.",
            param=param,
            code="container_expired",
        )
    return row


def _row(
    connection: sqlite3.Connection, owner: str, container_id: str, param: str | None
) -> sqlite3.Row:
    row: sqlite3.Row | None = connection.execute(
        "SELECT * FROM containers WHERE id = ? AND owner = ?", (container_id, owner)
    ).fetchone()
    if row is None:
        raise not_found(container_id, param)
    return row


def get(connection: sqlite3.Connection, owner: str, container_id: str) -> ContainerObject:
    """Also one that has expired of late. Raises `NotFound`."""
    return _object(_row(connection, owner, container_id, None))


def listed(
    connection: sqlite3.Connection, owner: str, query: ListQuery
) -> tuple[list[ContainerObject], bool]:
    """A page of an owner's containers, and whether there are more."""
    where, values = f"owner = ? AND {_LIVES}", [owner, time.time()]
    if query.name is not None:
        where, values = f"{where} AND name = ?", [*values, query.name]
    rows, more = page(connection, "containers", where, values, query)
    return [_object(row) for row in rows], more


def page(
    connection: sqlite3.Connection,
    table: Literal["containers", "files"],
    where: str,
    values: list[Any],
    query: ListQuery,
) -> tuple[list[sqlite3.Row], bool]:
    """The rows of a page, in the order in which they were made or the other, and whether there are more."""
    compare, order = ("<", "DESC") if query.descending else (">", "ASC")
    if query.after is not None:
        start = connection.execute(
            f"SELECT seq FROM {table} WHERE id = ? AND {where}",  # noqa: S608 - our own names
            (query.after, *values),
        ).fetchone()
        if start is None:
            raise NotFound(
                f"There is no '{query.after[:100]}' in this list.", param="after", code="not_found"
            )
        where, values = f"{where} AND seq {compare} ?", [*values, start["seq"]]
    rows = connection.execute(
        f"SELECT * FROM {table} WHERE {where} ORDER BY seq {order} LIMIT ?",  # noqa: S608
        (*values, query.limit + 1),
    ).fetchall()
    return rows[: query.limit], len(rows) > query.limit


def delete(connection: sqlite3.Connection, owner: str, container_id: str) -> Deleted:
    row = _row(connection, owner, container_id, None)
    connection.execute("DELETE FROM containers WHERE seq = ?", (row["seq"],))
    return Deleted(id=container_id, object="container.deleted")


def touch(connection: sqlite3.Connection, container_ids: Sequence[str]) -> list[str]:
    """Note that they are in use; returns those that are there no more."""
    now = time.time()
    return [
        each
        for each in container_ids
        if not connection.execute(
            "UPDATE containers SET active_at = ? WHERE id = ?", (now, each)
        ).rowcount
    ]


def started(connection: sqlite3.Connection, container_id: str) -> int:
    """Note that processes were started in a container, by any process; how often they were, this time included."""
    row = connection.execute(
        "UPDATE containers SET starts = starts + 1 WHERE id = ? RETURNING starts", (container_id,)
    ).fetchone()
    return row["starts"] if row else 0


def gone(connection: sqlite3.Connection, container_ids: Sequence[str]) -> list[str]:
    """Those of `container_ids` that are not kept, or have expired."""
    now = time.time()
    query = f"SELECT 1 FROM containers WHERE id = ? AND {_LIVES}"  # noqa: S608 - our own
    return [each for each in container_ids if not connection.execute(query, (each, now)).fetchone()]


def due(connection: sqlite3.Connection) -> bool:
    """Whether `sweep` has anything to do."""
    dead = f"NOT ({_LIVES})"
    found = connection.execute(
        f"SELECT 1 FROM containers WHERE ({dead} AND seq IN (SELECT container FROM files)) "  # noqa: S608
        "OR active_at + 60 * minutes <= ? LIMIT 1",
        (time.time(), time.time() - _REMEMBERED),
    ).fetchone()
    return found is not None


def sweep(connection: sqlite3.Connection) -> None:
    """Delete the files of what has expired, and what has long expired."""
    now = time.time()
    connection.execute(
        f"DELETE FROM files WHERE container IN (SELECT seq FROM containers WHERE NOT ({_LIVES}))",  # noqa: S608
        (now,),
    )
    connection.execute(
        "DELETE FROM containers WHERE active_at + 60 * minutes <= ?", (now - _REMEMBERED,)
    )
    connection.execute("PRAGMA incremental_vacuum").fetchall()  # gives the disk back


def list_query(query: Mapping[str, str]) -> ListQuery:
    """What a query string asks for. Raises `InvalidRequest`."""
    given = query.get("limit", "20")
    if not given.isascii() or not given.isdecimal() or not 1 <= int(given[:9]) <= 100:
        raise InvalidRequest(
            f"Invalid 'limit': '{given[:100]}'. It is a whole number from 1 to 100.",
            param="limit",
            code="invalid_value",
        )
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise not_among("order", order, ["asc", "desc"])
    return ListQuery(
        after=query.get("after") or None,
        limit=int(given),
        descending=order == "desc",
        name=query.get("name"),
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
