"""A conversation and its items."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.protocols.store import ItemPage, Order
from gateway.wire.common import encode
from gateway.wire.items import Item
from gateway.wire.response import Conversation


class Thread:
    """One conversation, with what it takes of memory. Items are in the order in which they were added."""

    def __init__(self, conversation: Conversation, owner: str | None) -> None:
        self.conversation = conversation
        self.owner = owner
        self.size = len(encode(conversation))
        """Bytes as JSON."""
        self._items: dict[str, Item] = {}

    def rename(self, conversation: Conversation) -> None:
        """Replace what is said of the conversation; its items stay."""
        self.size += len(encode(conversation)) - len(encode(self.conversation))
        self.conversation = conversation

    def append(self, items: Sequence[Item]) -> None:
        """Add the items whose ids are not here yet."""
        for item in items:
            if item.id not in self._items:
                self._items[item.id] = item
                self.size += len(encode(item))

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
        self.size -= len(encode(item))
        return True
