"""A conversation and its items."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.sdk import ConversationBounds, ConversationFull, ItemPage, Order
from gateway.sdk.wire import Conversation, Item, encode


class Thread:
    """One conversation and its memory use. Items are in insertion order."""

    def __init__(self, conversation: Conversation, owner: str | None) -> None:
        self.conversation = conversation
        self.owner = owner
        self.size = len(encode(conversation))
        """Size in bytes, as JSON."""
        self._items: dict[str, Item] = {}
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
        self._items.update(new)
        self._items_size += size
        self.size += size

    def page(self, after: str | None, limit: int | None, order: Order) -> ItemPage | None:
        items = list(self._items.values())
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
        return self._items.get(item_id)

    def remove(self, item_id: str) -> bool:
        item = self._items.pop(item_id, None)
        if item is None:
            return False
        size = len(encode(item))
        self._items_size -= size
        self.size -= size
        return True
