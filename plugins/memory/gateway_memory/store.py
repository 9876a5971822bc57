"""The store itself: what is kept, for how long, and what goes first."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from gateway.protocols.prompt import CallRecord
from gateway.protocols.store import Append, Heard, ItemPage, Order, StoredResponse
from gateway.wire.common import encode
from gateway.wire.items import Item
from gateway.wire.response import Conversation, ResponseStatus, snapshot
from gateway_memory.chain import Node, release
from gateway_memory.completions import CompletionTable, KeepsCompletions
from gateway_memory.conversations import Thread
from gateway_memory.event_log import EventLog
from gateway_memory.leases import LeaseTable
from gateway_memory.shelf import Shelf

_NO_EVENTS = EventLog(lambda added: None)
_NO_EVENTS.drop()


class _Entry:
    """A stored response, with its place in the chain and its events."""

    __slots__ = ("log", "node", "record", "size")

    def __init__(self, record: StoredResponse, node: Node, log: EventLog, size: int) -> None:
        self.record = record
        self.node = node
        self.log = log
        self.size = size
        """Bytes of the response but for its items and events."""

    @property
    def unfinished(self) -> bool:
        return self.record.response.status in ("queued", "in_progress")

    @property
    def open(self) -> bool:
        """Whether somebody has to look after it: it runs, or its log has not ended."""
        return self.unfinished or (self.record.streamed and not self.log.complete)


class MemoryStore(KeepsCompletions):
    """Satisfies `gateway.protocols.ResponseStore` within one process, for use on one event loop.

    No method waits while it changes something, so each is atomic. What was not used for `ttl` seconds is forgotten; when
    there are more than `max_responses`, `max_conversations`, `max_completions` or `max_bytes`, what was not used for longest
    goes first: responses with their events, conversations with their items, chat completions with their messages. Unfinished responses stay. A descendant keeps its
    ancestors' items, and the results of their calls, which go on counting. `clock` gives seconds.
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
        self._max_responses = max_responses
        self._max_conversations = max_conversations
        self._max_completions = max_completions
        self._max_bytes = max_bytes
        self._ttl = ttl
        self._clock = clock
        self._unfinished: dict[str, _Entry] = {}
        self._finished: Shelf[_Entry] = Shelf(clock)
        self._threads: Shelf[Thread] = Shelf(clock)
        super().__init__(CompletionTable(clock))
        self._shelves: Sequence[tuple[Shelf[Any], Callable[[str], object]]] = (
            (self._finished, self._remove),
            (self._threads, self._remove_thread),
            (self._completions.shelf, self._completions.remove),
        )
        """What is bounded, each with what removes one of its things."""
        self._leases = LeaseTable(clock)
        self._homes: dict[tuple[str | None, str], dict[str, None]] = {}
        """In which of an owner's responses an item is, the last one last."""
        self._calls: dict[tuple[str | None, str], tuple[Node, str]] = {}
        """Where the results of an owner's calls are, by item id, and the response that made them, which may be gone."""
        self._bytes = 0

    @property
    def shared(self) -> bool:
        return False

    @property
    def size(self) -> int:
        """Bytes that are kept, counted as JSON; the last few thousand of a running log may not be in it yet."""
        return self._bytes + self._completions.size

    def __len__(self) -> int:
        """How many responses are kept."""
        return len(self._unfinished) + len(self._finished)

    async def health(self) -> None:
        """It always answers."""

    async def put(self, record: StoredResponse) -> None:
        self._expire()
        self._put(record)
        self._make_room()

    async def advance(
        self,
        record: StoredResponse,
        *,
        expected: Collection[ResponseStatus],
        attempt: int | None = None,
    ) -> bool:
        self._expire()
        found = self._find(record.id)
        if found is None or found.record.response.status not in expected:
            return False
        if found.record.attempt != (record.attempt if attempt is None else attempt):
            return False
        self._put(record)
        self._make_room()
        return True

    async def get(self, response_id: str, *, owner: str | None = None) -> StoredResponse | None:
        entry = self._use(response_id, owner)
        return None if entry is None else _apart(entry.record)

    async def history(self, response_id: str, *, owner: str | None = None) -> Sequence[Item] | None:
        """None also where an ancestor was gone before this response was stored: half a history is none."""
        entry = self._use(response_id, owner)
        return None if entry is None else entry.node.history()

    async def find_items(
        self, item_ids: Collection[str], *, owner: str | None = None
    ) -> Mapping[str, Item]:
        found: dict[str, Item] = {}
        for item_id in item_ids:
            for home in reversed(self._homes.get((owner, item_id), {})):
                entry = self._use(home, owner)
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

    def _put(self, record: StoredResponse) -> None:
        record = _apart(record)
        response = record.response
        items = (*record.input, *response.output)
        before = self._find(record.id)
        node = self._node(record, items, before)
        node.users += 1
        size = len(encode(response)) - len(encode(response.output))
        size += len(record.request or b"")
        log = EventLog(self._grow) if before is None else before.log
        log.attempt = record.attempt
        self._bytes += size + node.size
        if before is not None:
            self._unfinished.pop(record.id, None)
            self._finished.pop(record.id)
            self._leave_homes(before)
            self._bytes -= before.size + self._release(before)
        for item in items:
            self._homes.setdefault((record.owner, item.id), {})[record.id] = None
        for item_id in record.results:
            self._calls[record.owner, item_id] = (node, record.id)
        entry = _Entry(record, node, log, size)
        log.ending = not entry.unfinished
        if entry.unfinished:
            self._unfinished[record.id] = entry
        else:
            self._finished.put(record.id, entry)
            if not entry.open:
                self._leases.forget(record.id)

    def _node(self, record: StoredResponse, items: Sequence[Item], before: _Entry | None) -> Node:
        results = record.results
        size = sum(len(encode(item)) for item in items) + len(encode(results))
        previous = record.previous_response_id
        if previous is None or record.conversation_id is not None:
            return Node(items, results, size, None)
        if before is not None and before.record.previous_response_id == previous:
            # The parent may be gone by now; what it left to this response is not.
            return Node(items, results, size, before.node.parent, broken=before.node.broken)
        parent = self._find(previous)
        if parent is None or parent.record.owner != record.owner:
            return Node(items, results, size, None, broken=True)
        return Node(items, results, size, parent.node)

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
            self._bytes -= entry.size + entry.log.counted + self._release(entry)
            self._leases.forget(response_id)
            self._leave_homes(entry)

    def _release(self, entry: _Entry) -> int:
        """Its node is needed by its descendants alone; returns the bytes that this frees."""
        freed = release(entry.node)
        for node in freed:
            for item_id in node.results:
                known = self._calls.get((entry.record.owner, item_id))
                if known is not None and known[0] is node:
                    del self._calls[entry.record.owner, item_id]
        return sum(node.size for node in freed)

    def _leave_homes(self, entry: _Entry) -> None:
        """Its items are found there no more."""
        owner, response_id = entry.record.owner, entry.record.id
        for item in entry.node.items:
            homes = self._homes.get((owner, item.id))
            if homes is not None:
                homes.pop(response_id, None)
                if not homes:
                    del self._homes[owner, item.id]

    async def append_events(
        self, response_id: str, events: Sequence[bytes], *, last: bool = False, attempt: int = 0
    ) -> bool:
        return self._log(response_id).append(events, last, attempt)

    def open_log(self, response_id: str, heard: Heard, *, attempt: int = 0) -> Append:
        """All is done at once: there is nothing to hear."""
        append = self._log(response_id).append
        return partial(append, attempt=attempt) if attempt else append

    def _log(self, response_id: str) -> EventLog:
        entry = self._find(response_id)
        return _NO_EVENTS if entry is None else entry.log

    def _grow(self, added: int) -> None:
        """A log has more bytes."""
        self._bytes += added
        if self._bytes + self._completions.size > self._max_bytes:
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
        return [_apart(entry.record) for entry in found if entry is not None]

    async def request_cancel(self, response_id: str) -> None:
        self._leases.request_cancel(response_id)

    def cancel_requests(self) -> AsyncGenerator[str, None]:
        return self._leases.cancel_requests()

    async def put_conversation(
        self, conversation: Conversation, *, owner: str | None = None
    ) -> None:
        thread = self._thread(conversation.id, owner)
        if thread is None:
            self._remove_thread(conversation.id)
            thread = Thread(conversation, owner)
            self._threads.put(conversation.id, thread)
            self._bytes += thread.size
        else:
            self._bytes -= thread.size
            thread.rename(conversation)
            self._bytes += thread.size
        self._make_room()

    async def get_conversation(
        self, conversation_id: str, *, owner: str | None = None
    ) -> Conversation | None:
        thread = self._thread(conversation_id, owner)
        return None if thread is None else thread.conversation

    async def delete_conversation(self, conversation_id: str, *, owner: str | None = None) -> bool:
        if self._thread(conversation_id, owner) is None:
            return False
        self._remove_thread(conversation_id)
        return True

    async def append_items(
        self, conversation_id: str, items: Sequence[Item], *, owner: str | None = None
    ) -> bool:
        thread = self._thread(conversation_id, owner)
        if thread is None:
            return False
        self._bytes -= thread.size
        thread.append(items)
        self._bytes += thread.size
        self._make_room()
        return True

    async def list_items(
        self,
        conversation_id: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        order: Order = "asc",
        owner: str | None = None,
    ) -> ItemPage | None:
        thread = self._thread(conversation_id, owner)
        return None if thread is None else thread.page(after, limit, order)

    async def get_item(
        self, conversation_id: str, item_id: str, *, owner: str | None = None
    ) -> Item | None:
        thread = self._thread(conversation_id, owner)
        return None if thread is None else thread.item(item_id)

    async def delete_item(
        self, conversation_id: str, item_id: str, *, owner: str | None = None
    ) -> bool:
        thread = self._thread(conversation_id, owner)
        if thread is None:
            return False
        self._bytes -= thread.size
        removed = thread.remove(item_id)
        self._bytes += thread.size
        return removed

    def _thread(self, conversation_id: str, owner: str | None) -> Thread | None:
        self._expire()
        thread = self._threads.get(conversation_id)
        if thread is None or thread.owner != owner:
            return None
        self._threads.use(conversation_id)
        return thread

    def _remove_thread(self, conversation_id: str) -> None:
        thread = self._threads.pop(conversation_id)
        if thread is not None:
            self._bytes -= thread.size

    def _expire(self) -> None:
        limit = self._clock() - self._ttl
        for shelf, remove in self._shelves:
            while (oldest := shelf.oldest()) and oldest[1] <= limit:
                remove(oldest[0])

    def _make_room(self) -> None:
        while len(self) > self._max_responses and (oldest := self._finished.oldest()):
            self._remove(oldest[0])
        while len(self._threads) > self._max_conversations and (oldest := self._threads.oldest()):
            self._remove_thread(oldest[0])
        completions = self._completions
        while len(completions.shelf) > self._max_completions and (
            oldest := completions.shelf.oldest()
        ):
            completions.remove(oldest[0])
        while self.size > self._max_bytes and self._remove_oldest():
            pass

    def _remove_oldest(self) -> bool:
        """Remove what was not used for longest, whatever it is; False where there is nothing."""
        found = [
            (oldest[1], oldest[0], remove)
            for shelf, remove in self._shelves
            if (oldest := shelf.oldest())
        ]
        if not found:
            return False
        _, key, remove = min(found, key=lambda each: each[0])
        remove(key)
        return True


def _apart(record: StoredResponse) -> StoredResponse:
    """The record with a response of its own: responses may be changed in place, items may not."""
    return msgspec.structs.replace(record, response=snapshot(record.response))
