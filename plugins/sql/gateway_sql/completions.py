"""Stored chat completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gateway.sdk import CompletionPage, Order, StoredCompletion
from gateway.sdk.stores import Cut, pack_json, unpack_completion, unpack_metadata
from gateway.sdk.wire import StoredChatCompletion
from gateway_sql import parts
from gateway_sql.schema import OF_COMPLETION
from gateway_sql.statements import Operation, Rows, Statement, key, owner_key

_PASSED_AT_ONCE: Final = 500
"""Number of completions whose model and metadata are read by one statement."""


def put(record: StoredCompletion, metadata: bytes, cut: Cut, now: float) -> Operation[None]:
    """Store a completion as the latest. Replaces a completion with the same id."""
    completion, data = record.completion, cut.data
    gone = yield Statement(
        "DELETE FROM completions WHERE id = $1 RETURNING num, parts", (key(record.id),)
    )
    yield from _leave(gone)
    made = yield Statement(
        "INSERT INTO completions (id, owner, model, metadata, data, size, used, parts) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING num",
        (
            key(record.id),
            owner_key(record.owner),
            key(completion.model),
            metadata,
            data,
            len(data) + len(metadata),
            now,
            len(cut.parts),
        ),
    )
    yield from parts.hold(owner_key(record.owner), OF_COMPLETION, made[0][0], {"": cut.parts})


def _leave(gone: Rows) -> Operation[None]:
    """Release the parts of removed rows. `gone` are their columns `num` and `parts`."""
    if any(uses for _, uses in gone):
        yield from parts.leave(OF_COMPLETION, [num for num, _ in gone])


def get(
    completion_id: str, owner: str | None, since: float
) -> Operation[tuple[StoredCompletion | None, int, float] | None]:
    """A completion with its row and the time of its last use."""
    rows = yield Statement(
        "SELECT data, metadata, num, used FROM completions WHERE id = $1 AND owner = $2 AND used > $3",
        (key(completion_id), owner_key(owner), since),
    )
    if not rows:
        return None
    packed, metadata, num, used = rows[0]
    [data] = yield from parts.restored(owner_key(owner), [packed])
    return _record(completion_id, data, metadata), num, used


def update(
    completion_id: str, metadata: Mapping[str, str], owner: str | None, now: float, ttl: float
) -> Operation[StoredCompletion | None]:
    """Replace a completion's metadata."""
    packed = pack_json(metadata)
    rows = yield Statement(
        "UPDATE completions SET metadata = $4, size = length(data) + length($4::bytea), used = $5 "
        "WHERE id = $1 AND owner = $2 AND used > $3 RETURNING data",
        (key(completion_id), owner_key(owner), now - ttl, packed, now),
    )
    if not rows:
        return None
    [data] = yield from parts.restored(owner_key(owner), [rows[0][0]])
    return _record(completion_id, data, packed)


def delete(completion_id: str, owner: str | None, since: float) -> Operation[bool]:
    rows = yield Statement(
        "DELETE FROM completions WHERE id = $1 AND owner = $2 AND used > $3 RETURNING num, parts",
        (key(completion_id), owner_key(owner), since),
    )
    yield from _leave(rows)
    return bool(rows)


def evict(num: int) -> Operation[None]:
    """Remove a completion."""
    gone = yield Statement("DELETE FROM completions WHERE num = $1 RETURNING num, parts", (num,))
    yield from _leave(gone)


def page(
    *,
    after: str | None,
    limit: int,
    order: Order,
    model: str | None,
    metadata: Mapping[str, str],
    owner: str | None,
    since: float,
) -> Operation[CompletionPage | None]:
    """A page of an owner's completions."""
    at = -1 if order == "asc" else 1 << 60
    if after is not None:
        rows = yield Statement(
            "SELECT num FROM completions WHERE id = $1 AND owner = $2 AND used > $3",
            (key(after), owner_key(owner), since),
        )
        if not rows:
            return None
        at = rows[0][0]
    comparison, direction = (">", "ASC") if order == "asc" else ("<", "DESC")
    filters = model is not None or bool(metadata)
    size = _PASSED_AT_ONCE if filters else limit + 1
    fitting: list[int] = []
    while len(fitting) <= limit:
        rows = yield Statement(
            f"SELECT num, model, metadata FROM completions WHERE owner = $1 AND num {comparison} $2 AND used > $3 "
            f"ORDER BY num {direction} LIMIT $4",
            (owner_key(owner), at, since, size),
        )
        for num, name, packed in rows:
            at = num
            if model is not None and name != key(model):
                continue
            known = unpack_metadata(packed, of="a completion") if metadata else {}
            if known is not None and metadata.items() <= known.items():
                fitting.append(num)
        if len(rows) < size:
            break
    wanted = fitting[:limit]
    rows = yield Statement(
        "SELECT num, data, metadata FROM completions WHERE num = ANY($1::bigint[])", (wanted,)
    )
    whole = yield from parts.restored(owner_key(owner), [data for _, data, _ in rows])
    read = {
        num: _record("a completion", data, packed)
        for (num, _, packed), data in zip(rows, whole, strict=True)
    }
    found: list[StoredChatCompletion] = []
    for num in wanted:
        record = read.get(num)
        if record is not None:
            found.append(record.completion)
    return CompletionPage(completions=found, has_more=len(fitting) > limit)


def touch(num: int, now: float) -> Operation[None]:
    """Mark a completion as used now."""
    yield Statement("UPDATE completions SET used = $2 WHERE num = $1 AND used < $2", (num, now))


def _record(completion_id: str, data: bytes | None, metadata: bytes) -> StoredCompletion | None:
    """The stored completion with its current metadata."""
    record = unpack_completion(data or b"", of=completion_id)
    now = unpack_metadata(metadata, of=completion_id)
    if record is None or now is None:
        return None
    completion = msgspec.structs.replace(record.completion, metadata=now)
    return msgspec.structs.replace(record, completion=completion)
