"""Large parts of stored values, each stored once for its owner. See `gateway.sdk.stores.cut`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from gateway.sdk.stores import named_parts, restore
from gateway_sql.statements import Operation, Statement

logger = logging.getLogger("gateway_sql")


def hold(
    owner: str, kind: int, holder: int, items: Mapping[str, Mapping[str, bytes]]
) -> Operation[None]:
    """Store those parts of `items` that are not stored for `owner` yet, and record that the row `holder` uses them.

    To be called in the same transaction as the row is written, and at most once in it: transactions that store the same
    parts must do so in the same order.
    """
    parts = {name: data for each in items.values() for name, data in each.items()}
    if not parts:
        return
    names = sorted(parts)
    # Locked parts are not removed before this transaction has ended. Other transactions may use
    # them at the same time.
    rows = yield Statement(
        "SELECT hash, num FROM parts WHERE owner = $1 AND hash = ANY($2::text[]) ORDER BY hash FOR SHARE",
        (owner, names),
    )
    nums = {str(name): int(num) for name, num in rows}
    for name in names:
        while name not in nums:
            made = yield Statement(
                "INSERT INTO parts (owner, hash, size, data) VALUES ($1, $2, $3, $4) "
                "ON CONFLICT (owner, hash) DO NOTHING RETURNING num",
                (owner, name, len(parts[name]), parts[name]),
            )
            found = made or (
                yield Statement(
                    "SELECT num FROM parts WHERE owner = $1 AND hash = $2 FOR SHARE", (owner, name)
                )
            )
            if found:
                nums[name] = found[0][0]
    yield Statement(
        "INSERT INTO part_uses (kind, holder, item, part) VALUES ($1, $2, $3, $4) ON CONFLICT (kind, holder, item, part) "
        "DO NOTHING",
        [(kind, holder, item, nums[name]) for item, each in items.items() for name in each],
        each=True,
    )


def leave(kind: int, holders: Sequence[int], *, item: str | None = None) -> Operation[None]:
    """Record that these rows, or only their item `item`, do not use any parts any more."""
    only = "" if item is None else " AND item = $3"
    yield Statement(
        f"DELETE FROM part_uses WHERE kind = $1 AND holder = ANY($2::bigint[]){only}",
        (kind, sorted(holders)) if item is None else (kind, sorted(holders), item),
    )


def restored(owner: str, values: Sequence[bytes | None]) -> Operation[list[bytes | None]]:
    """The values as they were before they were cut, in the same order. A value is empty if one of its parts is
    missing."""
    names = {name for value in values for name in named_parts(value)}
    if not names:
        return list(values)
    rows = yield Statement(
        "SELECT hash, data FROM parts WHERE owner = $1 AND hash = ANY($2::text[])",
        (owner, sorted(names)),
    )
    parts = {name: bytes(data) for name, data in rows}
    if missing := names - parts.keys():
        logger.warning("%d large parts of stored values are missing", len(missing))
    return [None if value is None else restore(value, parts) or b"" for value in values]


def remove_unused(limit: int) -> Operation[int]:
    """Remove up to `limit` unused parts, except those that are locked by others. Returns how many were found."""
    # The second statement sees uses that were stored before the first one had its locks.
    rows = yield Statement(
        "SELECT num FROM parts WHERE NOT EXISTS (SELECT 1 FROM part_uses WHERE part = parts.num) "
        "LIMIT $1 FOR UPDATE SKIP LOCKED",
        (limit,),
    )
    if rows:
        yield Statement(
            "DELETE FROM parts WHERE num = ANY($1::bigint[]) AND NOT EXISTS (SELECT 1 FROM part_uses WHERE part = parts.num)",
            ([num for (num,) in rows],),
        )
    return len(rows)


def any_unused() -> Operation[bool]:
    rows = yield Statement(
        "SELECT 1 FROM parts WHERE NOT EXISTS (SELECT 1 FROM part_uses WHERE part = parts.num) LIMIT 1"
    )
    return bool(rows)


def used_bytes() -> Statement:
    """A query for the bytes of each owner's parts."""
    return Statement("SELECT owner, sum(size) FROM parts GROUP BY owner")


def freed(kind: int, row: str) -> str:
    """An SQL expression for the bytes of parts that are freed if a row is removed. The bytes of a part are divided
    between its uses."""
    return (
        "coalesce((SELECT sum(p.size / (SELECT count(*) FROM part_uses o WHERE o.part = p.num)) FROM part_uses u "
        f"JOIN parts p ON p.num = u.part WHERE u.kind = {kind} AND u.holder = {row}.num), 0)"
    )
