"""Event logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gateway.sdk.stores import LOST, REFUSED, BatchEntry
from gateway_sql.schema import RUNNING
from gateway_sql.statements import Operation, Statement, key

_ROWS = 500
_BYTES = 4 << 20
"""Maximum number of rows that one read fetches, and the size in bytes after which it returns no more of them."""

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[list[bytes]] = msgspec.msgpack.Decoder(list[bytes])


class LogState(NamedTuple):
    """A part of a log: events from the requested position on, the length of the log, and whether it has ended."""

    events: Sequence[bytes]
    length: int
    ended: bool


def append(appends: Sequence[BatchEntry], token: str) -> Operation[list[int]]:
    """Append to logs. Returns the same as `EventBatchWriter.store`: the new length of each log, `REFUSED` or `LOST`."""
    names = {key(each.response_id): each for each in appends}
    rows = yield Statement(
        "SELECT id, num, attempt, is_open, ended, length, token FROM logs WHERE id = ANY($1::text[]) "
        "ORDER BY id FOR UPDATE",
        (sorted(names),),
    )
    known = {row[0]: row[1:] for row in rows}
    for name in sorted(names.keys() - known.keys()):
        found = yield Statement(
            "SELECT owner, attempt, state FROM responses WHERE id = $1 FOR UPDATE", (name,)
        )
        for owner, attempt, state in found:
            made = yield Statement(
                "INSERT INTO logs (id, owner, attempt, is_open, ended, length, bytes, token) "
                "VALUES ($1, $2, $3, $4, 0, 0, 0, '') ON CONFLICT (id) DO UPDATE SET owner = excluded.owner "
                "RETURNING num, attempt, is_open, ended, length, token",
                (name, owner, attempt, int(state == RUNNING)),
            )
            known[name] = made[0]
    written: list[tuple[int, int, bytes]] = []
    changed: list[tuple[int, int, int, int, str]] = []
    lengths: dict[str, int] = {}
    for name, each in names.items():
        if name not in known:
            lengths[name] = REFUSED  # the response was deleted, possibly by another process
            continue
        num, attempt, is_open, ended, length, last_token = known[name]
        if last_token == token:  # a repeated call: the answer to the first one was lost
            lengths[name] = length
            continue
        if attempt != each.attempt or ended or not (is_open or each.ending == "now"):
            lengths[name] = REFUSED
            continue
        if length < each.known:
            lengths[name] = LOST
            continue
        lengths[name] = length + len(each.events)
        if each.events:
            written.append((num, lengths[name], _ENCODER.encode(each.events)))
        size = sum(map(len, each.events))
        changed.append((num, lengths[name], size, int(each.ending == "now"), token))
    if written:
        yield Statement(
            "INSERT INTO events (log, upto, data) VALUES ($1, $2, $3)", written, each=True
        )
    if changed:
        yield Statement(
            "UPDATE logs SET length = $2, bytes = bytes + $3, ended = $4, token = $5 WHERE num = $1",
            changed,
            each=True,
        )
    return [lengths[name] for name in names]


def read(response_id: str, at: int, since: float) -> Operation[LogState | None]:
    """Read events from position `at` on. None if the response is not stored."""
    rows = yield Statement(
        "SELECT r.state, r.used, l.num, l.length, l.ended FROM responses r LEFT JOIN logs l ON l.id = r.id "
        "WHERE r.id = $1",
        (key(response_id),),
    )
    if not rows or (rows[0][0] != RUNNING and rows[0][1] <= since):
        return None
    _, _, num, length, ended = rows[0]
    if num is None:
        return LogState((), 0, False)
    events: list[bytes] = []
    if at < length:
        parts = yield Statement(
            f"SELECT upto, data FROM events WHERE log = $1 AND upto > $2 ORDER BY upto LIMIT {_ROWS}",
            (num, at),
        )
        size = 0
        for upto, data in parts:
            some = _DECODER.decode(data)
            events += some[max(0, at + len(events) - (upto - len(some))) :]
            size += len(data)
            if size > _BYTES:
                break
    return LogState(events, length, bool(ended))


def count(response_id: str, since: float) -> Operation[int]:
    """The number of events in a log."""
    rows = yield Statement(
        f"SELECT l.length FROM logs l JOIN responses r ON r.id = l.id WHERE l.id = $1 "
        f"AND (r.state = {RUNNING} OR r.used > $2)",
        (key(response_id), since),
    )
    return int(rows[0][0]) if rows else 0
