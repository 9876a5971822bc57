"""Leases, and requests to cancel."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gateway.sdk import StoredResponse
from gateway_sql.responses import record_of
from gateway_sql.schema import FINISHED, RUNNING
from gateway_sql.statements import Operation, Statement, key

_RECENT = 1000
"""Number of earlier requests to cancel that are read again, because transactions may end in a different order than
their numbers."""

_SET_BACK = 600.0
"""If a lease ends later than this many seconds from now, and later than ten times the duration of a lease, it was made
before the clock was set back. A living holder would have renewed it since."""


def lease(
    holder: str, response_ids: Collection[str], seconds: float, now: float
) -> Operation[None]:
    """Lease responses to `holder`, except those with a valid lease of another holder: a holder that is late does not
    take back responses that another one has taken over."""
    yield Statement(
        "INSERT INTO leases (id, holder, until) VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE "
        "SET holder = excluded.holder, until = excluded.until WHERE leases.holder = excluded.holder OR leases.until <= $4",
        [(name, holder, now + seconds, now) for name in sorted(map(key, response_ids))],
        each=True,
    )


def release(holder: str, response_id: str) -> Operation[None]:
    """End the lease of `holder` on a response."""
    yield Statement("DELETE FROM leases WHERE id = $1 AND holder = $2", (key(response_id), holder))


def take(
    holder: str, seconds: float, limit: int, now: float
) -> Operation[Sequence[StoredResponse]]:
    """Lease to `holder` up to `limit` responses whose leases have expired. Returns their records."""
    due = yield Statement(
        "SELECT id FROM leases WHERE until <= $1 OR until > $2 ORDER BY until LIMIT $3 FOR UPDATE SKIP LOCKED",
        (now, now + max(_SET_BACK, 10 * seconds), limit),
    )
    names = [name for (name,) in due]
    if not names:
        return ()
    rows = yield Statement(
        "SELECT r.meta, r.sent, r.made, r.results, r.id, r.owner FROM responses r LEFT JOIN logs l ON l.id = r.id "
        f"WHERE r.id = ANY($1::text[]) AND (r.state = {RUNNING} OR r.state = {FINISHED} AND r.streamed = 1 "
        "AND coalesce(l.ended, 0) = 0)",
        (names,),
    )
    taken = [row[4] for row in rows]
    yield Statement(
        "UPDATE leases SET holder = $1, until = $2 WHERE id = ANY($3::text[])",
        (holder, now + seconds, taken),
    )
    yield Statement(
        "DELETE FROM leases WHERE id = ANY($1::text[])",
        ([name for name in names if name not in taken],),
    )
    found: list[StoredResponse] = []
    for row in rows:
        record = yield from record_of(row[4], row[5], row)
        if record is not None:
            found.append(record)
    return found


def request_cancel(response_id: str, now: float) -> Operation[None]:
    """Record a request to cancel."""
    yield Statement("INSERT INTO cancels (id, at) VALUES ($1, $2)", (response_id, now))


def last_cancel() -> Operation[int]:
    """The number of the last request to cancel."""
    rows = yield Statement("SELECT coalesce(max(num), 0) FROM cancels")
    return int(rows[0][0])


def cancels(after: int) -> Operation[Sequence[tuple[int, str]]]:
    """The requests to cancel after the number `after`, and some before it: their numbers and response ids."""
    rows = yield Statement(
        "SELECT num, id FROM cancels WHERE num > $1 ORDER BY num", (after - _RECENT,)
    )
    return [(num, response_id) for num, response_id in rows]
