"""A conversation and its items."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.sdk import ConversationBounds, ConversationFull, ItemPage, Order
from gateway.sdk.wire import Conversation, Item, encode
from gateway_memory.parts import Held, PartTable


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

    def append(self, items: Sequence[Item], bounds: ConversationBounds | None) -> None:
        """Append the items whose ids are not present yet. Raises `ConversationFull`."""
        new: dict[str, Item] = {}
        for item in items:
            if item.id not in self._items:
                new.setdefault(item.id, item)
        size = sum(len(encode(item)) for item in new.values())
        if bounds is not None and new:
            number = len(self._items) + len(new)
            if number > bounds.items or self._items_size + size > bounds.bytes:
                raise ConversationFull.beyond(bounds.items, bounds.bytes)
        for item_id, item in new.items():
            self._items[item_id] = held = self._parts.hold(self.owner, [item])
            self.size += held.size
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
