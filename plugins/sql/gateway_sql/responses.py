"""Responses and their histories."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from gateway.sdk import UNFINISHED, CallRecord, StoredResponse
from gateway.sdk.stores import cut, pack, unpack_items, unpack_record, unpack_results
from gateway.sdk.wire import Item, ResponseStatus
from gateway_sql import parts
from gateway_sql.schema import FINISHED, KEPT, OF_RESPONSE, RUNNING
from gateway_sql.statements import Operation, Rows, Statement, key, owner_key

logger = logging.getLogger("gateway_sql")

_LONGEST_CHAIN = 100_000
_HOMES = 8
"""Maximum number of responses that are searched for one item."""

_ALIVE = f"(state = {RUNNING} OR state = {FINISHED} AND used > $2)"


class EncodedRecord(NamedTuple):
    """A record in the form in which it is stored. It is encoded before the transaction begins."""

    record: StoredResponse
    meta: bytes
    sent: bytes
    made: bytes
    results: bytes | None
    parts: Mapping[str, bytes]
    """The large parts of all of these, by hash."""
    token: str

    @classmethod
    def of(cls, record: StoredResponse, token: str) -> EncodedRecord:
        bare = msgspec.structs.replace(record.response, output=[])
        meta = cut(pack(msgspec.structs.replace(record, response=bare, input=[], results={})))
        sent, made = cut(pack(record.input)), cut(pack(record.response.output))
        results = cut(pack(record.results)) if record.results else None
        large = {**meta.parts, **sent.parts, **made.parts, **(results.parts if results else {})}
        return cls(
            record, meta.data, sent.data, made.data, results.data if results else None, large, token
        )

    @property
    def size(self) -> int:
        """Size of the record in bytes, without its events and its large parts."""
        return len(self.meta) + self.own_size

    @property
    def own_size(self) -> int:
        """Size in bytes of the part of the record that descendants need."""
        return len(self.sent) + len(self.made) + len(self.results or b"")

    @property
    def most_size(self) -> int:
        """Number of bytes to store if none of the large parts is stored yet."""
        return self.size + sum(map(len, self.parts.values()))


class Put(Struct, frozen=True):
    """The operation that stores a record. A database may store several `simple` ones together by `insert_all`."""

    written: EncodedRecord
    now: float
    ttl: float

    def __call__(self) -> Operation[bool]:
        return put(self.written, now=self.now, ttl=self.ttl)

    @property
    def simple(self) -> bool:
        """Whether the record continues no response and has no large parts. If such a record is new, storing it does not
        depend on other rows."""
        return not self.written.parts and not _previous(self.written.record)


def insert_all(puts: Sequence[Put], after: int) -> Operation[None]:
    """Store simple records in rows with the numbers from `after` + 1 on. All of them must be new."""
    rows: list[tuple[Any, ...]] = []
    items: list[tuple[str, str, int, int]] = []
    for num, each in enumerate(puts, after + 1):
        record = each.written.record
        rows.append((num, key(record.id), *_columns(each.written, None, 0, now=each.now)))
        items += _item_rows(num, record)
    yield Statement(
        "INSERT INTO responses (num, id, owner, state, status, attempt, streamed, meta, sent, made, results, parent, "
        "previous, broken, size, used, token, parts) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, "
        "$14, $15, $16, $17, $18)",
        rows,
        each=True,
    )
    yield Statement(
        "INSERT INTO items (owner, item, response, called) VALUES ($1, $2, $3, $4)",
        items,
        each=True,
    )


def put(
    written: EncodedRecord,
    *,
    now: float,
    ttl: float,
    expected: Collection[ResponseStatus] | None = None,
    attempt: int = 0,
) -> Operation[bool]:
    """Store a record. Returns whether it is stored.

    With `expected`, it is only stored if there is a record with one of these statuses and with the attempt `attempt`.
    """
    record = written.record
    name = key(record.id)
    # Most records are new, and continue no response. Otherwise the row of that response must be
    # locked first.
    if expected is None and not _previous(record):
        made = yield from _insert(written, None, 0, now=now)
        if made:
            return True
    while True:
        rows = yield Statement(
            "SELECT num, owner, state, status, attempt, previous, parent, broken, token, used, parts FROM responses "
            "WHERE id = $1 FOR UPDATE",
            (name,),
        )
        if expected is not None:
            if not rows or (rows[0][2] != RUNNING and rows[0][9] <= now - ttl):
                return False
            _, _, _, status, stored, _, _, _, token, _, _ = rows[0]
            if status not in expected or stored != attempt:
                return bool(
                    token == written.token
                )  # repeated: the answer to the first call was lost
        if rows:
            yield from _update(written, rows[0], now=now, ttl=ttl)
            return True
        parent, broken = yield from _parent(record, now - ttl)
        made = yield from _insert(written, parent, broken, now=now)
        if made:
            return True


def _insert(written: EncodedRecord, parent: Any, broken: Any, *, now: float) -> Operation[bool]:
    """Store a new record. If there is a record with its id, changes nothing and returns False."""
    record = written.record
    rows = yield Statement(
        "INSERT INTO responses (id, owner, state, status, attempt, streamed, meta, sent, made, results, parent, "
        "previous, broken, size, used, token, parts) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, "
        "$14, $15, $16, $17) ON CONFLICT (id) DO NOTHING RETURNING num",
        (key(record.id), *_columns(written, parent, broken, now=now)),
    )
    if not rows:
        return False
    yield from parts.hold(owner_key(record.owner), OF_RESPONSE, rows[0][0], {"": written.parts})
    yield from _index(rows[0][0], record)
    return True


def _columns(written: EncodedRecord, parent: Any, broken: Any, *, now: float) -> tuple[Any, ...]:
    """The values of a row except its number and its id, in the order of the statements."""
    record = written.record
    return (
        owner_key(record.owner),
        RUNNING if record.response.status in UNFINISHED else FINISHED,
        record.response.status,
        record.attempt,
        int(record.streamed),
        written.meta,
        written.sent,
        written.made,
        written.results,
        parent,
        _previous(record),
        broken,
        written.size,
        now,
        written.token,
        len(written.parts),
    )


def _update(
    written: EncodedRecord, row: Sequence[Any], *, now: float, ttl: float
) -> Operation[None]:
    record = written.record
    num, owner, _, _, _, previous, parent, broken, _, _, uses = row
    if _previous(record) != previous or owner != owner_key(record.owner):
        # Otherwise the row of the continued response is still there, even if this response was
        # removed.
        parent, broken = yield from _parent(record, now - ttl)
    yield Statement(
        "UPDATE responses SET owner = $2, state = $3, status = $4, attempt = $5, streamed = $6, meta = $7, sent = $8, "
        "made = $9, results = $10, parent = $11, previous = $12, broken = $13, size = $14, used = $15, token = $16, "
        "parts = $17 WHERE num = $1",
        (num, *_columns(written, parent, broken, now=now)),
    )
    if uses:
        yield from parts.leave(OF_RESPONSE, [num])
    yield from parts.hold(owner_key(record.owner), OF_RESPONSE, num, {"": written.parts})
    items = sorted({key(item.id) for item in _items(record)})
    yield Statement(
        "DELETE FROM items WHERE response = $1 AND (owner <> $2 OR NOT item = ANY($3::text[]))",
        (num, owner_key(record.owner), items),
    )
    yield from _index(num, record)
    running = record.response.status in UNFINISHED
    yield Statement(
        "UPDATE logs SET attempt = $2, is_open = $3, owner = $4 WHERE id = $1",
        (key(record.id), record.attempt, int(running), owner_key(record.owner)),
    )
    if not running and not record.streamed:
        yield Statement("DELETE FROM leases WHERE id = $1", (key(record.id),))


def _index(num: int, record: StoredResponse) -> Operation[None]:
    yield Statement(
        "INSERT INTO items (owner, item, response, called) VALUES ($1, $2, $3, $4) "
        "ON CONFLICT (owner, item, response) DO UPDATE SET called = excluded.called",
        _item_rows(num, record),
        each=True,
    )


def _item_rows(num: int, record: StoredResponse) -> list[tuple[str, str, int, int]]:
    """The rows of the table `items` for a record, one for each item."""
    owner, results = owner_key(record.owner), record.results
    called = {key(item.id): int(item.id in results) for item in _items(record)}
    return [(owner, each, num, made) for each, made in called.items()]


def _items(record: StoredResponse) -> tuple[Item, ...]:
    return (*record.input, *record.response.output)


def _previous(record: StoredResponse) -> str:
    """The key of the response that a record continues, or an empty string."""
    if record.previous_response_id is None or record.conversation_id is not None:
        return ""
    return "=" + key(record.previous_response_id)


def _parent(record: StoredResponse, since: float) -> Operation[tuple[int | None, int]]:
    """The row that a record continues, and whether its history is incomplete (1) or not (0)."""
    previous = _previous(record)
    if not previous:
        return None, 0
    rows = yield Statement(
        f"SELECT num, broken FROM responses WHERE id = $1 AND {_ALIVE} AND owner = $3 FOR UPDATE",
        (previous[1:], since, owner_key(record.owner)),
    )
    return (rows[0][0], rows[0][1]) if rows else (None, 1)


def get(
    response_id: str, owner: str | None, since: float
) -> Operation[tuple[StoredResponse, int, float] | None]:
    """A record, with its row and the time of its last use."""
    rows = yield Statement(
        f"SELECT meta, sent, made, results, num, used FROM responses WHERE id = $1 AND {_ALIVE} AND owner = $3",
        (key(response_id), since, owner_key(owner)),
    )
    if not rows:
        return None
    record = yield from record_of(response_id, owner_key(owner), rows[0])
    return None if record is None else (record, rows[0][4], rows[0][5])


def record_of(response_id: str, owner: str, row: Sequence[Any]) -> Operation[StoredResponse | None]:
    """The record from the columns `meta`, `sent`, `made` and `results`. None if it cannot be read."""
    meta, sent, made, read = yield from parts.restored(owner, row[:4])
    record = unpack_record(meta or b"", of=response_id)
    input_ = unpack_items(sent or b"", of=response_id)
    output = unpack_items(made or b"", of=response_id)
    if record is None or input_ is None or output is None:
        return None
    record.response.output = output
    results = unpack_results(read, of=response_id) if read else None
    return msgspec.structs.replace(record, input=input_, results=results or {})


def history(
    response_id: str, owner: str | None, since: float
) -> Operation[tuple[Sequence[Item], int, float] | None]:
    """All items of a response's history, oldest first, with its row and the time of its last use. None if there is no
    such response, or if its history is incomplete."""
    rows = yield Statement(
        f"SELECT num, used, broken FROM responses WHERE id = $1 AND {_ALIVE} AND owner = $3",
        (key(response_id), since, owner_key(owner)),
    )
    if not rows or rows[0][2]:
        return None
    num, used, _ = rows[0]
    chain = yield Statement(
        "WITH RECURSIVE chain (num, parent, sent, made, depth) AS ("
        "SELECT num, parent, sent, made, 0 FROM responses WHERE num = $1 UNION ALL "
        "SELECT r.num, r.parent, r.sent, r.made, chain.depth + 1 FROM responses r JOIN chain ON r.num = chain.parent "
        f"WHERE chain.depth < {_LONGEST_CHAIN}) SELECT sent, made, parent FROM chain ORDER BY depth DESC",
        (num,),
    )
    if not chain or chain[0][2] is not None:
        logger.warning("the history of %s lacks items", response_id)
        return None
    segments = [packed for sent, made, _ in chain for packed in (sent, made)]
    items: list[Item] = []
    for packed in (yield from parts.restored(owner_key(owner), segments)):
        found = unpack_items(packed or b"", of=response_id)
        if found is None:
            return None
        items += found
    return items, num, used


def find_items(
    item_ids: Collection[str], owner: str | None, since: float
) -> Operation[tuple[dict[str, Item], list[int]]]:
    """Items by id, and the rows in which they were found."""
    wanted = {key(each): each for each in item_ids}
    rows = yield Statement(
        "SELECT item, response FROM (SELECT i.item, i.response, row_number() OVER (PARTITION BY i.item "
        "ORDER BY i.response DESC) AS place FROM items i JOIN responses ON num = i.response WHERE i.owner = $1 "
        f"AND {_ALIVE} AND i.item = ANY($3::text[])) AS homes WHERE place <= {_HOMES} ORDER BY response DESC",
        (owner_key(owner), since, sorted(wanted)),
    )
    homes = _homes(rows)
    found: dict[str, Item] = {}
    used: set[int] = set()
    for at in range(_HOMES):
        nums = {nums[at] for item, nums in homes.items() if wanted[item] not in found and len(nums) > at}  # fmt: skip
        if not nums:
            break
        rows = yield Statement(
            "SELECT num, sent, made FROM responses WHERE num = ANY($1::bigint[])", (sorted(nums),)
        )
        segments = [(num, packed) for num, *both in rows for packed in both]
        whole = yield from parts.restored(owner_key(owner), [packed for _, packed in segments])
        for (num, _), packed in zip(segments, whole, strict=True):
            items = unpack_items(packed or b"", of="a response") or ()
            here = {item.id: item for item in items if item.id in item_ids and item.id not in found}
            if here:
                used.add(num)
                found |= here
    return found, sorted(used)


def _homes(rows: Rows) -> dict[str, list[int]]:
    homes: dict[str, list[int]] = {}
    for item, response in rows:
        homes.setdefault(item, []).append(response)
    return homes


def find_results(
    item_ids: Collection[str], owner: str | None
) -> Operation[tuple[Mapping[str, CallRecord], list[int]]]:
    """Results of calls by item id, and the rows in which they were found."""
    rows = yield Statement(
        "SELECT DISTINCT i.response FROM items i WHERE i.owner = $1 AND i.called = 1 AND i.item = ANY($2::text[]) "
        "ORDER BY i.response",
        (owner_key(owner), sorted({key(each) for each in item_ids})),
    )
    nums = [each for (each,) in rows]
    packed = yield Statement(
        "SELECT results FROM responses WHERE num = ANY($1::bigint[]) AND results IS NOT NULL ORDER BY num",
        (nums,),
    )
    found: dict[str, CallRecord] = {}
    for each in (yield from parts.restored(owner_key(owner), [each for (each,) in packed])):
        results = unpack_results(each or b"", of="a response") or {}
        found |= {item_id: result for item_id, result in results.items() if item_id in item_ids}
    return found, nums


def touch(nums: Collection[int], now: float) -> Operation[None]:
    """Mark responses as used now."""
    yield Statement(
        f"UPDATE responses SET used = $1 WHERE num = ANY($2::bigint[]) AND state = {FINISHED} AND used < $1",
        (now, sorted(nums)),
    )


def delete(response_id: str, owner: str | None, since: float) -> Operation[bool]:
    """Remove a response of `owner`."""
    rows = yield Statement(
        f"SELECT num FROM responses WHERE id = $1 AND {_ALIVE} AND owner = $3 FOR UPDATE",
        (key(response_id), since, owner_key(owner)),
    )
    if not rows:
        return False
    yield from _remove(rows[0][0], key(response_id))
    return True


def evict(num: int) -> Operation[str | None]:
    """Remove a finished response. Returns its key; None if it is not there any more, or not finished."""
    rows = yield Statement(
        f"SELECT id FROM responses WHERE num = $1 AND state = {FINISHED} FOR UPDATE", (num,)
    )
    if not rows:
        return None
    yield from _remove(num, rows[0][0])
    return str(rows[0][0])


def _remove(num: int, name: str) -> Operation[None]:
    logs = yield Statement("DELETE FROM logs WHERE id = $1 RETURNING num", (name,))
    for (log,) in logs:
        yield Statement("DELETE FROM events WHERE log = $1", (log,))
    yield Statement("DELETE FROM leases WHERE id = $1", (name,))
    child = yield Statement("SELECT 1 FROM responses WHERE parent = $1 LIMIT 1", (num,))
    if child:
        yield Statement(
            f"UPDATE responses SET id = NULL, state = {KEPT}, meta = $2, "
            "size = length(sent) + length(made) + coalesce(length(results), 0) WHERE num = $1",
            (num, b""),
        )
    else:
        yield from drop(num)


def drop(num: int) -> Operation[None]:
    """Delete a row without children, and all ancestors that were kept only for it."""
    gone = yield Statement(
        "DELETE FROM responses WHERE num IN (WITH RECURSIVE up (num, parent) AS ("
        "SELECT num, parent FROM responses WHERE num = $1 UNION ALL "
        f"SELECT r.num, r.parent FROM responses r JOIN up ON r.num = up.parent WHERE r.state = {KEPT} "
        "AND (SELECT count(*) FROM responses c WHERE c.parent = r.num) = 1) SELECT num FROM up) RETURNING num, parts",
        (num,),
    )
    yield Statement(
        "DELETE FROM items WHERE response = ANY($1::bigint[])", ([each for each, _ in gone],)
    )
    if any(uses for _, uses in gone):
        yield from parts.leave(OF_RESPONSE, [each for each, _ in gone])


def delete_unreferenced(limit: int) -> Operation[int]:
    """Delete up to `limit` kept rows without children. Such a row is left if its last two children are removed at the
    same time."""
    rows = yield Statement(
        f"SELECT num FROM responses r WHERE state = {KEPT} "
        "AND NOT EXISTS (SELECT 1 FROM responses c WHERE c.parent = r.num) LIMIT $1",
        (limit,),
    )
    for (num,) in rows:
        yield from drop(num)
    return len(rows)
