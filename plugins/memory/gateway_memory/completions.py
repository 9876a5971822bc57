"""Stored chat completions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from gateway.sdk import CompletionPage, Order, StoredCompletion
from gateway.sdk.wire import StoredChatCompletion
from gateway_memory.lru import LruMapping
from gateway_memory.parts import Held, PartTable
from gateway_memory.shares import OwnerUsage


class _StoredEntry(msgspec.Struct, frozen=True):
    record: StoredCompletion
    texts: Sequence[str]
    """The large texts in the record, which are shared."""
    size: int
    """Size in bytes, as JSON, without `texts`."""


class CompletionTable:
    """Completions by id, and per owner in insertion order. `clock` returns seconds."""

    def __init__(
        self, clock: Callable[[], float], bytes_used: OwnerUsage, parts: PartTable
    ) -> None:
        """`bytes_used` is updated with the size of the completions, in bytes of JSON."""
        self.table: LruMapping[_StoredEntry] = LruMapping(clock)
        self.number = OwnerUsage()
        self._bytes_used = bytes_used
        self._parts = parts
        self._orders: dict[str | None, dict[str, None]] = {}

    async def shared(self, record: StoredCompletion) -> Held:
        """The record with shared texts, for `put` or `replace`."""
        return await self._parts.shared(record.owner, [record])

    def put(self, held: Held) -> None:
        record: StoredCompletion = held.values[0]
        self.remove(record.id)
        self._orders.setdefault(record.owner, {})[record.id] = None
        self.number.add(record.owner, 1)
        self._keep(held)

    def use(self, completion_id: str, owner: str | None) -> StoredCompletion | None:
        found = self.table.get(completion_id)
        if found is None or found.record.owner != owner:
            return None
        self.table.use(completion_id)
        return found.record

    def replace(self, held: Held) -> None:
        """Put a changed record in the place of the one that is kept."""
        before = self.table.get(held.values[0].id)
        self._keep(held)
        if before is not None:
            self._release(before)

    def _keep(self, held: Held) -> None:
        record: StoredCompletion = held.values[0]
        self._parts.keep(record.owner, held)
        kept = _StoredEntry(record, held.texts, held.size)
        self.table.put(record.id, kept, record.owner)
        self._bytes_used.add(record.owner, kept.size)

    def _release(self, entry: _StoredEntry) -> None:
        """What an entry used is free."""
        self._bytes_used.add(entry.record.owner, -entry.size)
        self._parts.release(entry.record.owner, entry.texts)

    def remove(self, completion_id: str) -> bool:
        found = self.table.pop(completion_id)
        if found is None:
            return False
        owner = found.record.owner
        self._release(found)
        self.number.add(owner, -1)
        del self._orders[owner][completion_id]
        if not self._orders[owner]:
            del self._orders[owner]
        return True

    def page(
        self,
        *,
        after: str | None,
        limit: int,
        order: Order,
        model: str | None,
        metadata: Mapping[str, str],
        owner: str | None,
    ) -> CompletionPage | None:
        ids = self._orders.get(owner, {})
        if after is not None and after not in ids:
            return None
        following = iter(ids) if order == "asc" else reversed(ids)
        if after is not None:
            while next(following) != after:
                pass
        found: list[StoredChatCompletion] = []
        for record in self._records(following):
            completion = record.completion
            if model is not None and completion.model != model:
                continue
            if metadata.items() <= completion.metadata.items():
                if len(found) == limit:
                    return CompletionPage(completions=found, has_more=True)
                found.append(completion)
        return CompletionPage(completions=found, has_more=False)

    def _records(self, ids: Iterator[str]) -> Iterator[StoredCompletion]:
        for each in ids:
            kept = self.table.get(each)
            assert kept is not None, "what is in an order is on the shelf"
            yield kept.record


class CompletionStore(ABC):
    """The `Completions` part of the store."""

    def __init__(self, completions: CompletionTable) -> None:
        self._completions = completions

    @abstractmethod
    def _expire(self) -> None:
        """Evict entries that have not been used within the TTL."""

    @abstractmethod
    def _make_room(self) -> None:
        """Evict entries until the bounds hold."""

    async def put_completion(self, record: StoredCompletion) -> None:
        held = await self._completions.shared(record)
        self._expire()
        self._completions.put(held)
        self._make_room()

    async def get_completion(
        self, completion_id: str, *, owner: str | None = None
    ) -> StoredCompletion | None:
        self._expire()
        return self._completions.use(completion_id, owner)

    async def update_completion(
        self, completion_id: str, metadata: Mapping[str, str], *, owner: str | None = None
    ) -> StoredCompletion | None:
        self._expire()
        found = self._completions.use(completion_id, owner)
        if found is None:
            return None
        completion = msgspec.structs.replace(found.completion, metadata=dict(metadata))
        changed = msgspec.structs.replace(found, completion=completion)
        held = await self._completions.shared(changed)
        if self._completions.use(completion_id, owner) is None:  # deleted meanwhile
            return None
        self._completions.replace(held)
        self._make_room()
        return changed

    async def delete_completion(self, completion_id: str, *, owner: str | None = None) -> bool:
        self._expire()
        found = self._completions.use(completion_id, owner)
        return found is not None and self._completions.remove(completion_id)

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
        self._expire()
        return self._completions.page(
            after=after, limit=limit, order=order, model=model, metadata=metadata or {}, owner=owner
        )
