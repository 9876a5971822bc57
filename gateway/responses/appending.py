"""Adding items to a conversation that others may be adding to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from gateway.protocols import ConversationBounds, Conversations, ItemsPresent
from gateway.responses.own_items import is_sent_again, renamed
from gateway.wire.ids import new_id
from gateway.wire.items import ID_PREFIXES, Item
from gateway.wire.large_bodies import beside

_ITEM: Final = 1000
"""Bytes of a request that take about as long as a comparison of two items."""


async def add_items(
    store: Conversations,
    conversation_id: str,
    items: Sequence[Item],
    *,
    owner: str | None,
    bounds: ConversationBounds | None,
    adder: str | None = None,
) -> Sequence[Item] | None:
    """Add the items, each with an id of its own, and return them as the conversation has them; None if there is none.

    An item that is there already, with its id and its contents, is not added again. Another one with its id, such as that of a
    request that ran at the same time, gets a new id. With `adder`, the id of the response that adds the items, that is the same
    one each time, so that another process can repeat this.
    """
    named, missing = list(items), items
    while True:
        try:
            done = await store.append_items(
                conversation_id, missing, owner=owner, bounds=bounds, new=True
            )
        except ItemsPresent as present:
            page = await store.list_items(conversation_id, owner=owner)
            if page is None:
                return None
            there = {item.id: item for item in page.items}
            resolve = partial(_resolved, named, present.ids, there, adder)
            named, again = await beside(_ITEM * len(present.ids), resolve)
            missing = [item for item in named if item.id not in again]
            if not missing:
                return named
        else:
            return named if done else None


def _resolved(
    items: Sequence[Item], present: frozenset[str], there: Mapping[str, Item], adder: str | None
) -> tuple[list[Item], set[str]]:
    """The items, with new ids for those that are not what the conversation has under their ids, which are `present` in it; and the
    ids of those that it has."""
    named: list[Item] = []
    again: set[str] = set()
    for item in items:
        other = there.get(item.id)
        if other is not None and is_sent_again(item, other):
            again.add(item.id)
        elif other is not None or item.id in present:
            item = renamed(item, _another_id(item, adder))
        named.append(item)
    return named, again


def _another_id(item: Item, adder: str | None) -> str:
    prefix = ID_PREFIXES.get(type(item), "")
    if adder is None:
        return new_id(prefix)
    text = f"{adder} {item.id}".encode("utf-8", "surrogatepass")
    return prefix + hashlib.sha256(text).hexdigest()[:48]
