"""The in-memory store: what it keeps, for how long, and its eviction order."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import msgspec

from gateway.sdk import (
    Append,
    CallRecord,
    LimitState,
    Notification,
    PrincipalLimits,
    SettledRequest,
    StoredResponse,
    UsageCount,
    UsageWidth,
)
from gateway.sdk.stores import LimitTable, UsageTable, ValueTable
from gateway.sdk.wire import Item, ResponseStatus, encode, snapshot
from gateway_memory.chain import Node, release
from gateway_memory.completions import CompletionStore, CompletionTable
from gateway_memory.conversations import ConversationStore, ConversationTable
from gateway_memory.event_log import EventLog
from gateway_memory.leases import LeaseTable
from gateway_memory.lru import LruMapping
from gateway_memory.parts import Held, PartTable
from gateway_memory.shares import OwnerUsage

_Bounded: TypeAlias = tuple[LruMapping[Any], Callable[[str], object], OwnerUsage, int]
"""Evictable entries, the function that removes one, the count per owner (running ones included), and the maximum
count."""

_NO_EVENTS = EventLog(lambda added: None)
_NO_EVENTS.drop()


class _Entry:
    """A stored response with its chain node and event log."""

    __slots__ = ("log", "node", "record", "size")

    def __init__(self, record: StoredResponse, node: Node, log: EventLog, size: int) -> None:
        self.record = record
        self.node = node
        self.log = log
        self.size = size
        """Size in bytes of the response without its items and events."""

    @property
    def unfinished(self) -> bool:
        return self.record.response.status in ("queued", "in_progress")

    @property
    def open(self) -> bool:
        """Whether the response still needs an owner: it is unfinished, or its log has not ended."""
        return self.unfinished or (self.record.streamed and not self.log.complete)


class MemoryStore(CompletionStore, ConversationStore):
    """Implements `gateway.sdk.ResponseStore` within one process. Must be used on one event loop.

    No method awaits while it changes state, so each is atomic. Entries not used for `ttl` seconds are evicted.
    When `max_responses`, `max_conversations`, `max_completions` or `max_bytes` is exceeded, the least recently
    used entry of the owner with the highest usage is evicted: a response with its events, a conversation with its
    items, or a chat completion with its messages. Owners within an equal share of a bound lose nothing to others.
    Unfinished responses are never evicted. A descendant keeps its ancestors' items and call results alive, and
    they count until it is removed. A large text of several items is kept, and counts, once for its owner. `clock` returns
    seconds.
    """

    def __init__(
        self,
        *,
        max_responses: int = 10_000,
        max_conversations: int = 10_000,
        max_completions: int = 10_000,
        max_bytes: int = 256 * 1024 * 1024,
        ttl: float = 86_400.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_bytes = max_bytes
        self._ttl = ttl
        self._clock = clock
        self._unfinished: dict[str, _Entry] = {}
        self._finished: LruMapping[_Entry] = LruMapping(clock)
        self._bytes_used = OwnerUsage()
        self._responses_used = OwnerUsage()
        self._parts = PartTable(self._bytes_used)
        CompletionStore.__init__(self, CompletionTable(clock, self._bytes_used, self._parts))
        ConversationStore.__init__(self, ConversationTable(clock, self._bytes_used, self._parts))
        self._tables: Sequence[_Bounded] = (
            (self._finished, self._remove, self._responses_used, max_responses),
            (
                self._conversations.table,
                self._conversations.remove,
                self._conversations.number,
                max_conversations,
            ),
            (
                self._completions.table,
                self._completions.remove,
                self._completions.number,
                max_completions,
            ),
        )
        self._values = ValueTable(clock)
        self._limits = LimitTable()
        self._usage = UsageTable()
        self._leases = LeaseTable(clock)
        self._responses_of_item: dict[str | None, dict[str, str | dict[str, None]]] = {}
        """For each owner: by item id the id of its response, or of several ones, of which the newest is last."""
        self._calls: dict[tuple[str | None, str], tuple[Node, str]] = {}
        """Locations of call results by (owner, item id): the node, and the id of the response that made the call,
        which may have been removed."""

    @property
    def shared(self) -> bool:
        return False

    @property
    def lasting(self) -> bool:
        return False

    @property
    def size(self) -> int:
        """Stored bytes, as JSON. May lag behind a running log by a few thousand bytes."""
        return self._bytes_used.total

    def __len__(self) -> int:
        """Number of stored responses."""
        return len(self._unfinished) + len(self._finished)

    async def health(self) -> None:
        """Always succeeds."""

    async def put(self, record: StoredResponse) -> None:
        record = _detached(record)
        held = await self._shared(record)
        self._expire()
        self._put(record, held)
        self._make_room()

    async def advance(
        self,
        record: StoredResponse,
        *,
        expected: Collection[ResponseStatus],
        attempt: int | None = None,
    ) -> bool:
        record = _detached(record)
        held = await self._shared(record)
        self._expire()
        found = self._find(record.id)
        if found is None or found.record.response.status not in expected:
            return False
        if found.record.attempt != (record.attempt if attempt is None else attempt):
            return False
        self._put(record, held)
        self._make_room()
        return True

    async def get(self, response_id: str, *, owner: str | None = None) -> StoredResponse | None:
        entry = self._use(response_id, owner)
        return None if entry is None else _detached(entry.record)

    async def history(self, response_id: str, *, owner: str | None = None) -> Sequence[Item] | None:
        """None also if an ancestor had been removed before this response was stored: an incomplete history counts as
        missing."""
        entry = self._use(response_id, owner)
        return None if entry is None else entry.node.history()

    async def find_items(
        self, item_ids: Collection[str], *, owner: str | None = None
    ) -> Mapping[str, Item]:
        found: dict[str, Item] = {}
        for item_id in item_ids:
            containing = self._responses_of_item.get(owner, {}).get(item_id, {})
            for found_id in (
                [containing] if isinstance(containing, str) else [*reversed(containing)]
            ):
                entry = self._use(found_id, owner)
                if entry is not None:
                    found |= {item.id: item for item in entry.node.items if item.id == item_id}
                    break
        return found

    async def find_results(
        self, item_ids: Collection[str], *, owner: str | None = None
    ) -> Mapping[str, CallRecord]:
        self._expire()
        found: dict[str, CallRecord] = {}
        for item_id in item_ids:
            if known := self._calls.get((owner, item_id)):
                node, response_id = known
                self._use(response_id, owner)
                found[item_id] = node.results[item_id]
        return found

    async def delete(self, response_id: str, *, owner: str | None = None) -> bool:
        entry = self._use(response_id, owner)
        if entry is None:
            return False
        entry.log.drop()
        self._remove(response_id)
        return True

    async def _shared(self, record: StoredResponse) -> Held:
        """The items of a record, with shared texts."""
        return await self._parts.shared(record.owner, (*record.input, *record.response.output))

    def _put(self, record: StoredResponse, held: Held) -> None:
        """Keep a record, which is the store's own, with the items `held`."""
        self._parts.keep(record.owner, held)
        response = record.response
        number = len(record.input)
        items: Sequence[Item] = held.values
        record = msgspec.structs.replace(record, input=items[:number])
        response.output[:] = items[number:]
        before = self._find(record.id)
        node = self._node(record, held, before)
        node.users += 1
        size = len(encode(response)) - len(encode(response.output))
        size += len(record.request or b"")
        log = EventLog(partial(self._grow, record.owner)) if before is None else before.log
        log.attempt = record.attempt
        self._bytes_used.add(record.owner, size + node.size)
        self._responses_used.add(record.owner, 1)
        if before is not None:
            self._unfinished.pop(record.id, None)
            self._finished.pop(record.id)
            self._remove_from_index(before)
            self._bytes_used.add(before.record.owner, -before.size - self._release(before))
            self._responses_used.add(before.record.owner, -1)
        self._add_to_index(record.owner, record.id, items)
        for item_id in record.results:
            self._calls[record.owner, item_id] = (node, record.id)
        entry = _Entry(record, node, log, size)
        log.ending = not entry.unfinished
        if entry.unfinished:
            self._unfinished[record.id] = entry
        else:
            self._finished.put(record.id, entry, record.owner)
            if not entry.open:
                self._leases.forget(record.id)

    def _node(self, record: StoredResponse, held: Held, before: _Entry | None) -> Node:
        items, texts, results = held.values, held.texts, record.results
        size = held.size + len(encode(results))
        previous = record.previous_response_id
        if previous is None or record.conversation_id is not None:
            return Node(items, results, size, None, texts=texts)
        if before is not None and before.record.previous_response_id == previous:
            # The parent response may have been removed by now; the node that this response refers to still exists.
            node = before.node
            return Node(items, results, size, node.parent, texts=texts, broken=node.broken)
        parent = self._find(previous)
        if parent is None or parent.record.owner != record.owner:
            return Node(items, results, size, None, texts=texts, broken=True)
        return Node(items, results, size, parent.node, texts=texts)

    def _find(self, response_id: str) -> _Entry | None:
        return self._unfinished.get(response_id) or self._finished.get(response_id)

    def _use(self, response_id: str, owner: str | None) -> _Entry | None:
        self._expire()
        entry = self._find(response_id)
        if entry is None or entry.record.owner != owner:
            return None
        if not entry.unfinished:
            self._finished.use(response_id)
        return entry

    def _remove(self, response_id: str) -> None:
        entry = self._unfinished.pop(response_id, None) or self._finished.pop(response_id)
        if entry is not None:
            entry.log.retire()
            freed = entry.size + entry.log.counted + self._release(entry)
            self._bytes_used.add(entry.record.owner, -freed)
            self._responses_used.add(entry.record.owner, -1)
            self._leases.forget(response_id)
            self._remove_from_index(entry)

    def _release(self, entry: _Entry) -> int:
        """Release the entry's node, which then lives only as long as its descendants. Returns the number of bytes
        freed."""
        freed = release(entry.node)
        for node in freed:
            self._parts.release(entry.record.owner, node.texts)
            for item_id in node.results:
                known = self._calls.get((entry.record.owner, item_id))
                if known is not None and known[0] is node:
                    del self._calls[entry.record.owner, item_id]
        return sum(node.size for node in freed)

    # A response may have thousands of items: the loops over them call no function.

    def _add_to_index(self, owner: str | None, response_id: str, items: Sequence[Item]) -> None:
        """Add the response to the index of its items."""
        index = self._responses_of_item.setdefault(owner, {})
        new: dict[str, str | dict[str, None]] = dict.fromkeys(
            [item.id for item in items], response_id
        )
        for item_id in index.keys() & new.keys():
            known = index[item_id]
            ids = {known: None} if isinstance(known, str) else known
            ids[response_id] = None
            new[item_id] = ids
        index.update(new)

    def _remove_from_index(self, entry: _Entry) -> None:
        """Remove the response from the index of its items."""
        owner, response_id = entry.record.owner, entry.record.id
        index = self._responses_of_item.get(owner, {})
        for item_id in index.keys() & [item.id for item in entry.node.items]:
            known = index[item_id]
            if known == response_id:
                del index[item_id]
            elif not isinstance(known, str):
                known.pop(response_id, None)
                if not known:
                    del index[item_id]
        if not index:
            self._responses_of_item.pop(owner, None)

    async def append_events(
        self, response_id: str, events: Sequence[bytes], *, last: bool = False, attempt: int = 0
    ) -> bool:
        return self._log(response_id).append(events, last, attempt)

    def open_log(self, response_id: str, notify: Notification, *, attempt: int = 0) -> Append:
        """Appends complete synchronously; `heard` is not used."""
        append = self._log(response_id).append
        return partial(append, attempt=attempt) if attempt else append

    def _log(self, response_id: str) -> EventLog:
        entry = self._find(response_id)
        return _NO_EVENTS if entry is None else entry.log

    def _grow(self, owner: str | None, added: int) -> None:
        """Add `added` bytes of log to the usage of `owner`."""
        self._bytes_used.add(owner, added)
        if self._bytes_used.total > self._max_bytes:
            self._make_room()

    async def count_events(self, response_id: str) -> int:
        return len(self._log(response_id))

    def read_events(
        self, response_id: str, *, after: int = -1
    ) -> AsyncGenerator[Sequence[bytes], None]:
        self._expire()
        return self._log(response_id).read(after)

    async def lease(self, holder: str, response_ids: Collection[str], *, seconds: float) -> None:
        self._leases.lease(holder, response_ids, seconds)

    async def release(self, holder: str, response_id: str) -> None:
        self._leases.release(holder, response_id)

    async def take_orphans(
        self, holder: str, *, seconds: float, limit: int = 100
    ) -> Sequence[StoredResponse]:
        def orphaned(response_id: str) -> bool:
            entry = self._find(response_id)
            return entry is not None and entry.open

        taken = self._leases.take(holder, seconds, limit, orphaned)
        found = [self._find(response_id) for response_id in taken]
        return [_detached(entry.record) for entry in found if entry is not None]

    async def request_cancel(self, response_id: str) -> None:
        self._leases.request_cancel(response_id)

    def cancel_requests(self) -> AsyncGenerator[str, None]:
        return self._leases.cancel_requests()

    async def compare_and_set(
        self,
        name: str,
        value: bytes,
        *,
        expected: bytes | None,
        seconds: float,
        owner: str | None = None,
    ) -> bytes | None:
        return self._values.compare_and_set(name, value, expected, seconds, owner)

    async def get_value(self, name: str, *, owner: str | None = None) -> bytes | None:
        return self._values.get(name, owner)

    async def admit_request(
        self,
        principal: str,
        request_id: str,
        limits: PrincipalLimits,
        *,
        tokens: int,
        seconds: float,
    ) -> LimitState:
        return await self._limits.admit_request(
            principal, request_id, limits, tokens=tokens, seconds=seconds
        )

    async def settle_requests(self, ended: Sequence[SettledRequest]) -> None:
        await self._limits.settle_requests(ended)

    async def renew_requests(self, running: Sequence[tuple[str, str]], *, seconds: float) -> None:
        await self._limits.renew_requests(running, seconds=seconds)

    async def add_usage(self, batch: str, counts: Sequence[UsageCount]) -> None:
        await self._usage.add_usage(batch, counts)

    async def read_usage(
        self, first: int, last: int, *, width: UsageWidth = "1d"
    ) -> Sequence[UsageCount]:
        return await self._usage.read_usage(first, last, width=width)

    def _expire(self) -> None:
        limit = self._clock() - self._ttl
        for table, remove, _, _ in self._tables:
            while (oldest := table.oldest()) and oldest[1] <= limit:
                remove(oldest[0])

    def _make_room(self) -> None:
        for table, remove, number, most in self._tables:

            def is_evictable(owner: str | None, table: LruMapping[Any] = table) -> bool:
                return table.oldest_of(owner) is not None

            while over := number.owner_over_share(most, is_evictable):
                oldest = table.oldest_of(over[0])
                assert oldest is not None, "who can give has something"
                remove(oldest[0])
        while over := self._bytes_used.owner_over_share(self._max_bytes, self._has_finished):
            self._remove_oldest_of(over[0])

    def _has_finished(self, owner: str | None) -> bool:
        return any(table.oldest_of(owner) for table, _, _, _ in self._tables)

    def _remove_oldest_of(self, owner: str | None) -> None:
        """Remove the least recently used entry of an owner, of any kind."""
        found = [
            (oldest[1], oldest[0], remove)
            for table, remove, _, _ in self._tables
            if (oldest := table.oldest_of(owner))
        ]
        _, key, remove = min(found, key=lambda each: each[0])
        remove(key)


def _detached(record: StoredResponse) -> StoredResponse:
    """The record with its own copy of the response: responses may be changed in place, items may not."""
    return msgspec.structs.replace(record, response=snapshot(record.response))
