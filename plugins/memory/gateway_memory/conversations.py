"""Stored conversations and their items."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from gateway.sdk import ConversationBounds, ConversationFull, ItemPage, ItemsPresent, Order
from gateway.sdk.wire import Conversation, Item, encode
from gateway_memory.lru import LruMapping
from gateway_memory.parts import Held, PartTable
from gateway_memory.shares import OwnerUsage


class Thread:
    """One conversation and its memory use. Items are in insertion order."""

    def __init__(self, conversation: Conversation, owner: str | None, parts: PartTable) -> None:
        self.conversation = conversation
        self.owner = owner
        self.size = len(encode(conversation))
        """Size in bytes, as JSON, without the large texts of items, which `parts` counts."""
        self._parts = parts
        self._items: dict[str, Held] = {}
        self._items_size = 0

    def rename(self, conversation: Conversation) -> None:
        """Replace the conversation object; its items stay."""
        self.size += len(encode(conversation)) - len(encode(self.conversation))
        self.conversation = conversation

    def append(
        self, items: Sequence[Held], bounds: ConversationBounds | None, *, all_new: bool
    ) -> None:
        """Append the items whose ids are not present yet, each with shared texts. Raises `ConversationFull`, and with `all_new`
        `ItemsPresent`."""
        new: dict[str, Held] = {}
        if all_new and (there := [each for held in items if (each := held.values[0].id) in self._items]):  # fmt: skip
            raise ItemsPresent(there)
        for held in items:
            item_id: str = held.values[0].id
            if item_id not in self._items:
                new.setdefault(item_id, held)
        size = sum(held.whole_size for held in new.values())
        if bounds is not None and new:
            number = len(self._items) + len(new)
            if number > bounds.items or self._items_size + size > bounds.bytes:
                raise ConversationFull.beyond(bounds.items, bounds.bytes)
        for held in new.values():
            self._parts.keep(self.owner, held)
            self.size += held.size
        self._items |= new
        self._items_size += size

    def page(self, after: str | None, limit: int | None, order: Order) -> ItemPage | None:
        items: list[Item] = [held.values[0] for held in self._items.values()]
        if order == "desc":
            items.reverse()
        start = 0
        if after is not None:
            if after not in self._items:
                return None
            start = next(i for i, item in enumerate(items) if item.id == after) + 1
        end = len(items) if limit is None else start + limit
        return ItemPage(items=items[start:end], has_more=end < len(items))

    def item(self, item_id: str) -> Item | None:
        held = self._items.get(item_id)
        return None if held is None else held.values[0]

    def release(self) -> None:
        """Give up the large texts of all items. The conversation is not used afterwards."""
        for held in self._items.values():
            self._parts.release(self.owner, held.texts)

    def remove(self, item_id: str) -> bool:
        held = self._items.pop(item_id, None)
        if held is None:
            return False
        self._parts.release(self.owner, held.texts)
        self._items_size -= held.whole_size
        self.size -= held.size
        return True


class ConversationTable:
    """Conversations by id. `clock` returns seconds."""

    def __init__(
        self, clock: Callable[[], float], bytes_used: OwnerUsage, parts: PartTable
    ) -> None:
        """`bytes_used` is updated with the size of the conversations, in bytes of JSON."""
        self.table: LruMapping[Thread] = LruMapping(clock)
        self.number = OwnerUsage()
        self._bytes_used = bytes_used
        self._parts = parts

    def use(self, conversation_id: str, owner: str | None) -> Thread | None:
        thread = self.table.get(conversation_id)
        if thread is None or thread.owner != owner:
            return None
        self.table.use(conversation_id)
        return thread

    def add(self, conversation: Conversation, owner: str | None) -> None:
        """Add a conversation without items. One of another owner with the same id is removed."""
        self.remove(conversation.id)
        thread = Thread(conversation, owner, self._parts)
        self.table.put(conversation.id, thread, owner)
        self.number.add(owner, 1)
        self._bytes_used.add(owner, thread.size)

    async def shared(self, owner: str | None, items: Sequence[Item]) -> list[Held]:
        """The items with shared texts, for a conversation of `owner`."""
        return await self._parts.each_shared(owner, items)

    def count_change(self, thread: Thread, before: int) -> None:
        """Count what a change has added to the size of a conversation, which was `before`."""
        self._bytes_used.add(thread.owner, thread.size - before)

    def remove(self, conversation_id: str) -> None:
        thread = self.table.pop(conversation_id)
        if thread is not None:
            self.number.add(thread.owner, -1)
            self._bytes_used.add(thread.owner, -thread.size)
            thread.release()


class ConversationStore(ABC):
    """The `Conversations` part of the store."""

    def __init__(self, conversations: ConversationTable) -> None:
        self._conversations = conversations

    @abstractmethod
    def _expire(self) -> None:
        """Evict entries that have not been used within the TTL."""

    @abstractmethod
    def _make_room(self) -> None:
        """Evict entries until the bounds hold."""

    async def put_conversation(
        self, conversation: Conversation, *, owner: str | None = None
    ) -> None:
        thread = self._thread(conversation.id, owner)
        if thread is None:
            self._conversations.add(conversation, owner)
        else:
            before = thread.size
            thread.rename(conversation)
            self._conversations.count_change(thread, before)
        self._make_room()

    async def get_conversation(
        self, conversation_id: str, *, owner: str | None = None
    ) -> Conversation | None:
        thread = self._thread(conversation_id, owner)
        return None if thread is None else thread.conversation

    async def delete_conversation(self, conversation_id: str, *, owner: str | None = None) -> bool:
        if self._thread(conversation_id, owner) is None:
            return False
        self._conversations.remove(conversation_id)
        return True

    async def append_items(
        self,
        conversation_id: str,
        items: Sequence[Item],
        *,
        owner: str | None = None,
        bounds: ConversationBounds | None = None,
        new: bool = False,
    ) -> bool:
        if self._thread(conversation_id, owner) is None:
            return False
        shared = await self._conversations.shared(owner, items)
        thread = self._thread(conversation_id, owner)
        if thread is None:
            return False
        before = thread.size
        thread.append(shared, bounds, all_new=new)
        self._conversations.count_change(thread, before)
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
        before = thread.size
        removed = thread.remove(item_id)
        self._conversations.count_change(thread, before)
        return removed

    def _thread(self, conversation_id: str, owner: str | None) -> Thread | None:
        self._expire()
        return self._conversations.use(conversation_id, owner)
