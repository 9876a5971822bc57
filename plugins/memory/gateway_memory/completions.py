"""The stored chat completions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping

import msgspec

from gateway.protocols.store import CompletionPage, Order, StoredCompletion
from gateway.wire.common import encode
from gateway.wire.stored_chat import StoredChatCompletion
from gateway_memory.shelf import Shelf


class _Kept(msgspec.Struct, frozen=True):
    record: StoredCompletion
    size: int
    """Bytes as JSON."""


class CompletionTable:
    """Completions by id, and for each owner in the order in which they were put. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.shelf: Shelf[_Kept] = Shelf(clock)
        self.size = 0
        """Bytes of all, as JSON."""
        self._orders: dict[str | None, dict[str, None]] = {}

    def put(self, record: StoredCompletion) -> None:
        self.remove(record.id)
        self._orders.setdefault(record.owner, {})[record.id] = None
        self._keep(record)

    def use(self, completion_id: str, owner: str | None) -> StoredCompletion | None:
        found = self.shelf.get(completion_id)
        if found is None or found.record.owner != owner:
            return None
        self.shelf.use(completion_id)
        return found.record

    def update(
        self, completion_id: str, metadata: Mapping[str, str], owner: str | None
    ) -> StoredCompletion | None:
        found = self.use(completion_id, owner)
        if found is None:
            return None
        completion = msgspec.structs.replace(found.completion, metadata=dict(metadata))
        changed = msgspec.structs.replace(found, completion=completion)
        self.size -= self._size_of(completion_id)
        self._keep(changed)
        return changed

    def _size_of(self, completion_id: str) -> int:
        kept = self.shelf.get(completion_id)
        return 0 if kept is None else kept.size

    def _keep(self, record: StoredCompletion) -> None:
        kept = _Kept(record, len(encode(record)))
        self.shelf.put(record.id, kept)
        self.size += kept.size

    def remove(self, completion_id: str) -> bool:
        found = self.shelf.pop(completion_id)
        if found is None:
            return False
        self.size -= found.size
        owner = found.record.owner
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
            kept = self.shelf.get(each)
            assert kept is not None, "what is in an order is on the shelf"
            yield kept.record


class KeepsCompletions(ABC):
    """The part `Completions` of the store."""

    def __init__(self, completions: CompletionTable) -> None:
        self._completions = completions

    @abstractmethod
    def _expire(self) -> None:
        """Forget what was not used for too long."""

    @abstractmethod
    def _make_room(self) -> None:
        """Forget what is beyond the bounds."""

    async def put_completion(self, record: StoredCompletion) -> None:
        self._expire()
        self._completions.put(record)
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
        changed = self._completions.update(completion_id, metadata, owner)
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
