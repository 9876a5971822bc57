"""Shared values."""

from __future__ import annotations

from gateway_sql.statements import Operation, Statement, key, owner_key

_MAX_VALUES = 100_000
"""Maximum number of values per owner."""
_MAX_BYTES = 64 << 20
"""Maximum total size of one owner's values, in bytes. Values of up to `_SMALL` bytes are only limited by their
number."""
_SMALL = 1024


def compare_and_set(
    name: str,
    value: bytes,
    expected: bytes | None,
    seconds: float,
    owner: str | None,
    now: float,
) -> Operation[bytes | None]:
    """See `SharedValues.compare_and_set`."""
    who, what = owner_key(owner), key(name)
    yield Statement(
        "INSERT INTO value_owners (owner, number, bytes) VALUES ($1, 0, 0) ON CONFLICT (owner) DO NOTHING",
        (who,),
    )
    rows = yield Statement(
        "SELECT number, bytes FROM value_owners WHERE owner = $1 FOR UPDATE", (who,)
    )
    number, size = rows[0]
    gone = yield Statement(
        "DELETE FROM shared_values WHERE owner = $1 AND until <= $2 RETURNING length(value)",
        (who, now),
    )
    number -= len(gone)
    size -= sum(each for (each,) in gone)
    found = yield Statement(
        "SELECT value FROM shared_values WHERE owner = $1 AND name = $2", (who, what)
    )
    held = bytes(found[0][0]) if found else None
    others = size - len(held or b"")
    fits = (held is not None or number < _MAX_VALUES) and (
        len(value) <= _SMALL or others + len(value) <= _MAX_BYTES
    )
    if held == expected and fits:
        yield Statement(
            "INSERT INTO shared_values (owner, name, value, until) VALUES ($1, $2, $3, $4) "
            "ON CONFLICT (owner, name) DO UPDATE SET value = excluded.value, until = excluded.until",
            (who, what, value, now + seconds),
        )
        number += held is None
        size = others + len(value)
        held = value
    yield Statement(
        "UPDATE value_owners SET number = $2, bytes = $3 WHERE owner = $1", (who, number, size)
    )
    return held


def get(name: str, owner: str | None, now: float) -> Operation[bytes | None]:
    """The value `name`."""
    rows = yield Statement(
        "SELECT value FROM shared_values WHERE owner = $1 AND name = $2 AND until > $3",
        (owner_key(owner), key(name), now),
    )
    return bytes(rows[0][0]) if rows else None


def expire(now: float, limit: int) -> Operation[int]:
    """Delete up to `limit` expired values. Returns how many were found. Needed for owners that set no further
    values."""
    rows = yield Statement(
        "SELECT owner, name FROM shared_values WHERE until <= $1 ORDER BY until LIMIT $2",
        (now, limit),
    )
    for owner in sorted({owner for owner, _ in rows}):
        yield Statement("SELECT 1 FROM value_owners WHERE owner = $1 FOR UPDATE", (owner,))
        names = [name for each, name in rows if each == owner]
        gone = yield Statement(
            "DELETE FROM shared_values WHERE owner = $1 AND name = ANY($2::text[]) AND until <= $3 "
            "RETURNING length(value)",
            (owner, names, now),
        )
        yield Statement(
            "UPDATE value_owners SET number = number - $2, bytes = bytes - $3 WHERE owner = $1",
            (owner, len(gone), sum(each for (each,) in gone)),
        )
    return len(rows)
