"""The store, composed of its parts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Any, TypeVar

from gateway.sdk import (
    Append,
    CallRecord,
    CompletionPage,
    ConversationBounds,
    ConversationFull,
    ItemPage,
    ItemsPresent,
    LimitState,
    Notification,
    Order,
    PrincipalLimits,
    SettledRequest,
    StoredCompletion,
    StoredResponse,
    StoreUnavailable,
    UsageCount,
    UsageWidth,
)
from gateway.sdk.processes import running_task
from gateway.sdk.stores import WriteTokens, cut, pack, pack_json, through_outage, whole_size
from gateway.sdk.wire import Conversation, Item, ResponseStatus
from gateway_sql import completions, conversations, leases, logs, responses, usage, values
from gateway_sql import limits as counters
from gateway_sql.event_follower import EventFollower
from gateway_sql.event_writer import SqlEventWriter
from gateway_sql.statements import CANCELS, Operation, SqlDatabase, key
from gateway_sql.upkeep import Kind, StoreLimits, Upkeep

logger = logging.getLogger("gateway_sql")

T = TypeVar("T")


class SqlStore:
    """Implements `gateway.sdk.ResponseStore`, `LimitCounters` and `UsageCounters` for all gateways that use one database.

    Entries that were not used for `bounds.ttl` seconds are removed. If another bound is exceeded, the least recently
    used entries of the owner with the highest usage are removed; owners whose usage is within an equal share lose no
    entries. Unfinished responses are never removed. Counting and removing run in the background, so a bound may be
    exceeded for a short time, by about one per cent.
    """

    def __init__(
        self,
        database: SqlDatabase,
        bounds: StoreLimits,
        *,
        outage: float = 0.0,
        shared: bool = True,
    ) -> None:
        """`outage` is the maximum time in seconds for which a background response waits for an unavailable database.
        `shared` says whether several processes use the database."""
        self._database = database
        self._ttl = bounds.ttl
        self._outage = outage
        self._shared = shared
        self._tokens = WriteTokens()
        self._follower = EventFollower(database, lambda: self._since)
        self._writer = SqlEventWriter(database, self._follower, self._tokens, outage=outage)
        self._upkeep = Upkeep(database, bounds, self._removed)
        self._cancelled = asyncio.Event()
        self._used: dict[Kind, set[int]] = {}
        self._touching: asyncio.Task[None] | None = None
        # Minimum interval between two updates of an entry's time of use, so that most reads do not
        # write.
        self._grain = min(60.0, bounds.ttl / 20)

    @property
    def shared(self) -> bool:
        return self._shared

    @property
    def lasting(self) -> bool:
        return True

    @property
    def _since(self) -> float:
        """Entries that were not used after this time have expired."""
        return self._database.now() - self._ttl

    @asynccontextmanager
    async def running(self) -> AsyncIterator[SqlStore]:
        """Remove expired entries while the context is open. On exit, store all waiting events and times of use."""
        try:
            async with running_task(self._upkeep.run()):
                yield self
        finally:
            await self._writer.close()
            if self._touching is not None:
                await self._touching

    def announced(self, names: Collection[str]) -> None:
        """Handle the names that another process has announced. An empty collection means that any name may have
        news."""
        if not names:
            self._follower.notify_all()
            self._cancelled.set()
            return
        self._follower.notify(names)
        if CANCELS in names:
            self._cancelled.set()

    def _removed(self, names: Collection[str]) -> None:
        """Notify readers, in this process and in others, that the responses with these keys were removed."""
        if names:
            self._follower.notify(names)
            self._database.announce(names)

    async def health(self) -> None:
        await self._database.health()

    async def put(self, record: StoredResponse) -> None:
        written = responses.EncodedRecord.of(record, self._tokens.next())
        await self._database.write(responses.Put(written, self._database.now(), self._ttl))
        self._upkeep.stored(written.most_size)

    async def advance(
        self,
        record: StoredResponse,
        *,
        expected: Collection[ResponseStatus],
        attempt: int | None = None,
    ) -> bool:
        """Tolerates a short outage by repeating the write, which is applied only once."""
        await self._writer.wait_until_written(record.id)
        written = responses.EncodedRecord.of(record, self._tokens.next())
        held = record.attempt if attempt is None else attempt
        done = await through_outage(
            lambda: self._write(
                lambda: responses.put(
                    written,
                    now=self._database.now(),
                    ttl=self._ttl,
                    expected=expected,
                    attempt=held,
                )
            ),
            seconds=self._outage,
        )
        if done:
            self._upkeep.stored(written.most_size)
        return done

    async def get(self, response_id: str, *, owner: str | None = None) -> StoredResponse | None:
        found = await self._read(lambda: responses.get(response_id, owner, self._since))
        if found is None:
            return None
        record, num, used = found
        self._touch("responses", num, used)
        return record

    async def history(self, response_id: str, *, owner: str | None = None) -> Sequence[Item] | None:
        found = await self._read(lambda: responses.history(response_id, owner, self._since))
        if found is None:
            return None
        items, num, used = found
        self._touch("responses", num, used)
        return items

    async def find_items(
        self, item_ids: Collection[str], *, owner: str | None = None
    ) -> Mapping[str, Item]:
        if not item_ids:
            return {}
        wanted = frozenset(item_ids)
        found, nums = await self._read(lambda: responses.find_items(wanted, owner, self._since))
        for num in nums:
            self._touch("responses", num, 0.0)
        return found

    async def find_results(
        self, item_ids: Collection[str], *, owner: str | None = None
    ) -> Mapping[str, CallRecord]:
        if not item_ids:
            return {}
        wanted = frozenset(item_ids)
        found, nums = await self._read(lambda: responses.find_results(wanted, owner))
        for num in nums:
            self._touch("responses", num, 0.0)
        return found

    async def delete(self, response_id: str, *, owner: str | None = None) -> bool:
        deleted = await self._write(lambda: responses.delete(response_id, owner, self._since))
        if deleted:
            self._writer.forget(response_id)
            self._removed([key(response_id)])
        return deleted

    async def append_events(
        self, response_id: str, events: Sequence[bytes], *, last: bool = False, attempt: int = 0
    ) -> bool:
        self._upkeep.stored(sum(map(len, events)), 0)
        return await self._writer.append(response_id, events, last=last, attempt=attempt)

    def open_log(self, response_id: str, notify: Notification, *, attempt: int = 0) -> Append:
        return self._writer.open_log(response_id, notify, attempt=attempt)

    async def count_events(self, response_id: str) -> int:
        await self._writer.wait_until_written(response_id)
        return await self._read(lambda: logs.count(response_id, self._since))

    def read_events(
        self, response_id: str, *, after: int = -1
    ) -> AsyncGenerator[Sequence[bytes], None]:
        return self._follower.read(response_id, after)

    async def lease(self, holder: str, response_ids: Collection[str], *, seconds: float) -> None:
        if response_ids:
            ids = tuple(response_ids)
            await self._write(lambda: leases.lease(holder, ids, seconds, self._database.now()))

    async def release(self, holder: str, response_id: str) -> None:
        await self._write(lambda: leases.release(holder, response_id))

    async def take_orphans(
        self, holder: str, *, seconds: float, limit: int = 100
    ) -> Sequence[StoredResponse]:
        return await self._write(lambda: leases.take(holder, seconds, limit, self._database.now()))

    async def request_cancel(self, response_id: str) -> None:
        await self._write(lambda: leases.request_cancel(response_id, self._database.now()))
        self._cancelled.set()
        self._database.announce([CANCELS])

    async def cancel_requests(self) -> AsyncGenerator[str, None]:
        """While the database is unavailable, waits for it. No requests are lost."""
        last = await self._read(leases.last_cancel)
        start, seen, away = last, set[int](), False
        while True:
            self._cancelled.clear()
            try:
                found = await self._read(lambda: leases.cancels(last))  # noqa: B023  # awaited here
                away = False
            except StoreUnavailable as error:
                if not away:
                    logger.warning("requests to cancel cannot be received: %s", error.message)
                away = True
                await asyncio.sleep(0.2)
                continue
            new = [(num, each) for num, each in found if num > start and num not in seen]
            seen = {num for num, _ in found}
            for num, response_id in new:
                last = max(last, num)
                yield response_id
            if not new:
                await self._cancelled.wait()

    async def put_conversation(
        self, conversation: Conversation, *, owner: str | None = None
    ) -> None:
        packed = pack(conversation)
        await self._write(
            lambda: conversations.put(
                conversation.id, packed, owner, self._database.now(), self._ttl
            )
        )
        self._upkeep.stored(len(packed))

    async def get_conversation(
        self, conversation_id: str, *, owner: str | None = None
    ) -> Conversation | None:
        return await self._of_conversation(
            lambda: conversations.get(conversation_id, owner, self._since)
        )

    async def delete_conversation(self, conversation_id: str, *, owner: str | None = None) -> bool:
        return await self._write(lambda: conversations.delete(conversation_id, owner, self._since))

    async def append_items(
        self,
        conversation_id: str,
        items: Sequence[Item],
        *,
        owner: str | None = None,
        bounds: ConversationBounds | None = None,
        new: bool = False,
    ) -> bool:
        first: dict[str, Item] = {}
        for item in items:
            first.setdefault(item.id, item)
        packed = conversations.packed_items(first)
        done = await self._write(
            lambda: conversations.append(
                conversation_id, packed, owner, bounds, self._database.now(), self._ttl, all_new=new
            )
        )
        if isinstance(done, ConversationFull):
            raise done
        if not isinstance(done, bool):
            raise ItemsPresent([each for each in first if key(each) in done])
        self._upkeep.stored(sum(whole_size(*each) for each in packed.values()), 0)
        return done

    async def list_items(
        self,
        conversation_id: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        order: Order = "asc",
        owner: str | None = None,
    ) -> ItemPage | None:
        return await self._of_conversation(
            lambda: conversations.page(conversation_id, after, limit, order, owner, self._since)
        )

    async def get_item(
        self, conversation_id: str, item_id: str, *, owner: str | None = None
    ) -> Item | None:
        return await self._of_conversation(
            lambda: conversations.item(conversation_id, item_id, owner, self._since)
        )

    async def delete_item(
        self, conversation_id: str, item_id: str, *, owner: str | None = None
    ) -> bool:
        return await self._write(
            lambda: conversations.delete_item(
                conversation_id, item_id, owner, self._database.now(), self._ttl
            )
        )

    async def _of_conversation(
        self, operation: Callable[[], Operation[tuple[T, int, float] | None]]
    ) -> T | None:
        found = await self._read(operation)
        if found is None:
            return None
        value, num, used = found
        self._touch("conversations", num, used)
        return value

    async def put_completion(self, record: StoredCompletion) -> None:
        metadata, packed = pack_json(record.completion.metadata), pack_json(record)
        data = cut(packed)
        await self._write(lambda: completions.put(record, metadata, data, self._database.now()))
        self._upkeep.stored(len(metadata) + len(packed))

    async def get_completion(
        self, completion_id: str, *, owner: str | None = None
    ) -> StoredCompletion | None:
        found = await self._read(lambda: completions.get(completion_id, owner, self._since))
        if found is None:
            return None
        record, num, used = found
        self._touch("completions", num, used)
        return record

    async def update_completion(
        self, completion_id: str, metadata: Mapping[str, str], *, owner: str | None = None
    ) -> StoredCompletion | None:
        return await self._write(
            lambda: completions.update(
                completion_id, metadata, owner, self._database.now(), self._ttl
            )
        )

    async def delete_completion(self, completion_id: str, *, owner: str | None = None) -> bool:
        return await self._write(lambda: completions.delete(completion_id, owner, self._since))

    async def list_completions(
        self,
        *,
        after: str | None = None,
        limit: int = 20,
        order: Order = "asc",
        model: str | None = None,
        metadata: Mapping[str, str] | None = None,
        owner: str | None = None,
    ) -> CompletionPage | None:
        return await self._read(
            lambda: completions.page(
                after=after,
                limit=limit,
                order=order,
                model=model,
                metadata=metadata or {},
                owner=owner,
                since=self._since,
            )
        )

    async def compare_and_set(
        self,
        name: str,
        value: bytes,
        *,
        expected: bytes | None,
        seconds: float,
        owner: str | None = None,
    ) -> bytes | None:
        return await self._write(
            lambda: values.compare_and_set(
                name, value, expected, seconds, owner, self._database.now()
            )
        )

    async def get_value(self, name: str, *, owner: str | None = None) -> bytes | None:
        return await self._read(lambda: values.get(name, owner, self._database.now()))

    async def admit_request(
        self,
        principal: str,
        request_id: str,
        limits: PrincipalLimits,
        *,
        tokens: int,
        seconds: float,
    ) -> LimitState:
        """See `LimitCounters.admit_request`. Runs several statements in one transaction."""
        return await self._write(
            lambda: counters.admit(
                principal, request_id, limits, tokens, seconds, self._database.now()
            )
        )

    async def settle_requests(self, ended: Sequence[SettledRequest]) -> None:
        if ended:
            await self._write(lambda: counters.settle(ended, self._database.now()))

    async def renew_requests(self, running: Sequence[tuple[str, str]], *, seconds: float) -> None:
        if running:
            await self._write(lambda: counters.renew(running, seconds, self._database.now()))

    async def add_usage(self, batch: str, counts: Sequence[UsageCount]) -> None:
        await self._write(lambda: usage.add(batch, counts, self._database.now()))

    async def read_usage(
        self, first: int, last: int, *, width: UsageWidth = "1d"
    ) -> Sequence[UsageCount]:
        return await self._read(lambda: usage.read(first, last, width))

    async def _read(self, operation: Callable[[], Operation[T]]) -> T:
        return await self._database.read(operation)

    async def _write(self, operation: Callable[[], Operation[T]]) -> T:
        return await self._database.write(operation)

    def _touch(self, kind: Kind, num: int, used: float) -> None:
        """Note that an entry was used, unless this was noted shortly before."""
        if used > self._database.now() - self._grain:
            return
        self._used.setdefault(kind, set()).add(num)
        if self._touching is None:
            self._touching = asyncio.create_task(self._store_uses(), context=Context())

    async def _store_uses(self) -> None:
        try:
            while self._used:
                used, self._used = self._used, {}
                await self._write(lambda: _touched(used, self._database.now()))  # noqa: B023  # awaited here
        except StoreUnavailable as error:
            logger.debug("the time of use could not be stored: %s", error.message)
        finally:
            self._touching = None


def _touched(used: Mapping[Kind, Collection[int]], now: float) -> Operation[Any]:
    yield from responses.touch(used.get("responses", ()), now)
    for num in sorted(used.get("conversations", ())):
        yield from conversations.touch(num, now)
    for num in sorted(used.get("completions", ())):
        yield from completions.touch(num, now)
