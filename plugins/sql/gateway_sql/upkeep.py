"""Removing expired entries, and entries that exceed the bounds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from gateway.sdk import StoreUnavailable
from gateway_sql import completions, conversations, limits, parts, responses, usage, values
from gateway_sql.schema import FINISHED, KEPT, OF_COMPLETION, OF_CONVERSATION, OF_RESPONSE
from gateway_sql.statements import Operation, SqlDatabase, Statement

logger = logging.getLogger("gateway_sql")

Kind: TypeAlias = Literal["responses", "conversations", "completions"]

_KINDS: Final[tuple[Kind, ...]] = ("responses", "conversations", "completions")
_AT_ONCE = 100
"""Maximum number of entries that one transaction removes."""
_LONGEST_PAUSE = 60.0
_SHORTEST_PAUSE = 0.05
"""Maximum and minimum time in seconds between two searches for entries that must be removed."""
_CANCELS_KEPT = 600.0
_LEASES_KEPT = 86_400.0
"""Seconds for which requests to cancel, and expired leases, are kept."""


class StoreLimits(Struct, frozen=True, kw_only=True):
    """Limits of a store."""

    responses: int
    conversations: int
    completions: int
    bytes: int
    ttl: float
    """Seconds without use after which an entry is removed."""


class _Usage(Struct):
    """The usage of one owner: the number of entries of one kind, or the bytes of all entries."""

    used: int
    evictable: bool


class Upkeep:
    """Removes entries in the background. Counts the entries in the database once so much was stored that a bound may be
    exceeded."""

    def __init__(
        self, database: SqlDatabase, bounds: StoreLimits, removed: Callable[[Collection[str]], None]
    ) -> None:
        """`removed` is called with the keys of evicted responses."""
        self._database = database
        self._bounds = bounds
        self._removed = removed
        self._limits: dict[Kind, int] = {
            "responses": bounds.responses,
            "conversations": bounds.conversations,
            "completions": bounds.completions,
        }
        self._stored = 0
        self._bytes = 0
        self._due = asyncio.Event()
        self._due.set()
        # A process may store this much between two counts: the bounds are exceeded by about a
        # hundredth.
        self._number_step = max(1, min(self._limits.values()) // 100)
        self._bytes_step = max(1, bounds.bytes // 100)

    def stored(self, size: int, number: int = 1) -> None:
        """Note that `number` entries with `size` bytes together were stored."""
        self._stored += number
        self._bytes += size
        if self._stored >= self._number_step or self._bytes >= self._bytes_step:
            self._due.set()

    async def run(self) -> None:
        """Remove entries until the task is cancelled."""
        pause = min(_LONGEST_PAUSE, max(self._bounds.ttl / 4, 0.05))
        expires = 0.0
        while True:
            try:
                async with asyncio.timeout(pause):
                    await self._due.wait()
            except TimeoutError:
                pass
            counts = self._due.is_set()
            self._due.clear()
            now = time.monotonic()
            try:
                if now >= expires:
                    await self.expire()
                    expires = now + pause
                if counts:
                    self._stored = self._bytes = 0
                    await self.make_room()
            except StoreUnavailable as error:
                logger.warning("what has expired could not be removed: %s", error.message)
                if counts:
                    self._due.set()
                await asyncio.sleep(min(pause, 5.0))
            except Exception:
                # If this task ended, nothing would be removed any more.
                logger.exception("what has expired could not be removed; it is tried again")
                await asyncio.sleep(min(pause, 5.0))
            await asyncio.sleep(_SHORTEST_PAUSE)

    async def expire(self) -> None:
        """Remove everything that has expired."""
        database, now = self._database, self._database.now()
        since = now - self._bounds.ttl
        for kind in _KINDS:
            while True:
                nums = await database.read(lambda kind=kind: _expired(kind, since))  # type: ignore[misc]  # mypy has no type for lambdas with defaults
                if nums:
                    await self._evict([(kind, num) for num in nums])
                if len(nums) < _AT_ONCE:
                    break
        while await database.read(lambda: _any_expired_value(now)):
            await database.write(lambda: values.expire(now, _AT_ONCE))
        if await database.read(lambda: _anything_old(now)):
            await database.write(lambda: _tidy(now))
            await database.write(lambda: limits.forget(now))
            await database.write(lambda: responses.delete_unreferenced(_AT_ONCE))
        if await database.read(lambda: usage.any_old(now)):
            await database.write(lambda: usage.forget(now))
        await self._remove_unused_parts()

    async def _remove_unused_parts(self) -> None:
        while await self._database.read(parts.any_unused):
            if not await self._database.write(lambda: parts.remove_unused(_AT_ONCE)):
                break  # other transactions lock them, because they use or remove them

    async def make_room(self) -> None:
        """Evict the least recently used entries of the owners with the highest usage, until the bounds hold. Owners
        whose usage is within an equal share of a bound lose no entries."""
        while True:
            await self._remove_unused_parts()
            chosen = await self._database.read(self._excess)
            if not chosen:
                return
            await self._evict(chosen)

    async def _evict(self, entries: list[tuple[Kind, int]]) -> None:
        gone = await self._database.write(lambda: _evict(entries))
        self._removed(gone)

    def _excess(self) -> Operation[list[tuple[Kind, int]]]:
        """The entries to evict next, by kind and row. Empty if the bounds hold, or if nothing can be evicted."""
        size: dict[str, _Usage] = {}
        for kind in _KINDS:
            number: dict[str, _Usage] = {}
            for owner, count, evictable, used in (yield _usage(kind)):
                number[owner] = _Usage(int(count), bool(evictable))
                known = size.setdefault(owner, _Usage(0, False))
                known.used += int(used)
                known.evictable |= bool(evictable)
            most = _heaviest({o: u for o, u in number.items() if u.used}, self._limits[kind])
            if most is not None:
                rows = yield _oldest(kind, most[0], min(most[1], _AT_ONCE))
                return [(kind, num) for num, _, _ in rows]
        for owner, used in (yield Statement("SELECT owner, sum(bytes) FROM logs GROUP BY owner")):
            size.setdefault(owner, _Usage(0, False)).used += int(used)
        for owner, used in (yield parts.used_bytes()):
            size.setdefault(owner, _Usage(0, False)).used += int(used)
        most = _heaviest(size, self._bounds.bytes)
        if most is None:
            return []
        found: list[tuple[float, int, Kind, int]] = []
        for kind in _KINDS:
            rows = yield _oldest(kind, most[0], _AT_ONCE)
            found += [(used, num, kind, int(freed)) for num, used, freed in rows]
        chosen: list[tuple[Kind, int]] = []
        freed = 0
        for _, num, kind, own in sorted(found):
            if freed >= most[1] or len(chosen) == _AT_ONCE:
                break
            chosen.append((kind, num))
            freed += own
        return chosen


def _heaviest(usage: dict[str, _Usage], limit: int) -> tuple[str, int] | None:
    """The owner from whom to evict, and how much, if the total exceeds `limit`. It is the owner with the highest usage
    among those who exceed an equal share and have entries that can be evicted. None if there is no such owner."""
    total = sum(each.used for each in usage.values())
    if total <= limit:
        return None
    share = limit / len(usage)
    over = {o: each.used for o, each in usage.items() if each.used > share and each.evictable}
    if not over:
        return None
    owner = max(over, key=over.__getitem__)
    below = max((used for each, used in over.items() if each != owner), default=0)
    # Not below the usage of the next owner, who may have the highest usage then.
    return owner, max(1, min(total - limit, over[owner] - max(int(share), below)))


def _usage(kind: Kind) -> Statement:
    """A query for each owner's number of entries, number of evictable entries, and bytes."""
    if kind == "responses":
        return Statement(
            f"SELECT owner, count(*) FILTER (WHERE state <> {KEPT}), count(*) FILTER (WHERE state = {FINISHED}), "
            "sum(size) FROM responses GROUP BY owner"
        )
    return Statement(f"SELECT owner, count(*), count(*), sum(size) FROM {kind} GROUP BY owner")


def _oldest(kind: Kind, owner: str, limit: int) -> Statement:
    """A query for the rows, times of the last use and bytes of an owner's least recently used entries."""
    if kind == "responses":
        return Statement(
            "SELECT r.num, r.used, r.size + coalesce((SELECT l.bytes FROM logs l WHERE l.id = r.id), 0) "
            f"+ {parts.freed(OF_RESPONSE, 'r')} FROM responses r WHERE r.owner = $1 AND r.state = {FINISHED} ORDER BY r.used LIMIT $2",
            (owner, limit),
        )
    of = OF_CONVERSATION if kind == "conversations" else OF_COMPLETION
    return Statement(
        f"SELECT num, used, size + {parts.freed(of, kind)} FROM {kind} WHERE owner = $1 ORDER BY used LIMIT $2",
        (owner, limit),
    )


def _expired(kind: Kind, since: float) -> Operation[list[int]]:
    finished = f"state = {FINISHED} AND " if kind == "responses" else ""
    rows = yield Statement(
        f"SELECT num FROM {kind} WHERE {finished}used <= $1 ORDER BY used LIMIT {_AT_ONCE}",
        (since,),
    )
    return [num for (num,) in rows]


def _evict(entries: list[tuple[Kind, int]]) -> Operation[list[str]]:
    gone: list[str] = []
    for kind, num in sorted(entries):
        match kind:
            case "responses":
                name = yield from responses.evict(num)
                if name is not None:
                    gone.append(name)
            case "conversations":
                yield from conversations.evict(num)
            case "completions":
                yield from completions.evict(num)
    return gone


def _any_expired_value(now: float) -> Operation[bool]:
    rows = yield Statement("SELECT 1 FROM shared_values WHERE until <= $1 LIMIT 1", (now,))
    return bool(rows)


def _anything_old(now: float) -> Operation[bool]:
    rows = yield Statement(
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM cancels WHERE at < $1) OR EXISTS (SELECT 1 FROM leases WHERE until < $2) "
        "OR EXISTS (SELECT 1 FROM limit_requests WHERE until < $2) OR EXISTS (SELECT 1 FROM limits WHERE used < $2 - 86400) "
        f"OR EXISTS (SELECT 1 FROM responses r WHERE state = {KEPT} "
        "AND NOT EXISTS (SELECT 1 FROM responses c WHERE c.parent = r.num))",
        (now - _CANCELS_KEPT, now - _LEASES_KEPT),
    )
    return bool(rows)


def _tidy(now: float) -> Operation[None]:
    yield Statement("DELETE FROM cancels WHERE at < $1", (now - _CANCELS_KEPT,))
    yield Statement("DELETE FROM leases WHERE until < $1", (now - _LEASES_KEPT,))
