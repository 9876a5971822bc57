"""Pages of lists, as in OpenAI's APIs."""

# ruff: noqa: S608 (statements are composed only of the callers' own names and conditions; values are bound)

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gateway.base.errors import InvalidRequest
from gateway.wire.field_errors import not_among


class ListQuery(Struct, frozen=True, kw_only=True):
    """The requested page of a list."""

    after: str | None
    before: str | None
    limit: int
    descending: bool
    chosen: str | None
    """The value of the filter parameter."""


def list_query(
    query: Mapping[str, str], *, chosen: str = "", most: int = 100, limit: int = 20
) -> ListQuery:
    """Read the list query from a query string. `chosen` is the name of its filter parameter. Raises
    `InvalidRequest`."""
    given = query.get("limit", str(limit))
    if not given.isascii() or not given.isdecimal() or not 1 <= int(given[:9]) <= most:
        raise InvalidRequest(
            f"Invalid 'limit': '{given[:100]}'. It is a whole number from 1 to {most}.",
            param="limit",
            code="invalid_value",
        )
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise not_among("order", order, ["asc", "desc"])
    return ListQuery(
        after=query.get("after") or None,
        before=query.get("before") or None,
        limit=int(given),
        descending=order == "desc",
        chosen=query.get(chosen) or None,
    )


def page(
    connection: sqlite3.Connection,
    table: str,
    where: str,
    values: Sequence[Any],
    query: ListQuery,
    find: Callable[[str, str], sqlite3.Row],
) -> tuple[list[sqlite3.Row], bool]:
    """The rows of a page, and whether there are more.

    They are the rows of `table` for which the condition `where` holds, with its `values`, between the rows of
    `query.after` and `query.before`. `find` takes an id and the name of its parameter (`after` or `before`), and
    returns the row, or raises an error.
    """
    after = None if query.after is None else find(query.after, "after")["seq"]
    before = None if query.before is None else find(query.before, "before")["seq"]
    if query.descending:
        after, before = before, after
    # With `before` alone, the page ends directly before that row.
    backwards = query.before is not None and query.after is None
    order = "DESC" if query.descending != backwards else "ASC"
    rows = connection.execute(
        f"SELECT * FROM {table} WHERE {where} AND (? IS NULL OR seq > ?) AND (? IS NULL OR seq < ?) "
        f"ORDER BY seq {order} LIMIT ?",
        (*values, after, after, before, before, query.limit + 1),
    ).fetchall()
    shown = rows[: query.limit]
    return (shown[::-1] if backwards else shown), len(rows) > query.limit
